// Everything about one model, on a page that can be pasted into an issue.

import { useState } from "./vendor/hooks.js";
import { H, Lines, Plot, Unknown, W, linePath, roundTop, x } from "./charts.js";
import { Choice, Panel, State, html, useFetched } from "./dom.js";
import { EventsOf } from "./events.js";
import { bytes, count, plural, rate, seconds } from "./format.js";
import { SPANS, useHistory } from "./history.js";
import { held } from "./memory.js";
import { Actions, Confirm, Dots, ReplicaTable } from "./models.js";
import { look, named } from "./net.js";
import { shown, store } from "./store.js";
import { Facts, Settings } from "./system.js";
import { TryIt } from "./tryit.js";

export const BOUNDS = [0.0005, 0.001, 0.002, 0.004, 0.008, 0.016, 0.032, 0.064, 0.125, 0.25, 0.5, 1, 2, 4, 8, 16, 30, 60];

/** Seconds that a share of those counted took at most, evenly spread within a bucket; null: nobody was counted. */
export function percentile(counts, share) {
  const total = counts?.reduce((sum, number) => sum + number, 0);
  if (!total) return null;
  let below = 0;
  for (let index = 0; index < counts.length; index += 1) {
    if (counts[index] && below + counts[index] >= share * total) {
      const low = index ? BOUNDS[index - 1] : 0;
      return low + ((BOUNDS[index] - low) * (share * total - below)) / counts[index];
    }
    below += counts[index];
  }
  return BOUNDS.at(-1);
}

/** Where a latency stands on the heatmap: 0 at the bottom, 1 at the top. */
function height(latency) {
  const index = BOUNDS.findIndex((bound) => latency <= bound);
  if (index < 0) return 1;
  const low = index ? BOUNDS[index - 1] : 0;
  return (index + (latency - low) / (BOUNDS[index] - low)) / BOUNDS.length;
}

// ── panels ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

function Flow({ history }) {
  const { series, step, from } = history;
  const perSecond = (column) => column.map((value) => (value == null ? null : value / step));
  const arrivals = [{ name: "answered a second", kind: "s0", values: perSecond(series.requests) }];
  if (series.failures.some(Boolean)) arrivals.push({ name: "failed a second", kind: "failed", values: perSecond(series.failures) });
  const work = [{ name: "queued", kind: "s1", values: series.queue }, { name: "running", kind: "s0", values: series.running },
    { name: "replicas", kind: "s4", values: series.replicas }];
  return html`<${Lines} title="Requests" from=${from} step=${step} series=${arrivals} format=${rate} height=${90} />
    <${Lines} title="In hand" from=${from} step=${step} series=${work} format=${count} height=${90} />`;
}

/** Five shades by the square root, so that few slow ones are seen beside many fast ones. */
const shade = (number, most) => Math.max(1, Math.ceil(5 * Math.sqrt(number / most)));

function Cells({ lat, length }) {
  const most = Math.max(1, ...lat.flatMap((counts) => counts ?? []));
  const paths = ["", "", "", "", "", ""];
  const width = Math.max(W / Math.max(length - 1, 1), 0.5);
  const tall = H / BOUNDS.length;
  lat.forEach((counts, index) => counts?.forEach((number, bucket) => {
    if (number) paths[shade(number, most)] += `M${(x(index, length) - width / 2).toFixed(2)} ${(H - tall * (bucket + 1)).toFixed(2)}h${width.toFixed(2)}v${tall.toFixed(2)}h-${width.toFixed(2)}z`;
  }));
  return paths.map((path, level) => path && html`<path class=${`heat heat${level}`} d=${path} />`);
}

const PARTS = { total: ["all", "seconds", "requests"], queue: ["waiting", "queue_seconds", "requests"], run: ["runs", "run_seconds", "runs"] };

