// The page's frame: header, routes after the #, keyboard, dialogs for key and help.

import { render } from "./vendor/preact.js";
import { useEffect, useState } from "./vendor/hooks.js";
import { Patterns } from "./charts.js";
import { Dialog, html } from "./dom.js";
import { EventsPanel } from "./events.js";
import { rate, seconds } from "./format.js";
import { MemoryPanel, inWords } from "./memory.js";
import { ModelPage } from "./model.js";
import { ModelsPanel } from "./models.js";
import { connect, freeze, learnAccess, say, shown, store, useKey, useStore } from "./store.js";
import { SystemPage } from "./system.js";
import { TimelinePanel } from "./timeline.js";

const PAGES = [["#/", "Overview"], ["#/events", "Events"], ["#/system", "System"]];

function parsed() {
  const hash = location.hash || "#/";
  if (hash.startsWith("#/m/")) {
    try {
      return { page: "model", name: hash.slice(4).split("/").map(decodeURIComponent).join("/") };
    } catch {}
  }
  return { page: { "#/": "overview", "#/events": "events", "#/system": "system" }[hash] ?? "lost" };
}

// ── header ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

function streamWords({ state, seconds: left }) {
  if (store.frozen) return ["frozen", "Frozen: press p to go on"];
  switch (state) {
    case "live": return ["live", "live"];
    case "retrying": return ["lost", `reconnecting ${left} s`];
    case "polling": return ["live", `every ${left} s`];
    case "paused": return ["lost", "paused"];
    case "refused": return ["lost", "needs a key"];
    default: return ["lost", "connecting"];
  }
}

const THEMES = { system: "dark", dark: "light", light: "system" };

function useTheme() {
  const [theme, setTheme] = useState(document.documentElement.dataset.theme ?? "system");
  const turn = () => {
    const chosen = THEMES[theme];
    try {
      if (chosen === "system") localStorage.removeItem("wakeful.theme");
      else localStorage.setItem("wakeful.theme", chosen);
    } catch {}
    if (chosen === "system") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = chosen;
    setTheme(chosen);
  };
  return [theme, turn];
}

function Header({ here, openKey, openHelp }) {
  const [theme, turn] = useTheme();
  const { daemon } = shown();
  const [kind, words] = streamWords(store.status);
  const counts = daemon?.models;
  return html`<header>
    <div class="brand"><a href="#/">Wakeful</a> ${daemon && html`<span class="muted">${daemon.version}</span>`}</div>
    <nav aria-label="Pages">${PAGES.map(([href, text]) => html`<a href=${href} aria-current=${href === here ? "page" : undefined}>${text}</a>`)}</nav>
    <p class="facts">
      ${daemon && html`<span class="state ${daemon.condition === "ready" ? "ready" : "waking"}">${daemon.condition}</span>
        <span>${counts.awake} awake, ${counts.asleep} asleep${counts.failed ? `, ${counts.failed} failed` : ""}</span>
        <span>${rate(daemon.requests_per_second)} req/s</span>
        ${daemon.p99 != null && html`<span>p99 ${seconds(daemon.p99)}</span>`}
        <span>memory ${inWords(daemon.memory)}</span>`}
    </p>
    <div class="controls">
      <span class="stream ${kind}" role="status" data-test="stream">${words}</span>
      ${store.access.known && !store.access.open && html`<button type="button" onClick=${openKey}>Key: ${store.access.role.replace("_", " ")}</button>`}
      <button type="button" onClick=${turn} aria-label=${`Colours: ${theme}. Change to ${THEMES[theme]}`}>${{ system: "◐", dark: "☾", light: "☀" }[theme]}</button>
      <button type="button" onClick=${openHelp} aria-label="Keyboard and help">?</button>
    </div>
  </header>`;
}

// ── dialogs ────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

function KeyDialog({ close }) {
  const [text, setText] = useState("");
  const [wrong, setWrong] = useState("");
  const take = async (event) => {
    event.preventDefault();
    const role = await useKey(text.trim());
    if (role === "none" && text.trim()) setWrong("The daemon does not know this key.");
    else close();
  };
  return html`<${Dialog} title="Key" close=${close}>
    <form onSubmit=${take}>
      <p>What you may see and do here depends on your key. It is kept by this tab until it is closed, and sent to this daemon alone.</p>
      <label>Key or token <input type="password" autocomplete="off" value=${text} onInput=${(event) => setText(event.target.value)} autofocus /></label>
      <p class="bad" role="alert">${wrong}</p>
      <div class="actions">${store.key && html`<button type="button" onClick=${() => useKey("").then(close)}>Forget the key</button>`}
        <button type="button" onClick=${close}>Cancel</button><button type="submit" class="strong">Use it</button></div>
    </form>
  <//>`;
}

const KEYS = [["/", "search models"], ["g o", "overview"], ["g e", "events"], ["g s", "system"], ["p", "freeze what is shown, and go on"], ["← →", "move a chart's cursor"],
  ["Esc", "close, or leave a field"], ["?", "this help"]];

