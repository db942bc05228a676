// Charts as SVG in a fixed grid of 1000 by 100 that is stretched: they need no measuring, follow the theme by CSS, and are drawn again only when their
// figures change. Words stand beside the SVG, in HTML, where they are not stretched.

import { useId, useState } from "./vendor/hooks.js";
import { html } from "./dom.js";
import { clock, seconds } from "./format.js";

export const W = 1000;
export const H = 100;
const ROWS = 20;

const spot = (value) => Number(value.toFixed(1));
export const x = (index, length) => spot((W * index) / Math.max(length - 1, 1));
export const y = (value, top) => spot(H - (H * value) / top);

/** Stretches of indices in which all columns are known. */
export function* stretches(length, known) {
  let begin = -1;
  for (let index = 0; index <= length; index += 1) {
    const here = index < length && known(index);
    if (here && begin < 0) begin = index;
    if (!here && begin >= 0) {
      yield [begin, index - 1];
      begin = -1;
    }
  }
}

export function linePath(values, top) {
  let path = "";
  for (const [from, to] of stretches(values.length, (index) => values[index] != null)) {
    for (let index = from; index <= to; index += 1) path += `${index === from ? "M" : "L"}${x(index, values.length)} ${y(values[index], top)}`;
    if (from === to) path += "h1";
  }
  return path;
}

export function bandPath(lower, upper, top) {
  let path = "";
  for (const [from, to] of stretches(upper.length, (index) => upper[index] != null)) {
    const there = [];
    const back = [];
    for (let index = from; index <= to; index += 1) {
      const where = x(index, upper.length);
      there.push(`${where} ${y(upper[index], top)}`);
      back.unshift(`${where} ${y(lower[index] ?? 0, top)}`);
    }
    path += `M${[...there, ...back].join("L")}Z`;
  }
  return path;
}

/** A round figure at or above the largest value. */
export function roundTop(value) {
  if (!(value > 0)) return 1;
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 1.5, 2, 3, 5, 7.5, 10].find((step) => step * power >= value) * power;
}

const ago = (age) => (age < 1 ? "now" : `−${seconds(age).replace("m 00s", " min").replace("h 00m", " h")}`);

/** What stands around a chart of columns over time: caption with the newest values, cursor by mouse and arrows, and a table of the last rows. */
export function Plot({ title, summary, from, step, length, describe, head, cells, height = 120, marks = [], legend, tools, children }) {
  const [cursor, setCursor] = useState(null);
  const [table, setTable] = useState(false);
  const id = useId();
  const at = cursor === null ? null : Math.max(0, Math.min(length - 1, cursor));
  const point = (event) => {
    const box = event.currentTarget.getBoundingClientRect();
    setCursor(Math.round(((event.clientX - box.left) / box.width) * (length - 1)));
  };
  const keys = (event) => {
    const moves = { ArrowLeft: -1, ArrowRight: 1, PageUp: -10, PageDown: 10 };
    const here = at ?? length - 1;
    if (event.key in moves) setCursor(here + moves[event.key]);
    else if (event.key === "Home") setCursor(0);
    else if (event.key === "End") setCursor(length - 1);
    else if (event.key === "Escape") return setCursor(null);
    else return;
    event.preventDefault();
  };
  const told = (index) => `${clock(from + index * step)}: ${describe(index)}`;
  const last = Math.max(0, length - ROWS);
  return html`<figure class="chart" aria-labelledby=${id}>
    <figcaption id=${id}><b>${title}</b> <span>${summary}</span></figcaption>
    <div class="tools">${tools}<button type="button" aria-pressed=${table} onClick=${() => setTable(!table)} aria-label=${`${title} as a table`}>table</button></div>
    <div class="plot h${height}" tabindex="0" role="slider" aria-label=${`${title}, over time`} aria-valuemin="0" aria-valuemax=${length - 1}
      aria-valuenow=${at ?? length - 1} aria-valuetext=${length ? told(at ?? length - 1) : "nothing known yet"}
      onKeyDown=${keys} onPointerMove=${point} onPointerLeave=${() => setCursor(null)} onBlur=${() => setCursor(null)}>
      <svg viewBox="0 0 ${W} ${H}" preserveAspectRatio="none" aria-hidden="true">
        ${children}
        ${at !== null && html`<line class="cursor" x1=${x(at, length)} x2=${x(at, length)} y1="0" y2=${H} />`}
      </svg>
      ${marks.map((mark) => html`<span class="mark ${mark.kind ?? ""}" style=${{ top: `${mark.at * 100}%` }}>${mark.text}</span>`)}
    </div>
    <div class="axis" aria-hidden="true"><span>${ago(step * length)}</span><span>${at !== null ? told(at) : ""}</span><span>now</span></div>
    ${legend}
    ${table && html`<div class="scroll" tabindex="0" role="region" aria-label=${`${title}, last rows`}><table>
      <thead><tr><th scope="col">time</th>${head.map((name) => html`<th scope="col" class="number">${name}</th>`)}</tr></thead>
      <tbody>${Array.from({ length: length - last }, (_, index) => length - 1 - index).map((index) => html`
        <tr><th scope="row">${clock(from + index * step)}</th>${cells(index).map((text) => html`<td class="number">${text}</td>`)}</tr>`)}</tbody>
    </table></div>`}
  </figure>`;
}

