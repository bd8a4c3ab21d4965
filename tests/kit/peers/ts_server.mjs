// A server with something of everything, on the TypeScript SDK (v1 or v2), over stdio or HTTP.
//
// Usage: ts_server.mjs <folder of the packages> v1|v2 stdio|http [issuer]. Over HTTP it prints its URL. HTTP is as each SDK serves it:
// v1 with sessions, v2 both eras, the legacy one without sessions. Given the issuer of its tokens, it is protected.
// `python_server.py` is the same in Python.

import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

const [modules, version, transport, issuer] = process.argv.slice(2);
const resolver = createRequire(path.join(modules, "package.json"));
const load = async (name) => await import(pathToFileURL(resolver.resolve(name)).href);
const z = await load("zod");
const v1 = version === "v1";
const from = async (names) => Object.assign({}, ...(await Promise.all(names.map(load))));
const sdk = await from(
  v1
    ? [
        ...["server/mcp.js", "server/stdio.js", "server/streamableHttp.js", "server/completable.js", "types.js"],
        ...(issuer ? ["server/auth/errors.js", "server/auth/middleware/bearerAuth.js", "server/auth/router.js"] : []),
      ].map((file) => `@modelcontextprotocol/sdk/${file}`)
    : ["@modelcontextprotocol/server", "@modelcontextprotocol/server/stdio", "@modelcontextprotocol/node"],
);

// What a handler is given beside its arguments has other names in each version.
const context = (extra) =>
  v1
    ? { token: extra._meta?.progressToken, notify: extra.sendNotification }
    : { token: extra.mcpReq._meta?.progressToken, notify: extra.mcpReq.notify, mcpReq: extra.mcpReq };

const text = (words) => ({ content: [{ type: "text", text: String(words) }] });
const structured = (value) => ({ ...text(JSON.stringify(value)), structuredContent: value });
const COLOUR = { message: "Which colour?", requestedSchema: { type: "object", properties: { colour: { type: "string" } } } };
const item = z.object({
  sku: z.string().regex(/^[A-Z]{2}-[0-9]{3}$/),
  count: z.number().int().min(1).max(99).default(1),
  tags: z.array(z.string()).max(3).default([]),
});

const subscribed = new WeakMap();
let changed = () => {};
const tools = {
  add: [{ a: z.number().int(), b: z.number().int() }, ({ a, b }) => structured({ result: a + b }), { result: z.number() }],
  echo: [{ text: z.string(), times: z.number().int().min(0).max(5).default(1) }, ({ text: words, times }) => text(words.repeat(times))],
  paint: [{ colour: z.enum(["red", "green", "blue"]), shade: z.number().nullish() }, ({ colour, shade }) => text(`${colour} ${shade}`)],
  order: [
    { order: z.object({ items: z.array(item).min(1).max(5), express: z.boolean().default(false), note: z.string().nullish() }) },
    ({ order: { items, express } }) =>
      structured({ pieces: items.reduce((sum, { count }) => sum + count, 0), express, skus: items.map(({ sku }) => sku) }),
    { pieces: z.number().int(), express: z.boolean(), skus: z.array(z.string()) },
  ],
  slow: [
    { steps: z.number().int().min(1).max(5).default(3) },
    async ({ steps }, { token, notify }) => {
      for (let step = 1; step <= steps; step++) {
        const params = { progressToken: token, progress: step, total: steps, message: `step ${step}` };
        if (token !== undefined) await notify({ method: "notifications/progress", params });
        await new Promise((resolve) => setTimeout(resolve, 20));
      }
      return text(`${steps} steps`);
    },
  ],
  fail: [{}, () => ({ ...text("this tool always fails"), isError: true })],
  crash: [
    {},
    () => {
      throw new Error("a secret of the server");
    },
  ],
  chatty: [
    { words: z.array(z.string()).max(5) },
    async ({ words }, { mcpReq }, server, extra) => {
      for (const data of words) {
        if (v1) await server.sendLoggingMessage({ level: "info", data }, extra.sessionId);
        else await mcpReq.log("info", data);
      }
      return text("logged");
    },
  ],
  announce: [{}, (_, __, server) => (changed(server), text("announced"))],
  ask: [
    {},
    async (_, { mcpReq }, server, extra, era) => {
      const ask = v1 ? () => server.server.elicitInput(COLOUR, { relatedRequestId: extra.requestId }) : () => mcpReq.elicitInput(COLOUR);
      if (era !== "modern") return text((await ask()).action);
      const answer = sdk.inputResponse(mcpReq.inputResponses, "colour");
      if (answer.kind === "elicit" && ["decline", "cancel"].includes(answer.action)) return text(answer.action);
      const given = sdk.acceptedContent(mcpReq.inputResponses, "colour", z.object({ colour: z.string().optional() }));
      return given ? text("accept") : sdk.inputRequired({ inputRequests: { colour: sdk.inputRequired.elicit(COLOUR) } });
    },
  ],
};

