// The past, as the daemon's rings have it. What a daemon that was restarted has forgotten, the page still knows: it stays, with a gap.

import { useFetched } from "./dom.js";
import { look, named } from "./net.js";
import { store } from "./store.js";

export const SPANS = { "5m": { pace: 2, text: "5 min" }, "1h": { pace: 10, text: "1 h" }, "24h": { pace: 60, text: "24 h" } };

const kept = new Map();

const filled = (column, before, offset) => column.map((value, index) => value ?? before?.[index + offset] ?? null);

/** `found` with what `before` knew of steps of which `found` knows nothing. Pure. */
export function joined(before, found, again) {
  if (!before || before.step !== found.step) return found;
  const offset = Math.round((found.from - before.from) / found.step);
  if (offset < 0) return found;
  const columns = (now, old) => Object.fromEntries(Object.entries(now).map(([name, column]) => [name, filled(column, old?.[name], offset)]));
  const whole = { ...found, series: columns(found.series, before.series), lat: filled(found.lat, before.lat, offset) };
  if (found.memory) {
    const length = found.lat.length;
    const unknown = (names) => Object.fromEntries(names.map((name) => [name, new Array(length).fill(null)]));
    const lost = Object.keys(before.memory).filter((name) => again && !(name in found.memory));
    whole.memory = columns({ ...found.memory, ...unknown(lost) }, before.memory);
    if (found.others) whole.others = filled(found.others, before.others, offset);
  }
  const begin = found.from + found.step * Math.max(found.series.requests.findIndex((value) => value != null), 0);
  whole.states = again || before.carried ? statesJoined(before.states, found.states, begin) : found.states;
  whole.carried = again || (before.carried && begin > found.from + found.step);
  return whole;
}

/** What happened before `begin` is known to the page alone; then there is a time of which nobody knows. */
function statesJoined(before, found, begin) {
  if (Array.isArray(found)) return joinedChanges(before, found, begin);
  const names = new Set([...Object.keys(before), ...Object.keys(found)]);
  return Object.fromEntries([...names].map((name) => [name, joinedChanges(before[name] ?? [], found[name] ?? [], begin)]));
}

function joinedChanges(before, found, begin) {
  const old = before.filter((change) => change.t < begin - 0.5);
  if (old.length && old.at(-1).state !== "unknown") old.push({ t: begin - 0.5, state: "unknown", reason: null });
  return [...old, ...found.map((change) => ({ ...change, t: Math.max(change.t, begin) }))];
}

/** Of a model, or of the daemon (null). `turn`: fetched again when it changes. */
export function useHistory(name, span, turn) {
  const path = `${name === null ? "" : `models/${named(name)}/`}history?span=${span}`;
  const load = async (signal) => {
    const found = await look(path, { signal });
    const before = kept.get(path);
    const { lives } = store.picture;
    const whole = joined(before?.whole, found, before !== undefined && before.lives !== lives);
    if (kept.size > 40) kept.clear();
    kept.set(path, { whole, lives });
    return { path, whole };
  };
  const { value, error } = useFetched(load, [path, turn, store.picture.lives, store.key], SPANS[span].pace);
  return { history: value?.path === path ? value.whole : kept.get(path)?.whole ?? null, error };
}
