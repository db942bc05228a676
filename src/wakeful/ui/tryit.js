// A call from the page: inputs by the model's own signature, the answer, and the same call for other programs.

import { useMemo, useState } from "./vendor/hooks.js";
import * as calls from "./calls.js";
import { Choice, Copy, html } from "./dom.js";
import { plural, seconds } from "./format.js";
import { ask, named } from "./net.js";
import { mayRun, store } from "./store.js";

const SHOWN = 20;
const MOST = 1_000_000;
const WHOLE = /^U?INT/;

/** Of the .npy format: [shape, values]. Throws what is wrong, in words. */
export function readNpy(buffer) {
  const view = new DataView(buffer);
  const magic = [0x93, 0x4e, 0x55, 0x4d, 0x50, 0x59];
  if (buffer.byteLength < 12 || magic.some((byte, index) => view.getUint8(index) !== byte)) throw new Error("this is no .npy file");
  const wide = view.getUint8(6) > 1;
  const begin = wide ? 12 : 10;
  const size = wide ? view.getUint32(8, true) : view.getUint16(8, true);
  const head = new TextDecoder("latin1").decode(new Uint8Array(buffer, begin, size));
  const kind = /'descr':\s*'([<|>=])([a-z])(\d+)'/.exec(head);
  if (!kind || kind[1] === ">" || /'fortran_order':\s*True/.test(head)) throw new Error("only little-endian numbers in C order are understood");
  const arrays = { f4: Float32Array, f8: Float64Array, i1: Int8Array, u1: Uint8Array, b1: Uint8Array, i2: Int16Array, u2: Uint16Array, i4: Int32Array,
    u4: Uint32Array, i8: BigInt64Array, u8: BigUint64Array };
  const Kind = arrays[kind[2] + kind[3]];
  if (!Kind) throw new Error(`numbers of kind ${kind[2]}${kind[3]} are not understood here`);
  const shape = (/'shape':\s*\(([^)]*)\)/.exec(head)?.[1] ?? "").split(",").map((text) => text.trim()).filter(Boolean).map(Number);
  const values = Array.from(new Kind(buffer.slice(begin + size)), (value) => (kind[2] === "b" ? Boolean(value) : Number(value)));
  return [shape, values];
}

const product = (shape) => shape.reduce((sum, size) => sum * size, 1);

function made(how, datatype, length) {
  if (datatype === "BYTES") return new Array(length).fill("");
  if (how === "zeros") return new Array(length).fill(datatype === "BOOL" ? false : 0);
  const one = () => (datatype === "BOOL" ? Math.random() < 0.5 : WHOLE.test(datatype) ? Math.floor(Math.random() * 2) : Number(Math.random().toPrecision(6)));
  return Array.from({ length }, one);
}

/** One input of a request. Throws what is wrong with what was written, in words. */
export function tensorOf(spec, entry) {
  const { name, datatype } = spec;
  if (entry.fill === "file") {
    if (!entry.file) throw new Error(`${name}: choose a file`);
    return { name, datatype, shape: entry.file.shape, data: entry.file.values };
  }
  const shape = spec.shape.map((size, axis) => (size < 0 ? entry.sizes[axis] : size));
  if (shape.some((size) => !(Number.isInteger(size) && size >= 0))) throw new Error(`${name}: sizes are whole numbers`);
  const length = product(shape);
  if (length > MOST) throw new Error(`${name}: ${length} values are too many for a page`);
  if (datatype === "BYTES") {
    const lines = entry.text.split("\n");
    return { name, datatype, shape, data: Array.from({ length }, (_, index) => lines[index] ?? "") };
  }
  if (entry.fill !== "json") return { name, datatype, shape, data: made(entry.fill, datatype, length) };
  let values;
  try {
    values = JSON.parse(entry.text);
  } catch (error) {
    throw new Error(`${name}: ${error.message}`);
  }
  const data = [values].flat(Infinity);
  if (data.length !== length) throw new Error(`${name}: ${plural(length, "value")} make this shape, and there are ${data.length}`);
  return { name, datatype, shape, data };
}

function Input({ spec, entry, change }) {
  const load = async (event) => {
    try {
      const [shape, values] = readNpy(await event.target.files[0].arrayBuffer());
      change({ ...entry, file: { shape, values }, wrong: "" });
    } catch (error) {
      change({ ...entry, file: null, wrong: error.message });
    }
  };
  const text = spec.datatype === "BYTES";
  const fills = text ? [["json", "texts"]] : [["zeros"], ["random"], ["json", "JSON"], ["file", ".npy"]];
  return html`<fieldset><legend><code>${spec.name}</code> <span class="muted">${spec.datatype}</span></legend>
    <div class="dims">[${spec.shape.map((size, axis) => html`${axis > 0 && ", "}${size < 0 && entry.fill !== "file"
      ? html`<input type="number" min="0" value=${entry.sizes[axis]} aria-label=${`${spec.name}, size of axis ${axis}`}
          onInput=${(event) => change({ ...entry, sizes: entry.sizes.map((old, index) => (index === axis ? event.target.valueAsNumber : old)) })} />`
      : size < 0 ? "any" : size}`)}]
      <${Choice} label=${`Values of ${spec.name}`} options=${fills} value=${text ? "json" : entry.fill} choose=${(fill) => change({ ...entry, fill })} /></div>
    ${(entry.fill === "json" || text) && html`<textarea rows="3" value=${entry.text} aria-label=${text ? `Texts of ${spec.name}, a line each` : `Values of ${spec.name} as JSON`}
      onInput=${(event) => change({ ...entry, text: event.target.value })}></textarea>`}
    ${entry.fill === "file" && html`<input type="file" accept=".npy" aria-label=${`File with values of ${spec.name}`} onChange=${load} />
      <span class="muted">${entry.file ? `[${entry.file.shape.join(", ")}]` : ""}</span><span class="bad">${entry.wrong}</span>`}
  </fieldset>`;
}