function build({ era } = {}) {
  const server = new sdk.McpServer(
    { name: `ts-${version}`, version: "1" },
    { capabilities: { logging: {}, resources: { subscribe: true, listChanged: true } }, instructions: "Call any tool." },
  );
  if (era !== "modern") {
    const uris = new Set();
    subscribed.set(server, uris);
    const methods = v1 ? [sdk.SubscribeRequestSchema, sdk.UnsubscribeRequestSchema] : ["resources/subscribe", "resources/unsubscribe"];
    server.server.setRequestHandler(methods[0], ({ params }) => (uris.add(params.uri), {}));
    server.server.setRequestHandler(methods[1], ({ params }) => (uris.delete(params.uri), {}));
  }
  for (const [name, [inputSchema, run, outputSchema]] of Object.entries(tools)) {
    const config = { inputSchema, ...(outputSchema && { outputSchema }), annotations: { readOnlyHint: true } };
    server.registerTool(name, config, (given, extra) => run(given, context(extra), server, extra, era));
  }
  if (issuer && !v1) {
    // A scope of its own, with which the others can do nothing: v1 knows none for single tools.
    const config = { inputSchema: {}, annotations: { readOnlyHint: true }, scopeChallenge: sdk.requireScopes("write") };
    server.registerTool("publish", config, () => text("published"));
  }
  // This one is not annotated as reading only.
  server.registerTool("forget", { inputSchema: { everything: z.boolean() } }, ({ everything }) => text(`forgot ${everything}`));
  server.registerResource("text", "peer://text", { mimeType: "text/plain" }, ({ href }) => ({ contents: [{ uri: href, text: "some text" }] }));
  server.registerResource("bytes", "peer://bytes", {}, ({ href }) => ({ contents: [{ uri: href, blob: "AAEC" }] }));
  const people = new sdk.ResourceTemplate("peer://people/{name}", { list: undefined, complete: { name: () => ["ada", "alan"] } });
  server.registerResource("person", people, {}, ({ href }, { name }) => ({ contents: [{ uri: href, text: `${name} is a person` }] }));
  const say = (words) => ({ messages: [{ role: "user", content: { type: "text", text: words } }] });
  server.registerPrompt("hello", {}, () => say("Say hello."));
  const style = sdk.completable(z.string().optional(), (begun) => ["warm", "wild", "cold"].filter((word) => word.startsWith(begun)));
  server.registerPrompt("greeting", { argsSchema: { name: z.string(), style } }, (given) => say(`Greet ${given.name}, and be ${given.style}.`));
  return server;
}

const listener = createServer();
if (transport === "http") await new Promise((resolve) => listener.listen(0, "127.0.0.1", resolve));
const origin = `http://127.0.0.1:${listener.address()?.port ?? 0}`; // over stdio, nothing listens
const resource = new URL(`${origin}/mcp`);
const sessions = new Map();

