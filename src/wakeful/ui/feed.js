// One stream of frames from the daemon, kept alive: read with fetch(), because EventSource can send no key. Where the daemon has no place for one
// more stream, the whole picture is asked for every few seconds instead.

import { ROOT, headersOf } from "./net.js";

const SILENCE = 25_000;
const WAITS = [1, 2, 3, 5];
const POLL_SECONDS = 5;
const POLLS = 6;

const sleep = (ms, signal) => new Promise((done) => {
  const wake = () => {
    clearTimeout(timer);
    signal.removeEventListener("abort", wake);
    done();
  };
  const timer = setTimeout(wake, ms);
  signal.addEventListener("abort", wake);
});

/** Calls `frame({kind, data})` and `status({state, seconds, why})`; states: connecting, live, polling, retrying, refused. */
export class Feed {
  constructor(key, { frame, status }) {
    this.key = key;
    this.frame = frame;
    this.status = status;
    this.stopped = new AbortController();
    this.run();
  }

  stop() {
    this.stopped.abort();
  }

  async run() {
    const { signal } = this.stopped;
    let failures = 0;
    this.status({ state: "connecting" });
    while (!signal.aborted) {
      try {
        const answer = await this.fetch("wakeful/v1/stream", "text/event-stream");
        if (answer.status === 401 || answer.status === 403) return this.status({ state: "refused", why: await reason(answer) });
        if (answer.status === 503) {
          await this.poll();
          failures = 0;
          continue;
        }
        if (!answer.ok) throw new Error(`the answer was ${answer.status}`);
        failures = 0;
        await this.read(answer.body);
      } catch (error) {
        if (signal.aborted) return;
      }
      const wait = WAITS[Math.min(failures++, WAITS.length - 1)];
      for (let left = wait; left > 0 && !signal.aborted; left -= 1) {
        this.status({ state: "retrying", seconds: left });
        await sleep(1000, signal);
      }
    }
  }

  fetch(path, accept, signal = this.stopped.signal) {
    return fetch(new URL(path, ROOT), { headers: headersOf(this.key, { accept }), signal, cache: "no-store" });
  }

  /** Until the stream ends, or says nothing for so long that the line must be dead. */
  async read(body) {
    const reader = body.pipeThrough(new TextDecoderStream()).getReader();
    const end = () => reader.cancel().catch(() => {});
    this.stopped.signal.addEventListener("abort", end, { once: true });
    let timer = setTimeout(end, SILENCE);
    let text = "";
    try {
      for (;;) {
        const { value, done } = await reader.read();
        if (done || this.stopped.signal.aborted) return;
        clearTimeout(timer);
        timer = setTimeout(end, SILENCE);
        text += value;
        const parts = text.split("\n\n");
        text = parts.pop();
        for (const part of parts) {
          try {
            this.take(part);
          } catch (error) {
            console.error(error);  // a fault of ours, which another connection would not mend
          }
        }
      }
    } finally {
      clearTimeout(timer);
      this.stopped.signal.removeEventListener("abort", end);
      end();
    }
  }

  take(part) {
    let kind = "";
    let data = "";
    for (const line of part.split("\n")) {
      if (line.startsWith("event: ")) kind = line.slice(7);
      else if (line.startsWith("data: ")) data += line.slice(6);
    }
    if (!kind || !data) return;
    this.frame({ kind, data: JSON.parse(data) });
    if (kind === "snapshot") this.status({ state: "live" });
  }

  async poll() {
    for (let round = 0; round < POLLS && !this.stopped.signal.aborted; round += 1) {
      const answer = await this.fetch("wakeful/v1/state", "application/json");
      if (!answer.ok) throw new Error(`the answer was ${answer.status}`);
      this.frame({ kind: "snapshot", data: await answer.json() });
      this.status({ state: "polling", seconds: POLL_SECONDS });
      await sleep(POLL_SECONDS * 1000, this.stopped.signal);
    }
  }
}

async function reason(answer) {
  try {
    return (await answer.json()).error;
  } catch {
    return `the answer was ${answer.status}`;
  }
}
