// The daemon itself: what it found, how it is configured, what it runs on.

import { useState } from "./vendor/hooks.js";
import { Choice, Panel, html, useFetched } from "./dom.js";
import { bytes, clock, count, plural, seconds } from "./format.js";
import { look } from "./net.js";
import { shown, store } from "./store.js";

/** In two tables beside each other, where there is room. */
export function Settings({ settings }) {
  const [all, setAll] = useState(false);
  const chosen = all ? settings : settings.filter((one) => one.source !== "default");
  const half = Math.ceil(chosen.length / 2);
  return html`<${Choice} label="Which settings" options=${[[false, `set (${settings.filter((one) => one.source !== "default").length})`], [true, `all (${settings.length})`]]}
      value=${all} choose=${setAll} />
    <div class="pair"><${Half} settings=${chosen.slice(0, half)} part="1" /><${Half} settings=${chosen.slice(half)} part="2" /></div>`;
}

const Half = ({ settings, part }) => html`<div class="scroll" tabindex="0" role="region" aria-label=${`Settings, part ${part}`}><table class="settings">
  <thead><tr><th scope="col">setting</th><th scope="col">value</th><th scope="col">from</th></tr></thead>
  <tbody>${settings.map((one) => html`<tr><th scope="row"><code>${one.key}</code></th>
    <td>${one.value === null ? html`<span class="muted">not set</span>`
      : html`<code>${typeof one.value === "string" ? one.value : JSON.stringify(one.value)}</code>`}</td><td class="muted">${one.source ?? "–"}</td></tr>`)}</tbody>
</table></div>`;

export const Facts = ({ facts }) => html`<dl class="facts">${facts.filter(Boolean).map(([name, value]) => html`<div><dt>${name}</dt><dd>${value}</dd></div>`)}</dl>`;

const LEVELS = { ok: "ready", warn: "waking", fail: "failed" };

function Doctor() {
  const { value, error } = useFetched((signal) => look("doctor", { signal }), [store.key, store.picture.lives], 60);
  if (!value) return html`<p class="muted">${error ? error.message : "Looking …"}</p>`;
  const order = ["fail", "warn", "ok"];
  const checks = [...value.checks].sort((one, other) => order.indexOf(one.level) - order.indexOf(other.level));
  return html`<ul class="checks">${checks.map((check) => html`<li><span class="state ${LEVELS[check.level]}">${check.level}</span>
    <div>${check.text}${check.hint && html`<p class="muted">${check.hint}</p>`}</div></li>`)}</ul>`;
}

function Config() {
  const { value, error } = useFetched((signal) => look("config", { signal }), [store.key, store.picture.lives], 0);
  if (!value) return html`<p class="muted">${error ? error.message : "Reading …"}</p>`;
  return html`<p class="muted">${value.files.length ? `From ${value.files.join(", ")}.` : "No file was read."} Keys and passwords are not shown.</p>
    <${Settings} settings=${value.settings} />`;
}

export function SystemPage() {
  const { daemon, time } = shown();
  const { memory } = daemon;
  return html`<h1 class="hidden">System</h1>
    <div class="pair">
      <${Panel} title="Daemon" id="daemon"><${Facts} facts=${[
        ["version", `Wakeful ${daemon.version}, Python ${daemon.python}`], ["process", `${daemon.pid}, ${daemon.condition}`],
        ["up", `${seconds(Math.max(time - daemon.since, 0))}, since ${clock(daemon.since, { day: true })}`],
        ["listens", `${daemon.url}${daemon.grpc_port ? `, gRPC on port ${daemon.grpc_port}` : ""}`], ["cores", String(daemon.cores)],
        ["memory", `${bytes(memory.used)} used by models of ${bytes(memory.budget)}: ${memory.source}`], ["kept free", bytes(memory.margin)],
        ["models", Object.entries(daemon.models).map(([name, number]) => `${number} ${name}`).join(", ")],
        ["models that evicted each other", count(daemon.thrashing)], ["processes that died", count(daemon.restarts)],
        ["streams to pages", `${plural(daemon.streams.open, "stream")} open, ${plural(daemon.streams.frames_dropped, "frame")} dropped for slow readers`],
        ["this page", store.shared ? "one stream for all tabs of this browser" : "a stream of its own"],
        ["nurseries", daemon.nurseries.map((one) => `${one.library}: ${one.pid ? `process ${one.pid}` : "not running"}`).join("; ") || "none"],
      ]} /><//>
      <${Panel} title="Doctor" id="doctor"><${Doctor} /><//>
    </div>
    <${Panel} title="Configuration" id="config" wide><${Config} /><//>`;
}
