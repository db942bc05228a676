// The daemon as it is now, put together from frames. Pure, and used by the page as well as by the worker, which hands it to tabs that come late.
// A model to which nothing happened stays the same object, so that its row need not be drawn again.

const MOST_EVENTS = 1000;
const AHEAD = ["sleeps_in", "retry_in"];

export const NOTHING = { daemon: null, models: new Map(), events: [], seq: 0, time: 0, at: 0, lives: 0, ticks: 0 };

/** What is told as seconds from now is kept as a moment of this machine's clock. */
function moments(model, now) {
  const shown = { ...model };
  for (const name of AHEAD) if (name in model) shown[name] = model[name] == null ? null : now + model[name];
  if ("last_used" in model) shown.last_used = model.last_used == null ? null : now - model.last_used;
  if (model.replicas) shown.replicas = model.replicas.map((one) => ({ ...one, born: now - one.age_seconds }));
  return shown;
}

function withEvents(picture, events) {
  const last = picture.events.at(-1)?.seq ?? 0;
  let fresh = events.filter((event) => event.seq > last);
  if (fresh.length < events.length) {
    const known = new Set(picture.events.map((event) => event.seq));
    fresh = events.filter((event) => !known.has(event.seq));
  }
  if (!fresh.length) return picture;
  const merged = [...picture.events, ...fresh];
  if (fresh[0].seq < last) merged.sort((one, other) => one.seq - other.seq);
  return { ...picture, events: merged.slice(-MOST_EVENTS) };
}

/** `now`: seconds since 1970 by the clock of this machine. */
export function apply(picture, { kind, data }, now) {
  if (kind === "snapshot") {
    const again = picture.daemon !== null && (data.seq < picture.seq || data.daemon.pid !== picture.daemon.pid);
    const daemon = { ...data.daemon, since: data.time - data.daemon.up_seconds };
    const models = new Map(data.models.map((model) => [model.key, moments(model, now)]));
    return {
      ...picture, daemon, models, seq: data.seq, time: data.time, at: now, ticks: picture.ticks + 1,
      events: again ? [] : picture.events, lives: picture.lives + (again ? 1 : 0),
    };
  }
  if (kind === "events") return withEvents(picture, data.events);
  if (kind === "event") {
    const added = withEvents(picture, [data]);
    return { ...added, seq: Math.max(picture.seq, data.seq) };
  }
  if (kind !== "tick" || !picture.daemon) return picture;
  const models = new Map(picture.models);
  for (const [key, changed] of Object.entries(data.models)) {
    if (changed === null) models.delete(key);
    else models.set(key, { ...models.get(key), ...moments(changed, now) });
  }
  const daemon = { ...picture.daemon, ...data.daemon, memory: { ...picture.daemon.memory, ...data.mem }, models: counted(models) };
  return { ...picture, daemon, models, seq: Math.max(picture.seq, data.seq), time: data.t, at: now, ticks: picture.ticks + 1 };
}

function counted(models) {
  const counts = { total: 0, awake: 0, asleep: 0, failed: 0 };
  for (const model of models.values()) {
    if (model.pipeline) continue;
    counts.total += 1;
    counts[model.state === "asleep" || model.state === "failed" ? model.state : "awake"] += 1;
  }
  return counts;
}
