// A client that does a bit of everything, on the TypeScript SDK (v1 or v2).
//
// Usage: ts_client.mjs <folder of the packages> v1|v2 legacy|auto URL. `python_client.py` is the same in Python.
// It goes on whatever a server refuses: what it sends is what matters.

import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

const [modules, version, mode, url] = process.argv.slice(2);
const resolver = createRequire(path.join(modules, "package.json"));
const load = async (name) => await import(pathToFileURL(resolver.resolve(name)).href);
const v1 = version === "v1";
const names = v1
  ? ["client/index.js", "client/streamableHttp.js", "types.js"].map((file) => `@modelcontextprotocol/sdk/${file}`)
  : ["@modelcontextprotocol/client"];
const sdk = Object.assign({}, ...(await Promise.all(names.map(load))));

const SIMPLE = { string: "a", integer: 1, number: 1, boolean: true, array: [], object: {}, null: null };

// A simple value that most schemas of this type take.
function example(schema) {
  for (const name of ["const", "default"]) if (name in schema) return schema[name];
  if (schema.enum?.length) return schema.enum[0];
  const kind = [schema.type ?? "string"].flat()[0];
  if (kind !== "object") return schema.minimum ?? SIMPLE[kind];
  return Object.fromEntries((schema.required ?? []).map((name) => [name, example(schema.properties?.[name] ?? {})]));
}

async function attempt(promise) {
  try {
    return await promise;
  } catch (error) {
    console.error(String(error));
    return {};
  }
}

async function pages(list, field) {
  const items = [];
  let cursor;
  for (let page = 0; page < 10; page++) {
    const result = await attempt(list(cursor === undefined ? undefined : { cursor }));
    items.push(...(result[field] ?? []));
    cursor = result.nextCursor;
    if (cursor === undefined) break;
  }
  return items;
}

const client = new sdk.Client(
  { name: `ts-${version}`, version: "1" },
  {
    capabilities: { elicitation: { form: {}, url: {} }, sampling: {}, roots: { listChanged: true } },
    ...(!v1 && { versionNegotiation: { mode } }),
  },
);
const answers = {
  "elicitation/create": [sdk.ElicitRequestSchema, ({ params }) => ({ action: "accept", ...(params.requestedSchema && { content: example(params.requestedSchema) }) })],
  "sampling/createMessage": [
    sdk.CreateMessageRequestSchema,
    () => ({ role: "assistant", model: "none", content: { type: "text", text: "a word" } }),
  ],
  "roots/list": [sdk.ListRootsRequestSchema, () => ({ roots: [{ uri: "file:///project", name: "project" }] })],
};
for (const [method, [schema, answer]] of Object.entries(answers)) client.setRequestHandler(v1 ? schema : method, answer);
client.onerror = (error) => console.error(String(error));

const transport = new sdk.StreamableHTTPClientTransport(new URL(url));
await client.connect(transport);
const offered = client.getServerCapabilities() ?? {};
const call = (params, options) => (v1 ? client.callTool(params, undefined, options) : client.callTool(params, options));
const listed = async (feature, list, field) => (feature in offered ? await pages(list, field) : []);

for (const { name, inputSchema } of await listed("tools", (page) => client.listTools(page), "tools")) {
  const params = { name, arguments: example({ ...inputSchema, type: "object" }) };
  await attempt(call(params, { onprogress: () => {}, timeout: 5000 }));
  await attempt(call(params, { signal: AbortSignal.timeout(50) }));
}
for (const { uri } of await listed("resources", (page) => client.listResources(page), "resources")) {
  await attempt(client.readResource({ uri }, { timeout: 5000 }));
  if (mode === "legacy" && offered.resources.subscribe) {
    await attempt(client.subscribeResource({ uri }));
    await attempt(client.unsubscribeResource({ uri }));
  }
}
await listed("resources", (page) => client.listResourceTemplates(page), "resourceTemplates");
for (const { name, arguments: wanted } of await listed("prompts", (page) => client.listPrompts(page), "prompts")) {
  const given = Object.fromEntries((wanted ?? []).map((each) => [each.name, "a"]));
  await attempt(client.getPrompt({ name, arguments: given }, { timeout: 5000 }));
  for (const argument of "completions" in offered ? Object.keys(given) : []) {
    await attempt(client.complete({ ref: { type: "ref/prompt", name }, argument: { name: argument, value: "a" } }));
  }
}
if (mode === "legacy") {
  if (offered.logging) await attempt(client.setLoggingLevel("info"));
  await attempt(client.ping());
  await attempt(client.sendRootsListChanged());
  await attempt(transport.terminateSession());
} else if (offered.tools?.listChanged) {
  const subscription = await attempt(client.listen({ toolsListChanged: true }));
  await subscription.close?.();
}
await client.close();