function Latency({ history }) {
  const [part, setPart] = useState("total");
  const { series, step, from, lat } = history;
  const length = lat.length;
  const tools = html`<${Choice} label="Which time" options=${Object.entries(PARTS).map(([key, [text]]) => [key, text])} value=${part} choose=${setPart} />`;
  if (part !== "total" || lat.every((counts) => counts === null)) {
    const [, sum, number] = PARTS[part];
    const values = series[sum].map((value, index) => (value == null || !series[number][index] ? null : value / series[number][index]));
    const name = { total: "mean of all", queue: "mean wait", run: "mean run" }[part];
    return html`<${Lines} title="Time to answer" from=${from} step=${step} series=${[{ name, kind: "s0", values }]} format=${seconds} height=${180} tools=${tools}
      summary=${part !== "total" ? name : series.requests.every((number) => number == null) ? "nobody has asked for it yet" : "of this span, means alone are kept"} />`;
  }
  const p50 = lat.map((counts) => percentile(counts, 0.5));
  const p99 = lat.map((counts) => percentile(counts, 0.99));
  const recent = lat.slice(-Math.ceil(60 / step)).reduce((sums, counts) => (counts ? sums.map((sum, index) => sum + counts[index]) : sums), new Array(BOUNDS.length).fill(0));
  const describe = (index) => {
    const counts = lat[index];
    if (!counts) return "not known";
    const there = counts.map((number, bucket) => number && `${number} up to ${seconds(BOUNDS[bucket])}`).filter(Boolean);
    return there.length ? `${there.join(", ")}; p50 ${seconds(p50[index])}, p99 ${seconds(p99[index])}` : "no answers";
  };
  const marks = [0.001, 0.008, 0.064, 0.5, 4, 30].map((bound) => ({ at: 1 - (BOUNDS.indexOf(bound) + 1) / BOUNDS.length, text: seconds(bound), kind: "tick" }));
  const line = (values) => linePath(values.map((value) => (value == null ? null : height(value))), 1);
  return html`<${Plot} title="Time to answer" summary=${`last minute p50 ${seconds(percentile(recent, 0.5))}, p99 ${seconds(percentile(recent, 0.99))}`} from=${from} step=${step}
    length=${length} describe=${describe} head=${["answers", "p50", "p99", "slowest up to"]} height=${180} marks=${marks} tools=${tools}
    cells=${(index) => [count(lat[index]?.reduce((sum, number) => sum + number, 0)), seconds(p50[index]), seconds(p99[index]),
      seconds(BOUNDS[lat[index]?.findLastIndex((number) => number > 0)])]}
    legend=${html`<ul class="legend"><li><span class="swatch heat5"></span>many answers</li><li><span class="swatch heat1"></span>few</li>
      <li><span class="swatch line50"></span>p50</li><li><span class="swatch line99"></span>p99</li></ul>`}>
    <${Unknown} length=${length} known=${(index) => lat[index] != null} />
    <${Cells} lat=${lat} length=${length} />
    <path class="line line50" d=${line(p50)} /><path class="line line99" d=${line(p99)} />
  <//>`;
}

function Batches({ detail }) {
  const { batches, cost, max_batch_size: most, model } = detail;
  if (!most) return html`<p class="muted">A pipeline has no runs of its own.</p>`;
  const last = Math.max(batches.findLastIndex((one) => one.count > 0), batches.findIndex((one) => one.rows >= most), 3);
  const shownBatches = batches.slice(0, last + 1);
  const top = Math.max(1, ...shownBatches.map((one) => one.count));
  const label = (one, index) => {
    const low = index ? batches[index - 1].rows + 1 : 1;
    return one.rows === null ? `${low} or more` : low === one.rows ? String(low) : `${low}–${one.rows}`;
  };
  const runs = batches.reduce((sum, one) => sum + one.count, 0);
  return html`<figure class="chart" aria-labelledby="batch-caption">
    <figcaption id="batch-caption"><b>Rows in a run</b> <span>${runs ? `${plural(runs, "run")} in the last minute, ${(model.rows_per_run ?? 0).toFixed(1)} rows each` : "no run in the last minute"}</span></figcaption>
    ${batches.length > 0 && html`<ul class="bars">${shownBatches.map((one, index) => {
      const limit = one.rows !== null && one.rows >= most && (index === 0 || batches[index - 1].rows < most);
      return html`<li class=${limit ? "limit" : ""} data-rows=${one.rows} data-count=${one.count}>
        <svg viewBox="0 0 10 ${H}" preserveAspectRatio="none" aria-hidden="true"><rect class="bar" x="1" width="8" y=${H - (H * one.count) / top} height=${(H * one.count) / top} /></svg>
        <b>${one.count || ""}</b><span>${label(one, index)}</span>${limit && html`<em>max_batch_size ${most}</em>`}</li>`;
    })}</ul>`}
    <p class="muted">${model.merges ? "Requests are merged" : "Requests are not merged"}: ${model.batching}.</p>
    ${cost ? html`<${Cost} cost=${cost} most=${most} />` : html`<p class="muted">What a run costs is not learnt yet.</p>`}
  </figure>`;
}

function Cost({ cost, most }) {
  const rows = Math.max(2, most);
  const top = roundTop(cost.a + cost.b * rows);
  return html`<div class="cost"><p>A run takes about <b>${seconds(cost.a)} + ${cost.b < 1e-6 ? "0 µs" : seconds(cost.b)} × rows</b>: ${[1, 8, most].filter((number, index, all) => number <= most && all.indexOf(number) === index)
      .map((number) => `${seconds(cost.a + cost.b * number)} for ${number}`).join(", ")}.</p>
    <div class="plot h60" role="img" aria-label=${`Learnt time of a run, ${seconds(cost.a + cost.b)} for one row to ${seconds(cost.a + cost.b * most)} for ${most}`}>
      <svg viewBox="0 0 ${W} ${H}" preserveAspectRatio="none" aria-hidden="true"><path class="line s0" d=${`M0 ${H - (H * cost.a) / top}L${W} ${H - (H * (cost.a + cost.b * rows)) / top}`} /></svg>
      <span class="mark">${seconds(top)}</span></div>
    <div class="axis" aria-hidden="true"><span>0 rows</span><span>${rows} rows</span></div></div>`;
}

