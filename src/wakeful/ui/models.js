// The table of models. A row is drawn again only when its model has changed, so that two hundred cost little.

import { Component } from "./vendor/preact.js";
import { useRef, useState } from "./vendor/hooks.js";
import { Spark } from "./charts.js";
import { Dialog, ModelLink, Panel, SIGNS, State, html } from "./dom.js";
import { bytes, count, plural, rate, seconds, until } from "./format.js";
import { held } from "./memory.js";
import { act, mayChange, now, shown, store } from "./store.js";

/** In order of their index; a sleeping model has one empty sign. */
export function Dots({ model, open }) {
  const signs = model.replicas.length ? model.replicas.map((one) => one.state) : [model.state === "failed" ? "failed" : "asleep"];
  const words = model.replicas.length ? `${plural(model.replicas.length, "replica")} of ${model.key}: ${signs.join(", ")}` : `no replica of ${model.key}`;
  const dots = html`<span aria-hidden="true">${signs.slice(0, 12).map((state) => html`<span class="dot ${state}">${SIGNS[state]}</span>`)}${
    signs.length > 12 ? ` +${signs.length - 12}` : ""}</span>`;
  if (!model.replicas.length || !open) return html`<span class="dots" role="img" aria-label=${words}>${dots}</span>`;
  return html`<button type="button" class="dots" aria-label=${words} title=${words} onClick=${open}>${dots}</button>`;
}

export function ReplicaTable({ model }) {
  return html`<div class="scroll" tabindex="0" role="region" aria-label=${`Replicas of ${model.key}`}><table>
    <thead><tr>${["replica", "state", "process", "age", "private", "made by"].map((name) => html`<th scope="col">${name}</th>`)}</tr></thead>
    <tbody>${model.replicas.map((one) => html`<tr key=${one.index}><th scope="row">${one.index}</th><td><${State} state=${one.state} /></td>
      <td>${one.pid ?? "–"}</td><td>${seconds(Math.max(now() - one.born, 0))}</td><td>${bytes(one.private_bytes)}</td>
      <td>${one.copied ? "copy of a sibling" : "load"}</td></tr>`)}</tbody>
  </table></div>`;
}

/** What is asked before something is ended. */
export function Confirm({ verb, model, close }) {
  const yes = () => {
    close();
    void act(verb, model.name);
  };
  const work = model.queue + model.running;
  return html`<${Dialog} title=${`Unload ${model.key}?`} close=${close}>
    <p>${work ? `${plural(work, "request")} in hand will be finished first.` : "Nothing is in hand."} Its memory is given back; the next request wakes it again${
      model.wakes_in ? `, in about ${seconds(model.wakes_in)}` : ""}.</p>
    ${model.pinned && html`<p>It is pinned: unloading ends that.</p>`}
    <div class="actions"><button type="button" onClick=${close}>Cancel</button>
      <button type="button" class="strong" autofocus onClick=${yes}>Unload</button></div>
  <//>`;
}

export function Actions({ model, ask }) {
  if (!mayChange()) return null;
  const asleep = !model.replicas.length && !(model.pipeline && model.state !== "asleep");
  const button = (verb, label, run) => html`<button type="button" onClick=${run} aria-label=${`${label} ${model.key}`}>${label}</button>`;
  return html`<div class="actions">
    ${asleep ? button("load", "Load", () => act("load", model.name)) : button("unload", "Unload", () => ask(model))}
    ${model.pinned ? button("unpin", "Unpin", () => act("unpin", model.name)) : button("pin", "Pin", () => act("pin", model.name))}
  </div>`;
}

function next(model) {
  if (model.pinned) return "never: pinned";
  if (model.state === "failed") return model.retry_in > now() ? `retry in ${until(model.retry_in - now())}` : "tried when asked";
  if (!model.replicas.length) return model.wakes_in ? `wakes in ${seconds(model.wakes_in)}` : "–";
  return model.sleeps_in == null ? "–" : `sleeps in ${until(Math.max(model.sleeps_in - now(), 0))}`;
}

class Row extends Component {
  shouldComponentUpdate(props) {
    const before = this.props;
    return props.model !== before.model || props.next !== before.next || props.spark !== before.spark || props.may !== before.may;
  }

