// A call as others write it: for a shell, for Python's clients, for the command line. Pure; values are quoted for each language.

import { ROOT, named } from "./net.js";

const KEY = "WAKEFUL_API_KEY";

/** For a POSIX shell: whatever is in it is only text. */
export const quoted = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", `'"'"'`)}'`);

/** A literal of Python: JSON's strings are Python's, but for the halves of surrogates; its words are not. */
export function literal(value) {
  if (value === null) return "None";
  if (typeof value === "boolean") return value ? "True" : "False";
  if (Array.isArray(value)) return `[${value.map(literal).join(", ")}]`;
  if (typeof value === "object") return `{${Object.entries(value).map(([name, one]) => `${JSON.stringify(name)}: ${literal(one)}`).join(", ")}}`;
  return JSON.stringify(value);
}

const base = () => ROOT.href.replace(/\/$/, "");

export const pathOf = (model) => `v2/models/${named(model.name)}${model.key !== model.name ? `/versions/${encodeURIComponent(model.version)}` : ""}/infer`;

const NUMPY = { FP16: "float16", FP32: "float32", FP64: "float64", BOOL: "bool_", BYTES: "object_" };
const numpy = (datatype) => NUMPY[datatype] ?? datatype.toLowerCase();
const array = (tensor) => `np.array(${literal(tensor.data)}, dtype=np.${numpy(tensor.datatype)}).reshape(${literal(tensor.shape)})`;

export function curl(model, request, protectedByKey) {
  const key = protectedByKey ? ` -H "Authorization: Bearer $${KEY}"` : "";
  return `curl -s ${quoted(`${base()}/${pathOf(model)}`)}${key} \\\n  -H 'Content-Type: application/json' \\\n  -d ${quoted(JSON.stringify(request))}`;
}

export function requests(model, request, protectedByKey) {
  const headers = protectedByKey ? `,\n    headers={"Authorization": "Bearer " + os.environ["${KEY}"]}` : "";
  return `${protectedByKey ? "import os\n\n" : ""}import requests

answer = requests.post(
    ${literal(`${base()}/${pathOf(model)}`)},
    json=${literal(request)}${headers},
    timeout=60,
)
answer.raise_for_status()
for output in answer.json()["outputs"]:
    print(output["name"], output["shape"], output["data"][:20])
`;
}

export function triton(model, request, protectedByKey) {
  const url = new URL(ROOT);
  const version = model.key !== model.name ? `, model_version=${literal(model.version)}` : "";
  const lines = request.inputs.flatMap((tensor, index) => [
    `inputs.append(httpclient.InferInput(${literal(tensor.name)}, ${literal(tensor.shape)}, ${literal(tensor.datatype)}))`,
    `inputs[${index}].set_data_from_numpy(${array(tensor)})`,
  ]);
  return `${protectedByKey ? "import os\n\n" : ""}import numpy as np
import tritonclient.http as httpclient

client = httpclient.InferenceServerClient(${literal(url.host + url.pathname.replace(/\/$/, ""))}${url.protocol === "https:" ? ", ssl=True" : ""})
inputs = []
${lines.join("\n")}
${protectedByKey ? `headers = {"Authorization": "Bearer " + os.environ["${KEY}"]}\n` : ""}answer = client.infer(${literal(model.name)}, inputs${version}${protectedByKey ? ", headers=headers" : ""})
for output in answer.get_response()["outputs"]:
    print(output["name"], answer.as_numpy(output["name"]))
`;
}

export function snooze(model, request, protectedByKey) {
  const inputs = request.inputs.map((tensor) => `${literal(tensor.name)}: ${array({ ...tensor, datatype: "FP32" })}`);
  return `${protectedByKey ? "import os\n\n" : ""}import numpy as np
from snoozeml import SnoozeClient

client = SnoozeClient(http_endpoint=${literal(base())}, use_grpc=False${protectedByKey ? `, api_key=os.environ["${KEY}"]` : ""})
answer = client.infer(${literal(model.name)}, {${inputs.join(", ")}})
for output in answer.outputs:
    print(output.name, output.shape)
`;
}

export function openai(model, text, protectedByKey) {
  return `${protectedByKey ? "import os\n\n" : ""}from openai import OpenAI

client = OpenAI(base_url=${literal(`${base()}/openai/v1`)}, api_key=${protectedByKey ? `os.environ["${KEY}"]` : '"unused"'})
answer = client.embeddings.create(model=${literal(model.name)}, input=${literal(text)})
print(answer.data[0].embedding[:20])
`;
}

export const wakeful = (model, request) => `printf '%s' ${quoted(JSON.stringify(request))} |\n  wakeful infer ${quoted(model.key)} - --url ${quoted(base())}`;
