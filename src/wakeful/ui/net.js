// Asking the daemon. Addresses are relative to this file, so that the page works below any prefix of a proxy.

export const ROOT = new URL("../../", import.meta.url);

const KEY = "wakeful.key";

/** The key lives as long as its tab, and nowhere else. */
export const readKey = () => {
  try {
    return sessionStorage.getItem(KEY) || "";
  } catch {
    return "";
  }
};

export const keepKey = (key) => {
  try {
    if (key) sessionStorage.setItem(KEY, key);
    else sessionStorage.removeItem(KEY);
  } catch {}
};

export class Refusal extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export const headersOf = (key, more = {}) => (key ? { ...more, authorization: `Bearer ${key}` } : more);

/** Parsed JSON of an answer. Throws a Refusal with the daemon's own words, or what fetch throws where nobody answers. */
export async function ask(method, path, { key = readKey(), body, signal } = {}) {
  const headers = headersOf(key, method === "POST" ? { "content-type": "application/json" } : {});
  const init = { method, headers, signal, cache: "no-store", body: method === "POST" ? JSON.stringify(body ?? {}) : undefined };
  const answer = await fetch(new URL(path, ROOT), init);
  const text = await answer.text();
  let value = null;
  try {
    value = JSON.parse(text);
  } catch {}
  if (!answer.ok) throw new Refusal(answer.status, value?.error?.message ?? value?.error ?? `the answer was ${answer.status}`);
  if (value === null) throw new Refusal(answer.status, "the answer is no JSON: is something else between here and the daemon?");
  return value;
}

export const look = (path, options) => ask("GET", `wakeful/v1/${path}`, options);

/** Slashes of a name are part of the path. */
export const named = (name) => name.split("/").map(encodeURIComponent).join("/");
