// All that the page knows, in one place: what comes from the stream, who the reader is, and what the reader has chosen.

import { useEffect, useReducer } from "./vendor/hooks.js";
import { Feed } from "./feed.js";
import { ask, keepKey, look, named, readKey } from "./net.js";
import { NOTHING, apply } from "./picture.js";

export const store = {
  picture: NOTHING,
  status: { state: "connecting" },
  shared: false,
  access: { role: "none", open: false, known: false },
  key: readKey(),
  frozen: null,
  notice: null,
  sparks: new Map(),
};

const listeners = new Set();
let due = false;

/** However much comes at a time, it is drawn once. A tab that nobody sees draws nothing, but its figures are right. */
function changed() {
  if (due) return;
  due = true;
  queueMicrotask(() => {
    due = false;
    listeners.forEach((listener) => listener());
  });
}

export function useStore() {
  const [, again] = useReducer((turn) => turn + 1, 0);
  useEffect(() => (listeners.add(again), () => listeners.delete(again)), []);
  return store;
}

/** The picture that is shown: not the latest one while it is frozen. */
export const shown = () => store.frozen ?? store.picture;

export const now = () => Date.now() / 1000;

/** A moment of the daemon's clock, on which events and histories are. */
export const daemonNow = () => now() + (store.picture.time - store.picture.at);

export function freeze() {
  store.frozen = store.frozen ? null : store.picture;
  changed();
}

export function say(text, bad = false) {
  store.notice = text && { text, bad, at: now() };
  changed();
}

// ── the stream ─────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

let feed = null;
let port = null;

function take(message) {
  let hidden = false;
  if (message.picture) {
    const mine = store.picture;
    store.picture = message.picture.daemon ? { ...message.picture, lives: Math.max(mine.lives, message.picture.lives) } : mine;
    if (message.picture.daemon) void catchUp();
  } else if (message.frame) {
    hidden = document.hidden;
    const before = store.picture;
    store.picture = apply(before, message.frame, message.now);
    if (message.frame.kind === "tick") spark(before, store.picture);
    if (message.frame.kind === "snapshot") void catchUp();
  } else if (message.status) {
    const lost = store.status.state === "live" && message.status.state !== "live";
    store.status = message.status;
    if (message.status.state === "live" && (lost || !store.access.known)) void learnAccess();
    if (message.status.state === "refused") void learnAccess();
  } else if (message.ping) {
    port?.postMessage({ join: store.key });
    return;
  }
  if (!hidden) changed();
}

addEventListener("visibilitychange", () => document.hidden || changed(), true);

/** A picture has no events: ask for those that were missed. */
async function catchUp() {
  const { lives, events } = store.picture;
  try {
    const answer = await look(`events?after=${events.at(-1)?.seq ?? 0}&limit=500`);
    if (store.picture.lives === lives) store.picture = apply(store.picture, { kind: "events", data: answer }, now());
    changed();
  } catch {}
}

const SPARK = 60;

/** Requests of each of the last 60 seconds, of models that had any. */
function spark(before, after) {
  const length = Math.max(1, Math.min(SPARK, Math.round(after.time - before.time)));
  for (const [key, model] of after.models) {
    const old = before.models.get(key);
    const happened = old ? model.done + model.failed - old.done - old.failed : 0;
    let line = store.sparks.get(key);
    if (!line && !happened) continue;
    line = [...(line ?? new Array(SPARK).fill(null)), ...new Array(length - 1).fill(0), Math.max(happened, 0)].slice(-SPARK);
    if (line.some(Boolean)) store.sparks.set(key, line);
    else store.sparks.delete(key);
  }
}

export function connect() {
  feed?.stop();
  feed = null;
  if (port) {
    port.postMessage({ join: store.key });
    return;
  }
  if (typeof SharedWorker === "function") {
    try {
      const worker = new SharedWorker(new URL("worker.js", import.meta.url), { type: "module", name: "wakeful" });
      worker.onerror = () => alone();
      port = worker.port;
      port.onmessage = ({ data }) => take(data);
      port.postMessage({ join: store.key });
      addEventListener("pagehide", () => port?.postMessage({ leave: true }));
      addEventListener("pageshow", () => port?.postMessage({ join: store.key }));
      store.shared = true;
      return;
    } catch {}
  }
  alone();
}

/** Without a shared worker, as on some phones: a stream of our own, closed while nobody sees the page. */
function alone() {
  port = null;
  store.shared = false;
  const open = () => {
    feed?.stop();
    feed = null;
    if (document.hidden) take({ status: { state: "paused" } });
    else feed = new Feed(store.key, { frame: (frame) => take({ frame, now: now() }), status: (status) => take({ status }) });
  };
  document.onvisibilitychange = open;
  addEventListener("pagehide", () => feed?.stop());
  open();
}

// ── who the reader is ──────────────────────────────────────────────────────────────────────────────────────────────────────────────────────

export async function learnAccess() {
  try {
    const { role, open } = await look("access");
    store.access = { role, open, known: true };
    changed();
  } catch {}
}

export async function useKey(key) {
  keepKey(key);
  store.key = key;
  store.picture = { ...NOTHING };
  store.sparks.clear();
  await learnAccess();
  connect();
  return store.access.role;
}

export const mayChange = () => store.access.role === "admin";
export const mayRun = () => store.access.role === "admin" || store.access.role === "inference";

const DONE = { load: "awake", unload: "asleep", pin: "pinned", unpin: "not pinned any more" };

/** One of load, unload, pin, unpin. What goes wrong is told in the daemon's words. */
export async function act(verb, name) {
  try {
    say(`${name}: ${verb} …`);
    await ask("POST", `v1/models/${named(name)}/${verb}`);
    say(`${name} is ${DONE[verb]}`);
  } catch (error) {
    say(`${name}: ${error.message}`, true);
  }
}
