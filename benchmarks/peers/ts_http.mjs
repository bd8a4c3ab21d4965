// The TypeScript SDK's server over HTTP; it prints its URL. v1 keeps sessions and answers in JSON. v2 has no sessions in
// either era, and answers in JSON in the modern one, in events in the legacy one. Usage: node ts_http.mjs MODULES v1|v2
import { randomUUID } from "node:crypto";
import { createServer } from "node:http";

import { load, serverBuilder, v1 } from "./ts_tools.mjs";

const build = await serverBuilder();

async function withSessions() {
  const { StreamableHTTPServerTransport } = await load("@modelcontextprotocol/sdk/server/streamableHttp.js");
  const sessions = new Map();
  return async (request, response) => {
    let transport = sessions.get(request.headers["mcp-session-id"]);
    if (transport === undefined) {
      transport = new StreamableHTTPServerTransport({
        sessionIdGenerator: randomUUID,
        enableJsonResponse: true,
        onsessioninitialized: (id) => sessions.set(id, transport),
      });
      await build().connect(transport);
    }
    await transport.handleRequest(request, response);
  };
}

async function withoutSessions() {
  const { createMcpHandler } = await load("@modelcontextprotocol/server");
  const { toNodeHandler } = await load("@modelcontextprotocol/node");
  return toNodeHandler(createMcpHandler(build, { responseMode: "json" }));
}

const listener = createServer(await (v1 ? withSessions() : withoutSessions()));
listener.keepAliveTimeout = 3_600_000; // so that no client has to reconnect while it is measured
listener.listen(0, "127.0.0.1", () => console.log(`http://127.0.0.1:${listener.address().port}/mcp`));
