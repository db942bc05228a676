// Shared by all tabs of a browser: one stream for each key, however many look. Browsers open only six connections to a server, so that with a stream a
// tab the seventh would wait for ever.

import { Feed } from "./feed.js";
import { NOTHING, apply } from "./picture.js";

const PING = 10_000;
const PATIENCE = 45_000;

/** By key: the feed, the picture so far, and who looks. */
const shows = new Map();

function show(key) {
  if (!shows.has(key)) {
    const mine = { key, ports: new Map(), picture: NOTHING, status: { state: "connecting" } };
    shows.set(key, mine);
    mine.feed = new Feed(key, {
      frame: (frame) => {
        const now = Date.now() / 1000;
        mine.picture = apply(mine.picture, frame, now);
        tell(mine, { frame, now });
      },
      status: (status) => {
        mine.status = status;
        tell(mine, { status });
        if (status.state === "refused") shows.delete(key);
      },
    });
  }
  return shows.get(key);
}

const tell = (mine, message) => mine.ports.forEach((_, port) => port.postMessage(message));

function leave(port) {
  for (const [key, mine] of shows) {
    if (mine.ports.delete(port) && mine.ports.size === 0) {
      mine.feed.stop();
      shows.delete(key);
    }
  }
}

function join(port, key) {
  const mine = show(key);
  if (!mine.ports.has(port)) {
    leave(port);
    mine.ports.set(port, Date.now());
    port.postMessage({ picture: mine.picture });
    port.postMessage({ status: mine.status });
  }
  mine.ports.set(port, Date.now());
}

onconnect = ({ ports: [port] }) => {
  port.onmessage = ({ data }) => {
    if (data.join !== undefined) join(port, data.join);
    else if (data.leave) leave(port);
  };
};

/** A tab that was closed says nothing, so all are asked now and then. */
setInterval(() => {
  for (const mine of [...shows.values()]) {
    for (const [port, heard] of [...mine.ports]) {
      if (Date.now() - heard > PATIENCE) leave(port);
      else port.postMessage({ ping: true });
    }
  }
}, PING);