  render({ model, next: then, spark, may, ask, open }) {
    return html`<tr data-model=${model.key} data-state=${model.state}>
      <th scope="row"><${ModelLink} name=${model.key} />${model.pinned && html` <span class="tag">pinned</span>`}${model.pipeline && html` <span class="tag">pipeline</span>`}</th>
      <td><${State} state=${model.state} /></td>
      <td><${Dots} model=${model} open=${() => open(model)} /></td>
      <td class="number">${count(model.queue)}</td>
      <td class="number">${rate(model.requests_per_second)}${model.failures_per_second > 0 && html` <span class="bad">${rate(model.failures_per_second)} failed</span>`}</td>
      <td><${Spark} values=${spark} /></td>
      <td class="number">${seconds(model.p50)}</td><td class="number">${seconds(model.p99)}</td>
      <td class="number">${model.replicas.length ? html`<span title=${model.measured ? "measured" : "estimated"}>${model.measured ? "" : "~"}${bytes(held(model))}</span>` : "–"}</td>
      <td>${then}</td>
      <td class="reason" title=${model.reason}>${model.reason}</td>
      ${may && html`<td><${Actions} model=${model} ask=${ask} /></td>`}
    </tr>`;
  }
}

const COLUMNS = [
  ["name", "Model", (model) => model.key], ["state", "State", (model) => "busy waking ready draining failed asleep".split(" ").indexOf(model.state)],
  ["replicas", "Replicas", (model) => -model.replicas.length], ["queue", "Queue", (model) => -model.queue, "number"],
  ["rate", "Req/s", (model) => -model.requests_per_second, "number"], [null, "Last minute"],
  ["p50", "p50", (model) => -(model.p50 ?? -1), "number"], ["p99", "p99", (model) => -(model.p99 ?? -1), "number"],
  ["memory", "Memory", (model) => -held(model), "number"], ["next", "Then", (model) => model.sleeps_in ?? Infinity], [null, "Why"],
];

/** Pinned ones first, then as the reader has sorted; rows do not jump while that is by name. */
export function ordered(models, by) {
  const value = COLUMNS.find(([key]) => key === by)[2];
  const compare = (one, other) => (one < other ? -1 : one > other ? 1 : 0);
  return [...models].sort((one, other) => other.pinned - one.pinned || compare(value(one), value(other)) || compare(one.key, other.key));
}

export function ModelsPanel() {
  const [text, setText] = useState("");
  const [by, setBy] = useState("name");
  const [helpers, setHelpers] = useState(false);
  const [asked, setAsked] = useState(null);
  const [opened, setOpened] = useState(null);
  const handlers = useRef({ ask: setAsked, open: (model) => setOpened(model.key) }).current;
  const all = [...shown().models.values()];
  const hidden = all.filter((model) => model.helps).length;
  const words = text.toLowerCase().split(/\s+/).filter(Boolean);
  const matches = (model) => words.every((word) => `${model.key} ${model.state} ${model.backend} ${model.description ?? ""}`.toLowerCase().includes(word));
  const rows = ordered(all.filter((model) => (helpers || !model.helps) && matches(model)), by);
  const open = opened && shown().models.get(opened);
  const tools = html`
    ${hidden > 0 && html`<label><input type="checkbox" checked=${helpers} onChange=${(event) => setHelpers(event.target.checked)} /> with ${plural(hidden, "helper")}</label>`}
    <label class="search">Search <input id="search" type="search" value=${text} placeholder="name, state, backend" onInput=${(event) => setText(event.target.value)} /></label>`;
  return html`<${Panel} title=${`Models (${rows.length})`} id="models" wide tools=${tools}>
    <div class="scroll" tabindex="0" role="region" aria-labelledby="models"><table class="models">
      <thead><tr>${COLUMNS.map(([key, label, , kind]) => html`<th scope="col" class=${kind} aria-sort=${key && key === by ? "ascending" : undefined}>${
        key ? html`<button type="button" class="sort" onClick=${() => setBy(key)}>${label}<span aria-hidden="true">${key === by ? " ▾" : ""}</span></button>` : label}</th>`)}
        ${mayChange() && html`<th scope="col"><span class="hidden">Actions</span></th>`}</tr></thead>
      <tbody>${rows.map((model) => html`<${Row} key=${model.key} model=${model} next=${next(model)} spark=${store.sparks.get(model.key)}
        may=${mayChange()} ask=${handlers.ask} open=${handlers.open} />`)}</tbody>
    </table></div>
    ${!rows.length && html`<p class="muted">${all.length ? "No model matches." : html`No models yet. Start the daemon with <code>--models-dir DIR</code>, and every model in DIR is here; for files that come later, <code>POST /v1/models/refresh</code>.`}</p>`}
    ${asked && html`<${Confirm} verb="unload" model=${shown().models.get(asked.key) ?? asked} close=${() => setAsked(null)} />`}
    ${open && html`<${Dialog} title=${`Replicas of ${open.key}`} close=${() => setOpened(null)}><${ReplicaTable} model=${open} />
      <p class="muted">${bytes(open.shared_bytes)} more are shared by all of them.</p>
      <div class="actions"><button type="button" onClick=${() => setOpened(null)}>Close</button></div><//>`}
  <//>`;
}
