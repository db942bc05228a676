// The past, as the daemon's rings have it. What a daemon that was restarted has forgotten, the page still knows: it stays, with a gap.

import { useFetched } from "./dom.js";
import { look, named } from "./net.js";
import { store } from "./store.js";

export const SPANS = { "5m": { pace: 4, text: "5 min" }, "1h": { pace: 10, text: "1 h" }, "24h": { pace: 60, text: "24 h" } };

const kept = new Map();

const filled = (column, before, offset) => column.map((value, index) => value ?? before?.[index + offset] ?? null);

/** `found` with what `before` knew of steps of which `found` knows nothing. `again`: it is of another daemon. Pure. */
export function joined(before, found, again = false) {
  if (!before || before.step !== found.step) return found;
  const offset = Math.round((found.from - before.from) / found.step);
  const columns = (now, old) => Object.fromEntries(Object.entries(now).map(([name, column]) => [name, filled(column, old?.[name], offset)]));
  const whole = { ...found, series: columns(found.series, before.series), lat: filled(found.lat, before.lat, offset) };
  const forgot = found.series.requests.some((value, index) => value === null && whole.series.requests[index] !== null);
  if (!again && !forgot && !(before.cut > found.from)) return found;
  if (found.memory) {
    const nothing = new Array(found.lat.length).fill(null);
    const all = { ...Object.fromEntries(Object.keys(before.memory).map((name) => [name, nothing])), ...found.memory };
    whole.memory = columns(all, before.memory);
    if (found.others) whole.others = filled(found.others, before.others, offset);
  }
  const newest = before.from + before.step * (before.lat.length - 1);
  whole.cut = before.cut ?? Object.values(before.states).flat().reduce((last, change) => Math.max(last, change.t), newest);
  whole.states = statesJoined(before.states, found.states, whole.cut);
  return whole;
}

/** Of each model, what was known before the cut, and what has happened since; in between there is a time of which nobody knows. */
function statesJoined(before, found, cut) {
  const both = (old, fresh) => {
    const kept = old.filter((change) => change.t <= cut && change.state !== "unknown");
    return [...kept, ...(kept.length ? [{ t: cut, state: "unknown", reason: null }] : []), ...fresh];
  };
  if (Array.isArray(found)) return both(before, found);
  const names = new Set([...Object.keys(before), ...Object.keys(found)]);
  return Object.fromEntries([...names].map((name) => [name, both(before[name] ?? [], found[name] ?? [])]));
}

/** Of a model, or of the daemon (null). `turn`: fetched again soon after it has changed. */
export function useHistory(name, span, turn) {
  const path = `${name === null ? "" : `models/${named(name)}/`}history?span=${span}`;
  const load = async (signal) => {
    if (store.status.state === "retrying") throw new Error("the daemon does not answer");  // nor is it known whether it is another one
    const { lives } = store.picture;
    const found = await look(path, { signal });
    const before = kept.get(path);
    const whole = joined(before?.whole, found, before !== undefined && before.lives !== lives);
    if (kept.size > 40) kept.clear();
    kept.set(path, { whole, lives });
    return { path, whole };
  };
  const { value, error } = useFetched(load, [path, store.picture.lives, store.key], SPANS[span].pace, `${turn} ${store.status.state === "live"}`);
  return { history: value?.path === path ? value.whole : kept.get(path)?.whole ?? null, error };
}
