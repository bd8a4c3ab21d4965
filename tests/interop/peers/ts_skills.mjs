// Skills with the TypeScript SDK's v2. argv[2] is a JSON object with the folder of the packages and either
//   {folder}     serve the folder of skills over stdio, in both eras
//   {url, mode}  list the skills of a server, read each file of each, and print what was verified

import { load, request } from "./ts_script.mjs";

if (request.folder) {
  const { McpServer } = await load("@modelcontextprotocol/server");
  const { serveStdio } = await load("@modelcontextprotocol/server/stdio");
  const { loadSkills } = await load("@modelcontextprotocol/server/ext/skills/node");
  const skills = await loadSkills(request.folder);
  serveStdio(() => {
    const server = new McpServer({ name: "ts-skills", version: "2.4.0" });
    skills.attach(server);
    return server;
  });
} else {
  const { Client, StreamableHTTPClientTransport } = await load("@modelcontextprotocol/client");
  const { SkillsClient } = await load("@modelcontextprotocol/client/ext/skills");
  const mode = request.mode === "legacy" ? "legacy" : { pin: request.mode };
  const client = new Client({ name: "ts-skills", version: "2.4.0" }, { versionNegotiation: { mode } });
  await client.connect(new StreamableHTTPClientTransport(new URL(request.url)));
  const skills = new SkillsClient(client, { skipInvalid: true });
  const { skills: entries, invalid } = await skills.list();
  const files = {};
  for (const entry of entries) {
    const resources = entry.resources === "dynamic" ? [{ uri: entry.uri }] : entry.resources;
    for (const { uri } of resources) {
      const { bytes, verified } = await skills.read(entry, uri);
      files[uri] = { base64: Buffer.from(bytes).toString("base64"), verified };
    }
  }
  const refused = [];
  for (const ref of ["none.md", "../other/SKILL.md"]) {
    await skills.read(entries[0], ref).catch((error) => refused.push(error.reason ?? error.name));
  }
  const { resources } = await skills.readDirectory(request.directory);
  const children = resources.map(({ uri, mimeType }) => [uri, mimeType]);
  const { skill } = await skills.get(request.unlisted);
  const unknown = await skills.get("skill://none/SKILL.md").catch((error) => error.code);
  console.log(JSON.stringify({ entries, invalid, files, refused, children, unlisted: skill.uri, unknown }));
  await client.close();
}
