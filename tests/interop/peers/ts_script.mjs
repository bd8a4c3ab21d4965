// What both TypeScript clients share: find the packages, run a list of steps, print one JSON report.
//
// argv[2] is a JSON object: {modules, mode, elicitations, sample, roots, steps}, and {command, args, env} for a server over stdio or
// {url, kind}, where kind is "http", "sse", "websocket", "tcp" or "unix". A step is one of
//   {op: "list_tools"} {op: "ping"} {op: "set_level", level} {op: "read", uri} {op: "prompt", name, arguments}
//   {op: "complete", ref, argument} {op: "listen", uri, announce}, which gives the methods of two notifications
//   {op: "large", size}, which gives the length of an echo
//   {op: "closed"}, which waits until the connection is, and gives what a call says then
//   {op: "leave"}, the last: it ends the connection while a call is in flight
//   {op: "call", name, arguments, progress, cancelOnProgress, meta}
// An entry of report.steps is {result, progress} or {error: {kind, code, message}, progress}.
// report.notifications is what arrived on the wire: these clients drop a progress notification that shares
// a read with the response, so what reaches a callback says little about what the server sent.

import { createRequire } from "node:module";
import net from "node:net";
import path from "node:path";
import { pathToFileURL } from "node:url";

export const request = JSON.parse(process.argv[2]);

// An ES module is looked up from its own folder, and the packages are installed elsewhere.
const resolver = createRequire(path.join(request.modules, "package.json"));
export const load = async (name) => await import(pathToFileURL(resolver.resolve(name)).href);

// The framing of stdio over a socket, with the SDK's own parser.
class Socket {
  constructor({ protocol, hostname, port, pathname }, { ReadBuffer, serializeMessage }) {
    this.address = protocol === "unix:" ? { path: pathname } : { host: hostname, port };
    this.buffer = new ReadBuffer();
    this.serialize = serializeMessage;
  }
  start() {
    return new Promise((resolve, reject) => {
      this.socket = net.connect(this.address, resolve);
      this.socket.on("error", (error) => (reject(error), this.onerror?.(error)));
      this.socket.on("close", () => this.onclose?.());
      this.socket.on("data", (data) => {
        this.buffer.append(data);
        for (let message; (message = this.buffer.readMessage()); ) this.onmessage?.(message);
      });
    });
  }
  send(message) {
    return new Promise((resolve, reject) =>
      this.socket.write(this.serialize(message), (error) => (error ? reject(error) : resolve())),
    );
  }
  async close() {
    this.socket.end();
  }
}

export function reach({ Stdio, Http, Sse, WebSocket, lines }) {
  if (request.command) return new Stdio({ command: request.command, args: request.args, env: request.env });
  return new { http: Http, sse: Sse, websocket: WebSocket, tcp: Socket, unix: Socket }[request.kind](new URL(request.url), lines);
}

const describe = (error) => ({ kind: error.name, code: error.code ?? null, message: error.message });

const AWAITED = ["notifications/resources/updated", "notifications/tools/list_changed"];

async function listen(client, { uri, announce }, callTool) {
  const heard = [];
  let enough;
  const done = new Promise((resolve) => (enough = resolve));
  client.fallbackNotificationHandler = async ({ method }) => {
    if (!AWAITED.includes(method)) return;
    heard.push(method);
    if (heard.length === 2) enough();
  };
  const modern = client.getProtocolEra?.() === "modern";
  const subscription = modern && (await client.listen({ toolsListChanged: true, resourceSubscriptions: [uri] }));
  if (!modern) await client.subscribeResource({ uri });
  await callTool({ name: announce, arguments: { uri } }, {});
  await done;
  await (modern ? subscription.close() : client.unsubscribeResource({ uri }));
  return heard.sort();
}

async function large({ size }, callTool) {
  const { content } = await callTool({ name: "echo", arguments: { text: "x".repeat(size) } }, {});
  return content[0].text.length;
}

async function closed(client, end) {
  await end;
  await client.ping();
}

async function leave(client, callTool) {
  const call = callTool({ name: "slow", arguments: { seconds: 3600 } }, { onprogress: () => client.close() });
  await call.then(() => "finished");
}

async function runStep(client, step, callTool, end) {
  const progress = [];
  const cancelling = new AbortController();
  const options = {};
  if (step.progress || step.cancelOnProgress) {
    options.onprogress = (update) => {
      progress.push(update);
      if (step.cancelOnProgress) cancelling.abort("no longer wanted");
    };
  }
  if (step.cancelOnProgress) options.signal = cancelling.signal;
  const params = { name: step.name, arguments: step.arguments };
  if (step.meta) params._meta = step.meta;
  try {
    const result = await {
      list_tools: () => client.listTools(),
      ping: () => client.ping(),
      set_level: () => client.setLoggingLevel(step.level),
      read: () => client.readResource({ uri: step.uri }),
      prompt: () => client.getPrompt({ name: step.name, arguments: step.arguments }),
      complete: () => client.complete({ ref: step.ref, argument: step.argument }),
      listen: () => listen(client, step, callTool),
      large: () => large(step, callTool),
      closed: () => closed(client, end),
      leave: () => leave(client, callTool),
      call: () => callTool(params, options),
    }[step.op]();
    return { result, progress };
  } catch (error) {
    return { error: describe(error), progress };
  }
}

export async function run(client, transport, { callTool, era }) {
  const errors = [];
  client.onerror = (error) => errors.push(describe(error));
  const end = new Promise((resolve) => (client.onclose = resolve));
  await client.connect(transport);
  const notifications = [];
  const deliver = transport.onmessage;
  transport.onmessage = (message, ...rest) => {
    if ("method" in message && !("id" in message)) notifications.push(message);
    deliver(message, ...rest);
  };
  const report = {
    protocolVersion: client.getNegotiatedProtocolVersion?.() ?? transport.negotiated ?? null,
    era: era(),
    serverInfo: client.getServerVersion() ?? null,
    capabilities: client.getServerCapabilities() ?? null,
    instructions: client.getInstructions() ?? null,
    steps: [],
  };
  for (const step of request.steps) report.steps.push(await runStep(client, step, callTool, end));
  const session = transport.sessionId;
  if (session) {
    await transport.terminateSession();
    const headers = { "Content-Type": "application/json", Accept: "application/json, text/event-stream", "Mcp-Session-Id": session };
    const body = JSON.stringify({ jsonrpc: "2.0", id: "late", method: "ping" });
    report.afterTheEnd = (await fetch(request.url, { method: "POST", headers, body })).status;
  }
  await client.close();
  return { ...report, notifications, errors };
}