function Answer({ answer }) {
  const shownOf = (output) => {
    const flat = [output.data].flat(Infinity);
    return `${flat.slice(0, SHOWN).map((value) => (typeof value === "number" ? Number(value.toPrecision(7)) : JSON.stringify(value))).join(", ")}${flat.length > SHOWN ? ", …" : ""}`;
  };
  return html`<div class="answer" data-test="answer"><h3>Answer <span class="muted">after ${seconds(answer.seconds)}, on the way there and back too${
    answer.woke ? "; it was asleep, so waking it is counted" : ""}</span></h3>
    ${answer.outputs.map((output) => html`<p><code>${output.name}</code> ${output.datatype} [${output.shape.join(", ")}]</p><pre tabindex="0" data-output=${output.name}
      aria-label=${`First values of ${output.name}`}>${shownOf(output)}</pre>`)}</div>`;
}

const FORMS = [["curl"], ["triton", "tritonclient"], ["requests"], ["snooze", "snoozeml"], ["openai"], ["wakeful", "wakeful infer"]];

/** Forms that can say it: SnoozeML's API has no other type, OpenAI's no tensors. */
function formsFor(model, inputs) {
  const floats = inputs.every((spec) => spec.datatype === "FP32");
  const texts = inputs.some((spec) => ["input_ids", "token_ids"].includes(spec.name));
  return FORMS.filter(([form]) => (form === "snooze" ? floats && model.key === model.name : form === "openai" ? texts : true));
}

const entryOf = (spec) => ({ fill: spec.datatype === "BYTES" ? "json" : "zeros", sizes: spec.shape.map((size) => (size < 0 ? 1 : size)), text: spec.datatype === "BYTES" ? "hello" : "[]",
  file: null, wrong: "" });

function Form({ model, inputs }) {
  const [entries, setEntries] = useState(() => inputs.map(entryOf));
  const [answer, setAnswer] = useState(null);
  const [form, setForm] = useState("curl");
  const [busy, setBusy] = useState(false);
  const [request, wrong] = useMemo(() => {  // once for each change: what is shown as a call is what is sent, random values too
    try {
      return [{ inputs: inputs.map((spec, index) => tensorOf(spec, entries[index])) }, ""];
    } catch (error) {
      return [null, error.message];
    }
  }, [entries]);
  const send = async (event) => {
    event.preventDefault();
    const started = performance.now();
    const woke = !model.replicas.length;
    setBusy(true);
    try {
      const found = await ask("POST", calls.pathOf(model), { body: request });
      setAnswer({ outputs: found.outputs, seconds: (performance.now() - started) / 1000, woke });
    } catch (error) {
      setAnswer({ error: error.message });
    }
    setBusy(false);
  };
  const locked = store.access.known && !store.access.open;
  const text = request && (form === "openai" ? calls.openai(model, "a text", locked) : calls[form](model, request, locked));
  return html`<div class="try"><form onSubmit=${send}>
      ${inputs.map((spec, index) => html`<${Input} key=${spec.name} spec=${spec} entry=${entries[index]}
        change=${(entry) => setEntries(entries.map((old, other) => (other === index ? entry : old)))} />`)}
      <p class="bad" role="alert">${wrong}</p>
      ${mayRun() ? html`<div class="actions"><button type="submit" class="strong" disabled=${!request || busy}>${busy ? "Waiting …" : model.replicas.length ? "Send" : "Wake it and send"}</button></div>`
        : html`<p class="muted">Your key may look, and not run models.</p>`}
      ${answer && (answer.error ? html`<p class="bad" role="alert">${answer.error}</p>` : html`<${Answer} answer=${answer} />`)}
    </form>
    <div><${Choice} label="The same call for" options=${formsFor(model, inputs)} value=${form} choose=${setForm} />
      ${text && html`<${Copy} label=${FORMS.find(([name]) => name === form).at(-1)} text=${text.length > 20000 ? `${text.slice(0, 20000)}\n… cut: too long to copy` : text} />`}
      ${locked && html`<p class="muted">The key is read from the environment: <code>WAKEFUL_API_KEY</code>.</p>`}</div>
  </div>`;
}

export function TryIt({ model, signature }) {
  const [read, setRead] = useState(null);
  const inputs = signature?.inputs ?? read?.inputs;
  const look = async () => {
    try {
      setRead(await ask("GET", `v2/models/${named(model.name)}`));
    } catch (error) {
      setRead({ error: error.message });
    }
  };
  if (inputs?.length) return html`<${Form} key=${JSON.stringify(inputs)} model=${model} inputs=${inputs} />`;
  return html`<p class="muted">Its inputs are not known yet. They can be read from its file, which does not wake it.</p>
    <p class="bad" role="alert">${read?.error}</p>
    <div class="actions"><button type="button" onClick=${look}>Read its inputs</button></div>`;
}
