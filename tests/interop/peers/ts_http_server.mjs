// The TypeScript SDK as an HTTP server. Prints its URL. argv: the folder of the packages, v1 or v2, and how it serves:
//   sessions    the legacy era, with sessions, a GET stream, and an event store
//   json        the same, answering in JSON alone and without a store
//   stateless   the legacy era without sessions
//   both        v2 only: the modern era, and the legacy era without sessions

import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

const [modules, version, kind] = process.argv.slice(2);
const resolver = createRequire(path.join(modules, "package.json"));
const load = async (name) => await import(pathToFileURL(resolver.resolve(name)).href);
const z = await load("zod");

const sdk =
  version === "v1"
    ? {
        ...(await load("@modelcontextprotocol/sdk/server/mcp.js")),
        Transport: (await load("@modelcontextprotocol/sdk/server/streamableHttp.js")).StreamableHTTPServerTransport,
        subscription: (await load("@modelcontextprotocol/sdk/types.js")).SubscribeRequestSchema,
        // What a handler is given beside its arguments has other names in each version.
        context: (extra) => ({
          signal: extra.signal,
          token: extra._meta?.progressToken,
          notify: extra.sendNotification,
          closeStream: extra.closeSSEStream,
          ask: (server, params) => server.server.elicitInput(params),
        }),
      }
    : {
        ...(await load("@modelcontextprotocol/server")),
        ...(await load("@modelcontextprotocol/node")),
        subscription: "resources/subscribe",
        context: (extra) => ({
          signal: extra.mcpReq.signal,
          token: extra.mcpReq._meta?.progressToken,
          notify: extra.mcpReq.notify,
          closeStream: extra.http?.closeSSE,
          ask: (server, params) => extra.mcpReq.elicitInput(params),
          responses: extra.mcpReq.inputResponses,
        }),
      };
const Transport = sdk.Transport ?? sdk.NodeStreamableHTTPServerTransport;

const COLOUR = { message: "Which colour?", requestedSchema: { type: "object", properties: { colour: { type: "string" } } } };
const events = [];
const waiting = new Map();
const record = (event) => {
  events.push(event);
  waiting.get(event)?.();
};
let changed = () => {};

const text = (words) => ({ content: [{ type: "text", text: String(words) }] });
const tools = {
  add: [{ a: z.number(), b: z.number() }, ({ a, b }) => ({ ...text(a + b), structuredContent: { result: a + b } }), { result: z.number() }],
  echo: [{ text: z.string() }, ({ text: words }) => text(words)],
  fail: [{}, () => ({ ...text("this tool always fails"), isError: true })],
  progress: [
    { n: z.number() },
    async ({ n }, { notify, token }) => {
      for (let step = 1; step <= n; step++) {
        if (token !== undefined) {
          const params = { progressToken: token, progress: step, total: n };
          await notify({ method: "notifications/progress", params });
        }
      }
      return text(`${n} steps`);
    },
  ],
  slow: [
    {},
    async (_, { notify, token, signal }) => {
      await notify({ method: "notifications/progress", params: { progressToken: token, progress: 1 } });
      await new Promise((resolve) => signal.addEventListener("abort", resolve));
      record("slow cancelled");
      return text("cancelled");
    },
  ],
  events: [
    { until: z.string() },
    async ({ until }) => {
      if (!events.includes(until)) await new Promise((resolve) => waiting.set(until, resolve));
      return text(events.join());
    },
  ],
  poll: [
    {},
    async (_, { closeStream }) => {
      closeStream?.();
      await new Promise((resolve) => setTimeout(resolve, 50));
      return text("polled");
    },
  ],
  announce: [{ uri: z.string() }, ({ uri }) => (changed(uri), text("announced"))],
  ask: [
    {},
    async (_, { ask, responses }, server, era) => {
      if (era === "modern" && !responses) {
        return sdk.inputRequired({ inputRequests: { colour: sdk.inputRequired.elicit(COLOUR) } });
      }
      const answer = responses?.colour ?? (await ask(server, COLOUR));
      return text(`painted ${answer.content.colour}`);
    },
  ],
};

function build(era) {
  const capabilities = { logging: {}, resources: { subscribe: true, listChanged: true } };
  const server = new sdk.McpServer({ name: `ts-${version}`, version: "1" }, { capabilities, instructions: "Call any tool." });
  if (kind === "sessions") server.server.setRequestHandler(sdk.subscription, () => ({}));
  for (const [name, [input, run, output]] of Object.entries(tools)) {
    const schemas = {
      inputSchema: version === "v1" ? input : z.object(input),
      ...(output && { outputSchema: version === "v1" ? output : z.object(output) }),
    };
    server.registerTool(name, schemas, (given, extra) => run(given, sdk.context(extra), server, era));
  }
  server.registerResource("a", "peer://a", { mimeType: "text/plain" }, (uri) => ({ contents: [{ uri: uri.href, text: "a" }] }));
  const name = { name: z.string() };
  server.registerPrompt("greeting", { argsSchema: version === "v1" ? name : z.object(name) }, ({ name: given }) => ({
    messages: [{ role: "user", content: { type: "text", text: `Greet ${given}.` } }],
  }));
  return server;
}

class Store {
  events = [];
  async storeEvent(stream, message) {
    this.events.push([stream, message]);
    return `${this.events.length}`;
  }
  async getStreamIdForEventId(id) {
    return this.events[id - 1]?.[0];
  }
  async replayEventsAfter(id, { send }) {
    record("replayed");
    const stream = this.events[id - 1][0];
    for (const [index, [of, message]] of [...this.events.entries()].slice(id)) {
      if (of === stream && message.jsonrpc) await send(`${index + 1}`, message);
    }
    return stream;
  }
}

const sessions = new Map();

async function session(request, response) {
  const id = request.headers["mcp-session-id"];
  let transport = sessions.get(id);
  if (id && !transport) return void response.writeHead(404).end();
  if (!transport) {
    const stored = kind === "sessions" && { eventStore: new Store(), retryInterval: 10 };
    transport = new Transport({
      sessionIdGenerator: kind === "stateless" ? undefined : randomUUID,
      enableJsonResponse: kind === "json",
      onsessioninitialized: (given) => void sessions.set(given, transport),
      ...stored,
    });
    const server = build("legacy");
    await server.connect(transport);
    changed = (uri) => {
      server.sendToolListChanged();
      server.server.sendResourceUpdated({ uri });
    };
  }
  await transport.handleRequest(request, response);
}

let serve = session;
if (kind === "both") {
  const handler = sdk.createMcpHandler(({ era }) => build(era));
  changed = (uri) => {
    handler.notify.toolsChanged();
    handler.notify.resourceUpdated(uri);
  };
  serve = sdk.toNodeHandler(handler);
}
const listener = createServer((request, response) => {
  if (request.url !== "/mcp") response.writeHead(404).end();
  else serve(request, response);
});
listener.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${listener.address().port}/mcp`));
