// The requester of @modelcontextprotocol/ext-tasks, on the TypeScript SDK's v2 client over HTTP: it calls tools, waits for
// the tasks that they become, answers their questions, and cancels one. The package brings no transport for tasks.

import path from "node:path";
import { pathToFileURL } from "node:url";

import { load, request } from "./ts_script.mjs";

const { Client, StreamableHTTPClientTransport } = await load("@modelcontextprotocol/client");
// The package is for `import` alone, which can't be told from where to look a name up.
const tasks = path.join(request.modules, "node_modules/@modelcontextprotocol/ext-tasks/dist/client/index.js");
const { createTaskSessionFromClient } = await import(pathToFileURL(tasks).href);

const protocolVersion = "2026-07-28";
const clientInfo = { name: "ext-tasks", version: "0.2.2" };
const capabilities = { elicitation: {}, extensions: { "io.modelcontextprotocol/tasks": {} } };
const client = new Client(clientInfo, { capabilities, versionNegotiation: { mode: { pin: protocolVersion } } });
await client.connect(new StreamableHTTPClientTransport(new URL(request.url)));

const methods = [];
const whole = ({ result, error }) => (error ? { kind: "error", error } : { kind: "result", result });
async function rawDispatch(message, options) {
  methods.push(message.method);
  const name = message.params.taskId ?? message.params.name;
  const response = await fetch(request.url, {
    method: "POST",
    signal: options?.signal,
    headers: {
      "Content-Type": "application/json",
      Accept: "application/json, text/event-stream",
      "MCP-Protocol-Version": protocolVersion,
      "Mcp-Method": message.method,
      ...(name === undefined ? {} : { "Mcp-Name": name }),
    },
    body: JSON.stringify({ jsonrpc: "2.0", id: methods.length, ...message }),
  });
  const text = await response.text();
  if (!response.headers.get("Content-Type").startsWith("text/event-stream")) return whole(JSON.parse(text));
  const data = text.split("\n").filter((line) => line.startsWith("data: {"));
  return whole(JSON.parse(data.at(-1).slice("data: ".length)));
}

const questions = [];
const session = createTaskSessionFromClient(client, {
  endpointId: request.url,
  rawDispatch,
  v2RequestFraming: { protocolVersion, clientInfo, clientCapabilities: capabilities },
  onInputRequest: ({ params }) => {
    questions.push(params.message);
    return request.elicitations[params.message];
  },
});

const outcomes = {};
for (const { name, arguments: given, cancel } of request.steps) {
  const execution = await session.callTool(name, given);
  if (cancel) await execution.cancel();
  const seen = [];
  const onEvent = (event) => void (event.type === "task" && seen.push(event.task.status));
  const { outcome } = await execution.settle({ onEvent });
  outcomes[name] = { kind: execution.kind, seen, ...outcome, error: outcome.error?.message };
}
await session.close();
await client.close();
console.log(JSON.stringify({ outcomes, questions, methods }));