function Explain({ name, turn }) {
  const { value, error } = useFetched((signal) => look(`models/${named(name)}/explain?wake=1`, { signal }), [name, store.key], 10, turn);
  if (!value) return html`<p class="muted">${error ? error.message : "Asking …"}</p>`;
  return html`<div class="explain" data-test="explain"><p>${value.text.split("\n")[0]}</p>
    <dl class="facts">${value.lines.map((line) => html`<div><dt>${line.label}</dt><dd>${line.text}</dd></div>`)}</dl></div>
    ${value.plan && html`<p class="plan"><b>If a request came now:</b> ${value.plan.text}</p>`}`;
}

const shaped = (tensor) => `${tensor.datatype} [${tensor.shape.map((size) => (size < 0 ? "any" : size)).join(", ")}]`;

function Signature({ signature }) {
  if (!signature) return html`<p class="muted">Not known yet: it is read when the model wakes. Looking here does not wake it.</p>`;
  return html`<div class="scroll" tabindex="0" role="region" aria-label="Inputs and outputs"><table>
    <thead><tr><th scope="col">tensor</th><th scope="col">direction</th><th scope="col">type and shape</th></tr></thead>
    <tbody>${["inputs", "outputs"].flatMap((side) => signature[side].map((tensor) => html`<tr>
      <th scope="row"><code>${tensor.name}</code></th><td>${side.slice(0, -1)}</td><td>${shaped(tensor)}</td></tr>`))}</tbody></table></div>`;
}

// ── the page ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

export function ModelPage({ name }) {
  const [span, setSpan] = useState("5m");
  const [asked, setAsked] = useState(null);
  const { models, events } = shown();
  const live = models.get(name) ?? [...models.values()].find((model) => model.name === name);
  const turn = events.filter((event) => event.model === live?.key).at(-1)?.seq ?? 0;
  const { value: detail, error } = useFetched((signal) => look(`models/${named(name)}`, { signal }), [name, store.key, store.picture.lives], 3, turn);
  const { history } = useHistory(name, span, turn);
  if (!live) return html`<p class="blank">No model is called <b>${name}</b> here. <a href="#/">To the overview</a></p>`;
  const waiting = html`<p class="muted">${error ? error.message : "Reading …"}</p>`;
  const spans = html`<${Choice} label="Time shown" options=${Object.entries(SPANS).map(([key, { text }]) => [key, text])} value=${span} choose=${setSpan} />`;
  return html`<div class="title"><h1>${live.key}</h1><${State} state=${live.state} /><${Dots} model=${live} />
      <span class="why" data-test="why">${live.reason}</span><${Actions} model=${live} ask=${setAsked} /></div>
    ${live.description && html`<p class="muted">${live.description}</p>`}
    <div class="pair">
      <${Panel} title="Why it is so" id="why"><${Explain} name=${live.key} turn=${`${turn} ${live.state}`} /><//>
      <${Panel} title="Facts" id="facts"><${Facts} facts=${[
        ["file", live.path || "–"], ["opened by", live.backend],
        ["memory", live.replicas.length ? `${live.measured ? "" : "about "}${bytes(held(live))}: ${bytes(live.private_bytes)} private, ${bytes(live.shared_bytes)} shared` : "none: it sleeps"],
        ["a wake takes", live.wakes_in == null ? "not known yet" : seconds(live.wakes_in)],
        ["replicas", `${live.replicas.length}, at least ${live.min_replicas}, at most ${live.max_replicas ?? "as many as help"}`],
        ["answers so far", `${count(live.done)}, ${plural(live.failed, "failure")}`], ["runs so far", `${count(live.runs)} with ${plural(live.rows, "row")}`],
      ]} /><//>
    </div>
    <div class="pair">
      <${Panel} title="Flow" id="flow" tools=${spans}>${history ? html`<${Flow} history=${history} />` : waiting}<//>
      <${Panel} title="Latency" id="latency" tools=${spans}>${history ? html`<${Latency} history=${history} />` : waiting}<//>
    </div>
    <div class="pair">
      <${Panel} title="Batches" id="batches">${detail ? html`<${Batches} detail=${detail} />` : waiting}<//>
      <${Panel} title="Replicas" id="replicas">${live.replicas.length ? html`<${ReplicaTable} model=${live} />` : html`<p class="muted">None: it is ${live.state}.</p>`}
        <h3>Inputs and outputs</h3>${detail ? html`<${Signature} signature=${detail.signature} />` : waiting}<//>
    </div>
    <${Panel} title="Try it" id="try" wide>${detail ? html`<${TryIt} model=${live} signature=${detail.signature} />` : waiting}<//>
    <${Panel} title="Events" id="events" wide>${detail ? html`<${EventsOf} events=${mergedEvents(detail.events, events, live.key)} />` : waiting}<//>
    <${Panel} title="Settings" id="settings" wide>${detail ? html`<${Settings} settings=${detail.settings} />` : waiting}<//>
    ${asked && html`<${Confirm} verb="unload" model=${live} close=${() => setAsked(null)} />`}`;
}

function mergedEvents(fetched, all, key) {
  const known = new Map([...fetched, ...all.filter((event) => event.model === key)].map((event) => [event.seq, event]));
  return [...known.values()].sort((one, other) => one.seq - other.seq).slice(-20);
}
