// The TypeScript SDK's v1 client: the legacy era only.

import { load, reach, request, run } from "./ts_script.mjs";

const { Client } = await load("@modelcontextprotocol/sdk/client/index.js");
const { StdioClientTransport } = await load("@modelcontextprotocol/sdk/client/stdio.js");
const { StreamableHTTPClientTransport } = await load("@modelcontextprotocol/sdk/client/streamableHttp.js");
const { SSEClientTransport } = await load("@modelcontextprotocol/sdk/client/sse.js");
const { WebSocketClientTransport } = await load("@modelcontextprotocol/sdk/client/websocket.js");
const lines = await load("@modelcontextprotocol/sdk/shared/stdio.js");
const { CreateMessageRequestSchema, ElicitRequestSchema, ListRootsRequestSchema, LoggingMessageNotificationSchema } =
  await load("@modelcontextprotocol/sdk/types.js");

const logs = [];
const questions = [];
const client = new Client({ name: "ts-v1", version: "1.32.2" }, { capabilities: { elicitation: {}, sampling: {}, roots: {} } });
client.setNotificationHandler(LoggingMessageNotificationSchema, ({ params }) => void logs.push(params));
client.setRequestHandler(ElicitRequestSchema, ({ params }) => {
  questions.push(params.message);
  return request.elicitations[params.message];
});
client.setRequestHandler(CreateMessageRequestSchema, () => request.sample);
client.setRequestHandler(ListRootsRequestSchema, () => ({ roots: request.roots }));

const transport = reach({
  Stdio: StdioClientTransport,
  Http: StreamableHTTPClientTransport,
  Sse: SSEClientTransport,
  WebSocket: WebSocketClientTransport,
  lines,
});
// The v1 client hands the negotiated version only to the transport.
const keep = transport.setProtocolVersion?.bind(transport);
transport.setProtocolVersion = (version) => {
  transport.negotiated = version;
  keep?.(version);
};
const report = await run(client, transport, {
  callTool: (params, options) => client.callTool(params, undefined, options),
  era: () => "legacy",
});
console.log(JSON.stringify({ ...report, logs, questions }));
