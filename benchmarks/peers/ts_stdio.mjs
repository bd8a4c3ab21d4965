// The TypeScript SDK's server on stdio: v1 speaks the legacy era, v2 both. Usage: node ts_stdio.mjs MODULES v1|v2
import { load, serverBuilder, v1 } from "./ts_tools.mjs";

const build = await serverBuilder();
if (v1) {
  const { StdioServerTransport } = await load("@modelcontextprotocol/sdk/server/stdio.js");
  await build().connect(new StdioServerTransport());
} else {
  const { serveStdio } = await load("@modelcontextprotocol/server/stdio");
  serveStdio(build);
}
