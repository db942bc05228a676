// Who holds the memory, and how near the budget is.

import { useState } from "./vendor/hooks.js";
import { H, Plot, Unknown, W, bandPath, y } from "./charts.js";
import { Choice, Panel, html, route } from "./dom.js";
import { bytes } from "./format.js";
import { SPANS, useHistory } from "./history.js";
import { shown } from "./store.js";

const COLOURS = 8;

/** A colour for each name, the same as long as the names are the same. */
export const colours = (names) => new Map([...names].sort().map((name, index) => [name, `s${index % COLOURS}`]));

const holders = (models) => [...models.values()].filter((model) => held(model) > 0).sort((one, other) => held(other) - held(one));

/** Private pages of all replicas, and what they share once. */
export const held = (model) => (model.replicas.length ? model.private_bytes + model.shared_bytes : 0);

export function inWords(memory) {
  if (!memory.budget) return `${bytes(memory.used)} used`;
  return `${bytes(memory.used)} of ${bytes(memory.budget)}`;
}

function NowBar({ memory, models, paint }) {
  const all = holders(models);
  const whole = Math.max(memory.budget, memory.used, 1);
  const near = memory.used / Math.max(memory.budget, 1);
  return html`<div class="nowbar">
    <svg viewBox="0 0 ${W} 10" preserveAspectRatio="none" class="h14" role="img" aria-label=${`Memory now: ${inWords(memory)}`}>
      <rect class="free" width=${W} height="10" />
      ${all.reduce(({ drawn, at }, model) => {
        const width = (W * held(model)) / whole;
        drawn.push(html`<rect class=${`band ${paint.get(model.key) ?? "s0"}`} x=${at} width=${Math.max(width, 1.5)} height="10" />`);
        return { drawn, at: at + width };
      }, { drawn: [], at: 0 }).drawn}
    </svg>
    <p><b data-test="memory">${inWords(memory)}</b> <span class="muted">${(100 * near).toFixed(near < 0.1 ? 1 : 0)} % of the budget: ${memory.source}</span></p>
    <ul class="legend">${all.slice(0, 12).map((model) => html`
      <li key=${model.key}><span class="swatch ${paint.get(model.key) ?? "s0"}"></span><a href=${route(model.key)}>${model.key}</a> ${bytes(held(model))}</li>`)}
      ${all.length > 12 && html`<li class="muted">and ${all.length - 12} more</li>`}
      ${!all.length && html`<li class="muted">${models.size ? "All models are asleep: they hold nothing." : "There are no models."}</li>`}</ul>
  </div>`;
}

function Bands({ history, memory, paint, tools }) {
  const length = history.series.requests.length;
  const names = Object.keys(history.memory).filter((name) => history.memory[name].some(Boolean)).sort();
  const columns = names.map((name) => [name, history.memory[name]]);
  if (history.others?.some(Boolean)) columns.push(["others", history.others]);
  const known = (index) => history.series.requests[index] != null;
  const sums = [new Array(length).fill(0)];
  for (const [, column] of columns) sums.push(sums.at(-1).map((sum, index) => (known(index) ? sum + (column[index] ?? 0) : null)));
  const most = Math.max(...sums.at(-1).map((sum) => sum ?? 0), memory.used);
  const tight = most > 0.2 * memory.budget;  // else the bands would be a line at the bottom
  const top = Math.max(tight ? Math.max(memory.budget, most) * 1.08 : most * 1.25, 1);
  const marks = tight ? [{ at: 1 - memory.budget / top, text: `budget ${bytes(memory.budget)}`, kind: "budget" }]
    : [{ at: 0, text: most ? `${bytes(top)}; the budget of ${bytes(memory.budget)} is far above` : "nothing is held" }];
  if (tight && memory.machine && memory.machine < top) marks.push({ at: 1 - memory.machine / top, text: `machine ${bytes(memory.machine)}`, kind: "limit" });
  const total = (index) => bytes(sums.at(-1)[index]);
  const describe = (index) => (known(index) ? [total(index), ...columns.filter(([, column]) => column[index])
    .map(([name, column]) => `${name} ${bytes(column[index])}`)].slice(0, 6).join(", ") : "not known");
  return html`<${Plot} title="Memory by model" summary=${`now ${bytes(memory.used)}, budget ${bytes(memory.budget)}`} from=${history.from}
    step=${history.step} length=${length} describe=${describe} head=${["all", ...columns.map(([name]) => name)]}
    cells=${(index) => [total(index), ...columns.map(([, column]) => bytes(column[index]))]} marks=${marks} tools=${tools}>
    <${Unknown} length=${length} known=${known} />
    ${columns.map(([name], index) => html`<path class=${`band ${paint.get(name) ?? "others"}`} d=${bandPath(sums[index], sums[index + 1], top)} />`)}
    ${tight && html`<line class="budget" x1="0" x2=${W} y1=${y(memory.budget, top)} y2=${y(memory.budget, top)} />`}
    ${tight && memory.machine < top && html`<line class="limit" x1="0" x2=${W} y1=${y(memory.machine, top)} y2=${y(memory.machine, top)} />`}
    <line class="base" x1="0" x2=${W} y1=${H} y2=${H} />
  <//>`;
}

export function MemoryPanel() {
  const [span, setSpan] = useState("5m");
  const { history } = useHistory(null, span, 0);
  const { daemon, models } = shown();
  const paint = colours(new Set([...Object.keys(history?.memory ?? {}), ...holders(models).map((model) => model.key)]));
  const tools = html`<${Choice} label="Time shown" options=${Object.entries(SPANS).map(([key, { text }]) => [key, text])} value=${span} choose=${setSpan} />`;
  return html`<${Panel} title="Memory" id="memory">
    <${NowBar} memory=${daemon.memory} models=${models} paint=${paint} />
    ${history ? html`<${Bands} history=${history} memory=${daemon.memory} paint=${paint} tools=${tools} />` : html`<p class="muted">Reading the last minutes …</p>`}
  <//>`;
}
