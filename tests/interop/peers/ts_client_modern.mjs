// The TypeScript SDK's v2 client: both eras. request.mode is "legacy", "auto" or a revision, which it pins.

import { load, reach, request, run } from "./ts_script.mjs";

const lines = await load("@modelcontextprotocol/client");
const { Client, SSEClientTransport, StreamableHTTPClientTransport } = lines;
const { StdioClientTransport } = await load("@modelcontextprotocol/client/stdio");
// Version 2 has given up WebSocket, but its transports still have the shape of version 1's.
const { WebSocketClientTransport } = await load("@modelcontextprotocol/sdk/client/websocket.js");

const logs = [];
const questions = [];
const mode = ["legacy", "auto"].includes(request.mode) ? request.mode : { pin: request.mode };
const client = new Client(
  { name: "ts-v2", version: "2.4.0" },
  { capabilities: { elicitation: {}, sampling: {}, roots: {} }, versionNegotiation: { mode } },
);
client.setNotificationHandler("notifications/message", ({ params }) => void logs.push(params));
client.setRequestHandler("elicitation/create", ({ params }) => {
  questions.push(params.message);
  return request.elicitations[params.message];
});
client.setRequestHandler("sampling/createMessage", () => request.sample);
client.setRequestHandler("roots/list", () => ({ roots: request.roots }));

const transport = reach({
  Stdio: StdioClientTransport,
  Http: StreamableHTTPClientTransport,
  Sse: SSEClientTransport,
  WebSocket: WebSocketClientTransport,
  lines,
});
const report = await run(client, transport, {
  callTool: (params, options) => client.callTool(params, options),
  era: () => client.getProtocolEra(),
});
console.log(JSON.stringify({ ...report, logs, questions }));