/** Hatched where nothing is known, so that a gap is not taken for a zero. */
export function Unknown({ length, known }) {
  const gaps = [...stretches(length, (index) => !known(index))];
  return gaps.map(([from, to]) => html`<rect class="unknown" x=${x(Math.max(from - 1, 0), length)} y="0"
    width=${Math.max(x(Math.min(to + 1, length - 1), length) - x(Math.max(from - 1, 0), length), 0)} height=${H} />`);
}

/** Hatches that other charts refer to. An SVG of its own, in the page once. */
export const Patterns = () => html`<svg class="patterns" aria-hidden="true" width="0" height="0"><defs>
  <pattern id="hatch" width="6" height="6" patternUnits="userSpaceOnUse" patternTransform="rotate(45)"><rect class="thread" width="2" height="6" /></pattern>
  <pattern id="hatch-waking" width="5" height="5" patternUnits="userSpaceOnUse" patternTransform="rotate(45)">
    <rect class="thread waking" width="3" height="5" /></pattern>
</defs></svg>`;

/** Lines over time. `series`: name, values and the class of its colour. */
export function Lines({ title, from, step, series, format, height, tools, summary }) {
  const length = series[0].values.length;
  const top = roundTop(Math.max(0, ...series.flatMap((one) => one.values.filter((value) => value != null))));
  const describe = (index) => series.map((one) => `${one.name} ${format(one.values[index])}`).join(", ");
  return html`<${Plot} title=${title} summary=${summary ?? describe(length - 1)} from=${from} step=${step} length=${length} describe=${describe}
    head=${series.map((one) => one.name)} cells=${(index) => series.map((one) => format(one.values[index]))} height=${height} tools=${tools}
    marks=${[{ at: 0, text: format(top) }]}
    legend=${html`<ul class="legend">${series.map((one) => html`<li><span class="swatch ${one.kind}"></span>${one.name}</li>`)}</ul>`}>
    <${Unknown} length=${length} known=${(index) => series.some((one) => one.values[index] != null)} />
    <line class="grid" x1="0" x2=${W} y1=${H / 2} y2=${H / 2} />
    ${series.map((one) => html`<path class="line ${one.kind}" d=${linePath(one.values, top)} />`)}
  <//>`;
}

/** The last 60 seconds in a table's cell; still where the reader wants no motion. */
export function Spark({ values }) {
  if (!values || matchMedia("(prefers-reduced-motion: reduce)").matches) return html`<span class="spark"></span>`;
  return html`<svg class="spark" viewBox="0 0 ${W} ${H}" preserveAspectRatio="none" aria-hidden="true">
    <path class="line s0" d=${linePath(values, Math.max(...values, 1) * 1.05)} /></svg>`;
}