async function session(request, response) {
  const id = request.headers["mcp-session-id"];
  const user = request.auth?.extra.subject;
  let { transport, owner } = sessions.get(id) ?? {};
  if (id && (!transport || owner !== user)) {
    const error = { code: -32001, message: "Session not found" };
    return void response.writeHead(404, { "Content-Type": "application/json" }).end(JSON.stringify({ jsonrpc: "2.0", id: null, error }));
  }
  if (!transport) {
    transport = new sdk.StreamableHTTPServerTransport({
      sessionIdGenerator: randomUUID,
      enableDnsRebindingProtection: true,
      allowedHosts: [resource.host],
      allowedOrigins: [origin],
      onsessioninitialized: (given) => void sessions.set(given, { transport, owner: user }),
      onsessionclosed: (given) => void sessions.delete(given),
    });
    await build().connect(transport);
  }
  await transport.handleRequest(request, response);
}

let serve = session;
let elsewhere = (_, response) => response.writeHead(404).end();
if (v1 || transport === "stdio") {
  changed = (server) => {
    server.sendToolListChanged();
    if (subscribed.get(server)?.has("peer://text")) server.server.sendResourceUpdated({ uri: "peer://text" });
  };
} else {
  const handler = sdk.createMcpHandler(build);
  changed = () => {
    handler.notify.toolsChanged();
    handler.notify.resourceUpdated("peer://text");
  };
  serve = sdk.toNodeHandler(handler);
  if (issuer) protectV2(handler, await protection());
}
if (issuer && v1) protectV1((await load("express")).default(), await protection());

// The SDKs leave to their users to verify the signature of a token, its times, and who has issued it.
async function protection() {
  const { createRemoteJWKSet, jwtVerify } = await load("jose");
  const keys = createRemoteJWKSet(new URL(`${issuer}/jwks`));
  const refuse = () => {
    throw v1 ? new sdk.InvalidTokenError("not valid") : new sdk.OAuthError(sdk.OAuthErrorCode.InvalidToken, "not valid");
  };
  const verifier = {
    async verifyAccessToken(token) {
      const { payload } = await jwtVerify(token, keys, { issuer }).catch(refuse);
      const { aud, client_id: clientId, exp: expiresAt, scope, sub: subject } = payload;
      return { token, clientId, scopes: scope.split(" "), expiresAt, resource: new URL(aud), extra: { subject } };
    },
  };
  const endpoints = { authorization_endpoint: `${issuer}/authorize`, token_endpoint: `${issuer}/token` };
  const oauthMetadata = { issuer, ...endpoints, response_types_supported: ["code"] };
  const resourceMetadataUrl = sdk.getOAuthProtectedResourceMetadataUrl(resource);
  return {
    gate: sdk.requireBearerAuth({ verifier, requiredScopes: ["read"], resourceMetadataUrl, expectedResource: resource }),
    metadata: { oauthMetadata, resourceServerUrl: resource, scopesSupported: ["read"] },
  };
}

function protectV1(app, { gate, metadata }) {
  app.use(sdk.mcpAuthMetadataRouter(metadata));
  app.all("/mcp", gate, session);
  serve = elsewhere = app;
}

function protectV2(handler, { gate, metadata }) {
  const guarded = async (request) => {
    const auth = await gate(request);
    return auth instanceof Response ? auth : handler.fetch(request, { authInfo: auth });
  };
  const document = (request) => sdk.oauthMetadataResponse(request, metadata) ?? new Response(null, { status: 404 });
  serve = sdk.toNodeHandler({ fetch: guarded });
  elsewhere = sdk.toNodeHandler({ fetch: document });
}

listener.on("request", (request, response) => {
  if (request.url.split("?")[0] !== "/mcp") elsewhere(request, response);
  else if (!v1 && !sdk.validateOriginHeader(request.headers.origin, sdk.localhostAllowedOrigins()).ok) response.writeHead(403).end();
  else serve(request, response);
});
if (transport === "http") console.log(resource.href);
else if (v1) await build().connect(new sdk.StdioServerTransport());
else sdk.serveStdio(build);
