// When each model was awake, and why it went to sleep: thrashing and wrong idle times show at a glance.

import { useState } from "./vendor/hooks.js";
import { W } from "./charts.js";
import { Choice, Panel, html, route } from "./dom.js";
import { clock, seconds } from "./format.js";
import { useHistory } from "./history.js";
import { daemonNow, shown } from "./store.js";

export const REASONS = {
  i: "nobody asked", l: "evicted, least recently used", c: "evicted, too many models", o: "out of memory", n: "brought no gain", m: "by hand",
  s: "daemon stopped", f: "files or settings changed", x: "died or failed",
};
const MOST = 24;
const SHOWN = { "15m": 900, "1h": 3600 };
const HEIGHT = 10;

/** Changes as pieces of time: [{from, to, state, reason}], `reason` being why it ended. */
export function pieces(changes, begin, end) {
  const found = [];
  changes.forEach((change, index) => {
    const next = changes[index + 1];
    const from = Math.max(change.t, begin);
    const to = Math.min(next?.t ?? end, end);
    if (to > begin && from < end) found.push({ from, to: Math.max(to, from), state: change.state, reason: next?.reason ?? null });
  });
  return found;
}

function Lane({ name, changes, begin, end, paint }) {
  const at = (time) => (W * (time - begin)) / (end - begin);
  const all = pieces(changes, begin, end);
  const awake = all.filter((piece) => piece.state !== "asleep");
  const letters = changes.filter((change) => change.reason && change.t > begin && change.t <= end);
  const total = awake.filter((piece) => piece.state === "ready").reduce((sum, piece) => sum + piece.to - piece.from, 0);
  const last = letters.at(-1);
  const told = `${name}: awake ${seconds(total)} of this time` + (last ? `; last asleep or failed at ${clock(last.t)}, ${REASONS[last.reason] ?? last.reason}` : "");
  return html`<div class="lane" data-lane=${name}>
    <a class="name" href=${route(name)}>${name}</a>
    <div class="track" tabindex="0" role="img" aria-label=${told} title=${told}>
      <svg viewBox="0 0 ${W} ${HEIGHT}" preserveAspectRatio="none" aria-hidden="true">
        ${awake.map((piece) => html`<rect class="piece ${piece.state}" x=${at(piece.from).toFixed(1)} y="1" height=${HEIGHT - 2}
          width=${Math.max(at(piece.to) - at(piece.from), 1.5).toFixed(1)}><title>${
            `${piece.state} ${clock(piece.from)} to ${clock(piece.to)}, ${seconds(piece.to - piece.from)}`}</title></rect>`)}
      </svg>
      ${letters.slice(-30).map((change) => html`<span class="letter" style=${{ left: `${at(change.t) / 10}%` }}
        title=${`${clock(change.t)}: ${REASONS[change.reason] ?? change.reason}`}>${change.reason}</span>`)}
    </div>
  </div>`;
}

/** The history's changes, and what the stream has told since. */
export function lanesOf(history, models) {
  const lanes = Object.entries(history.states).filter(([, changes]) => changes.some((change) => change.state !== "asleep"));
  return lanes.map(([name, changes]) => {
    const state = models.get(name)?.state;
    const coarse = state === "busy" ? "ready" : state;
    const last = changes.at(-1);
    return [name, coarse && last && coarse !== last.state ? [...changes, { t: daemonNow(), state: coarse, reason: null }] : changes];
  });
}

export function TimelinePanel() {
  const [span, setSpan] = useState("15m");
  const { models, events } = shown();
  const turn = events.filter((event) => ["load", "unload", "evict", "restart"].includes(event.kind)).at(-1)?.seq ?? 0;
  const { history } = useHistory(null, "1h", turn);
  const end = daemonNow();
  const begin = end - SHOWN[span];
  const moved = ([, changes]) => changes.at(-1)?.t ?? 0;
  const lanes = history ? lanesOf(history, models).filter(([, changes]) => pieces(changes, begin, end).some((piece) => piece.state !== "asleep")) : [];
  const latest = new Set([...lanes].sort((one, other) => moved(other) - moved(one)).slice(0, MOST).map(([name]) => name));
  const tools = html`<${Choice} label="Time shown" options=${[["15m", "15 min"], ["1h", "1 h"]]} value=${span} choose=${setSpan} />`;
  const used = new Set(lanes.flatMap(([, changes]) => changes.filter((change) => change.t > begin).map((change) => change.reason)));
  return html`<${Panel} title="Awake and asleep" id="timeline" tools=${tools}>
    <div class="lanes">
      ${lanes.filter(([name]) => latest.has(name)).sort().map(([name, changes]) => html`<${Lane} key=${name} name=${name} changes=${changes} begin=${begin} end=${end} />`)}
      ${!lanes.length && html`<p class="muted">${history ? "No model was awake in this time." : "Reading the last hour …"}</p>`}
      ${lanes.length > MOST && html`<p class="muted">and ${lanes.length - MOST} more; these are the ones that changed last</p>`}
    </div>
    <div class="axis" aria-hidden="true"><span>${span === "1h" ? "−1 h" : "−15 min"}</span><span>now</span></div>
    <ul class="legend"><li><span class="swatch ready"></span>awake</li><li><span class="swatch waking"></span>waking</li>
      <li><span class="swatch draining"></span>draining</li><li><span class="swatch failed"></span>failed</li>
      ${Object.entries(REASONS).filter(([letter]) => used.has(letter)).map(([letter, text]) => html`<li><b class="letter">${letter}</b> ${text}</li>`)}</ul>
  <//>`;
}
