// Figures as people read them; the same words as the command line's.

const SIZES = ["KiB", "MiB", "GiB", "TiB", "PiB"];
const figure = (value) => (Math.abs(value) < 9.95 ? value.toFixed(1) : value.toFixed(0));

/** "512 B", "61 MiB", "9.0 GiB"; "–" where nothing is known. */
export function bytes(size) {
  if (size == null) return "–";
  if (Math.abs(size) < 1024) return `${size.toFixed(0)} B`;
  let unit = -1;
  do {
    size /= 1024;
    unit += 1;
  } while (Math.abs(size) >= 1023.5 && unit < SIZES.length - 1);
  return `${figure(size)} ${SIZES[unit]}`;
}

/** "0.4 ms", "45 ms", "4.2 s", "4m 02s", "1h 03m". */
export function seconds(value) {
  if (value == null) return "–";
  const size = Math.abs(value);
  if (size < 0.9995) return size === 0 ? "0 s" : size >= 0.001 ? `${figure(1000 * value)} ms` : `${(1e6 * value).toFixed(0)} µs`;
  if (size < 59.5) return `${figure(value)} s`;
  const whole = Math.round(size);
  if (whole < 3600) return `${Math.floor(whole / 60)}m ${String(whole % 60).padStart(2, "0")}s`;
  const minutes = Math.round(size / 60);
  return minutes < 2880 ? `${Math.floor(minutes / 60)}h ${String(minutes % 60).padStart(2, "0")}m` : `${Math.round(minutes / 1440)} days`;
}

/** Until something happens: whole seconds, so that a countdown is calm. */
export const until = (value) => (value == null ? "–" : value < 10 ? `${Math.ceil(value)} s` : seconds(Math.ceil(value)));

/** A second or a count: "812", "3.1", "0". */
export const rate = (value) => (value == null ? "–" : value === 0 ? "0" : value < 0.05 ? "<0.1" : figure(value));

export const count = (value) => (value == null ? "–" : value.toLocaleString("en").replaceAll(",", " "));

export const plural = (number, thing) => `${count(number)} ${thing}${number === 1 ? "" : "s"}`;

const pad = (value, width = 2) => String(value).padStart(width, "0");

/** Of seconds since 1970, in the reader's own zone: "14:02:11". */
export function clock(time, { millis = false, day = false } = {}) {
  const date = new Date(time * 1000);
  const text = `${pad(date.getHours())}:${pad(date.getMinutes())}:${pad(date.getSeconds())}${millis ? `.${pad(date.getMilliseconds(), 3)}` : ""}`;
  return day ? `${date.getFullYear()}-${pad(date.getMonth() + 1)}-${pad(date.getDate())} ${text}` : text;
}

/** A figure of an event: names say what is measured. */
export function valued(name, value) {
  if (value == null) return "–";
  if (typeof value === "number" && /(^|_)(bytes|freed|private|shared|resident|budget|free|needed|size|limit|used|margin|held)$/.test(name) && value > 4096) {
    return bytes(value);
  }
  if (typeof value === "number" && /seconds$|_for$|^idle$|^took$/.test(name)) return seconds(value);
  if (typeof value === "number") return Number.isInteger(value) ? count(value) : String(Number(value.toPrecision(4)));
  return String(value);
}
