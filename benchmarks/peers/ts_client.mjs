// The TypeScript SDK's client over HTTP, with the interface of ../load/worker.py: after "ready", it measures for each line
// "IN_FLIGHT SECONDS" on stdin, and prints the calls per second and how many there were.
// Usage: node ts_client.mjs MODULES v1|v2 modern|legacy URL
import { createInterface } from "node:readline";

import { load, options, v1 } from "./ts_tools.mjs";

const [era, url] = options;
const B = 7;

async function connected() {
  const info = { name: "benchmark", version: "1.0.0" };
  if (v1) {
    const { Client } = await load("@modelcontextprotocol/sdk/client/index.js");
    const { StreamableHTTPClientTransport } = await load("@modelcontextprotocol/sdk/client/streamableHttp.js");
    const client = new Client(info);
    await client.connect(new StreamableHTTPClientTransport(new URL(url)));
    return client;
  }
  const { Client, StreamableHTTPClientTransport } = await load("@modelcontextprotocol/client");
  const client = new Client(info, { versionNegotiation: { mode: era === "legacy" ? "legacy" : "auto" } });
  await client.connect(new StreamableHTTPClientTransport(new URL(url)));
  return client;
}

const client = await connected();
await client.listTools(); // results are validated by the output schema

async function throughput(inFlight, seconds) {
  let calls = 0;
  const started = performance.now();
  const stop = started + seconds * 1000;
  async function lane(number) {
    for (let a = number; ; a += inFlight) {
      const { structuredContent } = await client.callTool({ name: "add", arguments: { a, b: B } });
      if (structuredContent?.result !== a + B) {
        throw new Error(`add(${a}, ${B}) returned ${JSON.stringify(structuredContent)}`);
      }
      calls += 1;
      if (performance.now() >= stop) return;
    }
  }
  await Promise.all(Array.from({ length: inFlight }, (_, number) => lane(number)));
  return [(calls * 1000) / (performance.now() - started), calls];
}

await throughput(1, 0.05);
console.log("ready");
for await (const line of createInterface({ input: process.stdin })) {
  const [inFlight, seconds] = line.split(" ").map(Number);
  console.log((await throughput(inFlight, seconds)).join(" "));
}
process.exit(0);
