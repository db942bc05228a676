// Small things that all pages are made of. Names, texts and payloads only ever become text nodes and attributes' values: nothing here makes markup of them.

import { h } from "./vendor/preact.js";
import { useEffect, useRef, useState } from "./vendor/hooks.js";
import htm from "./vendor/htm.js";
import { named } from "./net.js";

export const html = htm.bind(h);

/** State of a replica or a model: shape, word and colour together, never colour alone. */
export const SIGNS = { asleep: "○", waiting: "◌", waking: "◔", ready: "●", busy: "◉", draining: "◍", failed: "✕", dead: "✕" };

export const State = ({ state }) => html`<span class="state ${state}"><span aria-hidden="true">${SIGNS[state] ?? "?"}</span> ${state}</span>`;

export const route = (name) => `#/m/${named(name)}`;

export const ModelLink = ({ name }) => html`<a href=${route(name)}>${name}</a>`;

/** A panel with a heading. */
export const Panel = ({ title, id, tools, wide, children }) => html`
  <section class="panel ${wide ? "wide" : ""}" aria-labelledby=${id}>
    <div class="bar"><h2 id=${id}>${title}</h2>${tools && html`<div class="tools">${tools}</div>`}</div>
    ${children}
  </section>`;

/** Exclusive choices, as buttons. */
export const Choice = ({ label, options, value, choose }) => html`
  <div class="choice" role="group" aria-label=${label}>
    ${options.map(([key, text]) => html`<button type="button" aria-pressed=${key === value} onClick=${() => choose(key)}>${text ?? key}</button>`)}
  </div>`;

/** A window above the page. The browser keeps the focus in it, and Escape closes it. */
export function Dialog({ title, close, children }) {
  const dialog = useRef(null);
  useEffect(() => {
    const element = dialog.current;
    const before = document.activeElement;
    element.showModal();
    return () => {
      element.close();
      if (before?.isConnected) before.focus();
    };
  }, []);
  const outside = (event) => event.target === dialog.current && close();
  return html`<dialog ref=${dialog} aria-labelledby="dialog-title" onClose=${close} onClick=${outside}>
    <div class="inside"><h2 id="dialog-title">${title}</h2>${children}</div>
  </dialog>`;
}

/** A text to copy, with its button. */
export function Copy({ label, text }) {
  const [done, setDone] = useState("");
  const field = useRef(null);
  const copy = async () => {
    try {
      await navigator.clipboard.writeText(text);
      setDone("copied");
    } catch {  // without HTTPS, browsers allow that on this machine alone
      getSelection().selectAllChildren(field.current);
      setDone("selected: copy it with the keyboard");
    }
  };
  useEffect(() => setDone(""), [text]);
  return html`<div class="copy">
    <div class="bar"><h3>${label}</h3><span class="muted" role="status">${done}</span>
      <button type="button" onClick=${copy} aria-label=${`Copy ${label}`}>Copy</button></div>
    <pre ref=${field} tabindex="0" aria-label=${label}>${text}</pre>
  </div>`;
}

/** Fetched now, every `pace` seconds and soon after `turn` has changed, at most once a second and while the page is seen: value, or the error. */
export function useFetched(load, dependencies, pace, turn = 0) {
  const [found, setFound] = useState({ value: null, error: null });
  const soon = useRef(null);
  useEffect(() => {
    const abort = new AbortController();
    let timer = 0;
    let began = 0;
    let busy = false;
    let wanted = false;
    const plan = () => {
      clearTimeout(timer);
      if (abort.signal.aborted || busy || document.hidden) return;
      const rest = wanted ? Math.max(0, began + 1000 - Date.now()) : pace * 1000;
      if (wanted || pace) timer = setTimeout(fetchOnce, rest);
    };
    const fetchOnce = async () => {
      [busy, wanted, began] = [true, false, Date.now()];
      const next = await load(abort.signal).then((value) => () => ({ value, error: null }), (error) => (before) => ({ value: before.value, error }));
      busy = false;
      if (!abort.signal.aborted) setFound(next);
      plan();
    };
    soon.current = () => {
      wanted = true;
      plan();
    };
    const seen = () => soon.current();
    document.addEventListener("visibilitychange", seen);
    soon.current();
    return () => {
      abort.abort();
      clearTimeout(timer);
      document.removeEventListener("visibilitychange", seen);
    };
  }, dependencies);
  useEffect(() => soon.current(), [turn]);
  return found;
}