const HelpDialog = ({ close }) => html`<${Dialog} title="Keyboard" close=${close}>
  <dl class="keys">${KEYS.map(([key, text]) => html`<div><dt><kbd>${key}</kbd></dt><dd>${text}</dd></div>`)}</dl>
  <p>Looking never wakes a model, and never keeps one awake.</p>
  <div class="actions"><button type="button" onClick=${close}>Close</button></div>
<//>`;

// ── keyboard ───────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

function useKeyboard(openHelp) {
  useEffect(() => {
    let before = "";
    const press = (event) => {
      const field = event.target.closest?.("input, select, textarea, dialog");
      if (event.key === "Escape" && field?.tagName === "INPUT") field.blur();
      if (field || event.ctrlKey || event.metaKey || event.altKey) return;
      const both = before === "g" ? `g${event.key}` : event.key;
      before = event.key;
      const places = { go: "#/", ge: "#/events", gs: "#/system" };
      if (both in places) location.hash = places[both];
      else if (both === "?") openHelp();
      else if (both === "p") freeze();
      else if (both === "/") {
        event.preventDefault();
        const search = document.getElementById("search");
        if (search) return search.focus();
        location.hash = "#/";
        addEventListener("hashchange", () => setTimeout(() => document.getElementById("search")?.focus()), { once: true });  // then it is drawn
      }
    };
    addEventListener("keydown", press);
    return () => removeEventListener("keydown", press);
  }, []);
}

// ── pages ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

function Problems() {
  const { problems } = shown().daemon;
  if (!problems.length) return null;
  return html`<section class="panel wide problems" aria-label="Problems">${problems.map((one) => html`
    <p><b>${one.text}</b>${one.hint && html` <span class="muted">${one.hint}</span>`}</p>`)}</section>`;
}

const Overview = () => html`<h1 class="hidden">Overview</h1><${Problems} />
  <div class="pair"><${MemoryPanel} /><${TimelinePanel} /></div><${ModelsPanel} /><${EventsPanel} />`;

function Page({ route }) {
  if (!shown().daemon) {
    if (store.status.state === "refused") return html`<p class="blank">This daemon shows itself to those who have a key: “Key”, at the top, takes it. (${store.status.why})</p>`;
    return html`<p class="blank">${store.status.state === "retrying" ? "The daemon does not answer. This page goes on as soon as it does." : "Connecting …"}</p>`;
  }
  switch (route.page) {
    case "overview": return html`<${Overview} />`;
    case "model": return html`<${ModelPage} key=${route.name} name=${route.name} />`;
    case "events": return html`<h1 class="hidden">Events</h1><${EventsPanel} page />`;
    case "system": return html`<${SystemPage} />`;
    default: return html`<p class="blank">There is nothing here. <a href="#/">To the overview</a></p>`;
  }
}

function Notice() {
  const { notice } = store;
  useEffect(() => {
    if (!notice || notice.bad) return undefined;
    const timer = setTimeout(() => store.notice === notice && say(null), 6000);
    return () => clearTimeout(timer);
  }, [notice]);
  return html`<div class="notice ${notice?.bad ? "bad" : ""} ${notice ? "" : "none"}" role="status">${notice && html`<span>${notice.text}</span>
    <button type="button" onClick=${() => say(null)} aria-label="Dismiss">×</button>`}</div>`;
}

function App() {
  useStore();
  const [route, setRoute] = useState(parsed);
  const [dialog, setDialog] = useState(null);
  const close = () => setDialog(null);
  useEffect(() => {
    const move = () => {
      setRoute(parsed());
      scrollTo(0, 0);
    };
    addEventListener("hashchange", move);
    return () => removeEventListener("hashchange", move);
  }, []);
  useKeyboard(() => setDialog("help"));
  const refused = store.status.state === "refused";
  useEffect(() => refused && setDialog("key"), [refused]);
  const title = { overview: "Wakeful", model: `${route.name} · Wakeful`, events: "Events · Wakeful", system: "System · Wakeful" }[route.page];
  useEffect(() => void (document.title = title ?? "Wakeful"), [title]);
  return html`<a class="skip" href="#main" onClick=${(event) => (event.preventDefault(), document.getElementById("main").focus())}>Skip to content</a>
    <${Header} here=${location.hash || "#/"} openKey=${() => setDialog("key")} openHelp=${() => setDialog("help")} />
    <main id="main" tabindex="-1" class=${store.status.state === "live" || store.status.state === "polling" ? "" : "old"}><${Page} route=${route} /></main>
    <${Notice} /><${Patterns} />
    ${dialog === "key" && html`<${KeyDialog} close=${close} />`}${dialog === "help" && html`<${HelpDialog} close=${close} />`}`;
}

const root = document.getElementById("app");
root.textContent = "";
render(html`<${App} />`, root);
void learnAccess();
connect();
