// What the daemon decided, newest on top, each with the figures behind it.

import { useState } from "./vendor/hooks.js";
import { ModelLink, Panel, html, route } from "./dom.js";
import { clock, valued } from "./format.js";
import { shown } from "./store.js";

const FEW = 12;
const MOST = 300;

export function Event({ event }) {
  const figures = Object.entries(event.figures ?? {});
  return html`<li data-seq=${event.seq} class="event ${event.kind}">
    <time datetime=${new Date(event.time * 1000).toISOString()} title=${clock(event.time, { day: true, millis: true })}>${clock(event.time)}</time>
    <span class="kind ${event.kind}">${event.kind}</span>
    <div class="what">${event.model && html`<${ModelLink} name=${event.model} /> `}<span>${event.text}</span>
      ${figures.length > 0 && html`<details><summary>${event.reason ? `${event.reason}, figures` : "figures"}</summary>
        <dl>${figures.map(([name, value]) => html`<div><dt>${name.replaceAll("_", " ")}</dt><dd>${valued(name, value)}</dd></div>`)}</dl>
        <p class="muted">number ${event.seq}${event.model && html`, <a href=${route(event.model)}>why ${event.model} is as it is</a>`}</p></details>`}
    </div>
  </li>`;
}

function Feed({ events, label }) {
  return html`<div role="log" aria-live="off" aria-label=${label}><ol class="events">
    ${events.map((event) => html`<${Event} key=${event.seq} event=${event} />`)}</ol></div>
    ${!events.length && html`<p class="muted">Nothing yet.</p>`}`;
}

export function EventsPanel({ page = false }) {
  const [kind, setKind] = useState("");
  const [model, setModel] = useState("");
  const { events } = shown();
  const kinds = [...new Set(events.map((event) => event.kind))].sort();
  const names = [...new Set(events.map((event) => event.model).filter(Boolean))].sort();
  const chosen = events.filter((event) => (!kind || event.kind === kind) && (!model || event.model === model)).slice(page ? -MOST : -FEW).reverse();
  const select = (label, value, set, options) => html`<label>${label} <select value=${value} onChange=${(event) => set(event.target.value)}>
    <option value="">all</option>${options.map((option) => html`<option value=${option}>${option}</option>`)}</select></label>`;
  const tools = html`${select("Kind", kind, setKind, kinds)}${select("Model", model, setModel, names)}${!page && html`<a href="#/events">all events</a>`}`;
  return html`<${Panel} title="Events" id="events" wide tools=${tools}><${Feed} events=${chosen} label="Events, newest first" /><//>`;
}

export const EventsOf = ({ events }) => html`<${Feed} events=${[...events].reverse()} label="Events of this model, newest first" />`;
