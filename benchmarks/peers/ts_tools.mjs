// What the programs on the TypeScript SDK share: its packages, from the folder that is the first argument, in the
// version ("v1" or "v2") that is the second; and a server with the tools of the other contenders.
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

const [modules, version, ...rest] = process.argv.slice(2);
export const v1 = version === "v1";
export const options = rest;

const resolver = createRequire(path.join(modules, "package.json"));
export const load = (name) => import(pathToFileURL(resolver.resolve(name)).href);

export async function serverBuilder() {
  const { z } = await load("zod");
  const { McpServer } = await load(v1 ? "@modelcontextprotocol/sdk/server/mcp.js" : "@modelcontextprotocol/server");
  const shape = (fields) => (v1 ? fields : z.object(fields));
  const answer = (value) => ({
    content: [{ type: "text", text: String(value) }],
    structuredContent: { result: value },
  });
  // The schemas are made once: a server that is made for each request should not pay for that again.
  const tools = {
    add: {
      description: "Add two integers.",
      inputSchema: shape({ a: z.number().int(), b: z.number().int() }),
      outputSchema: shape({ result: z.number().int() }),
      run: async ({ a, b }) => answer(a + b),
    },
    echo: {
      description: "Give the text back.",
      inputSchema: shape({ text: z.string() }),
      outputSchema: shape({ result: z.string() }),
      run: async ({ text }) => answer(text),
    },
    pause: {
      description: "Sleep for a while.",
      inputSchema: shape({ seconds: z.number() }),
      outputSchema: shape({ result: z.string() }),
      run: async ({ seconds }) => {
        await new Promise((done) => setTimeout(done, seconds * 1000));
        return answer("done");
      },
    },
  };
  return () => {
    const server = new McpServer({ name: "benchmark", version: "1.0.0" });
    for (const [name, { run, ...config }] of Object.entries(tools)) server.registerTool(name, config, run);
    return server;
  };
}
