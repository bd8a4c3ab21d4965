// A TypeScript client that signs in, calls `whoami` and `write`, loses its token, and calls `whoami` again.
// argv: the folder of the packages, v1 or v2, and the URL. Prints in JSON what the calls said (texts, or the code of an
// error), and how often a person was asked.

import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

const [modules, version, url] = process.argv.slice(2);
const resolver = createRequire(path.join(modules, "package.json"));
const load = async (name) => await import(pathToFileURL(resolver.resolve(name)).href);
const sdk =
  version === "v1"
    ? {
        ...(await load("@modelcontextprotocol/sdk/client/index.js")),
        ...(await load("@modelcontextprotocol/sdk/client/streamableHttp.js")),
      }
    : await load("@modelcontextprotocol/client");

let known, tokens, verifier, code, iss;
let asked = 0;
const provider = {
  redirectUrl: "http://127.0.0.1:8765/callback",
  clientMetadata: {
    redirect_uris: ["http://127.0.0.1:8765/callback"],
    client_name: "ts",
    grant_types: ["authorization_code", "refresh_token"],
    token_endpoint_auth_method: "none",
  },
  clientInformation: () => known,
  saveClientInformation: (given) => void (known = given),
  tokens: () => tokens,
  saveTokens: (given) => void (tokens = given),
  saveCodeVerifier: (given) => void (verifier = given),
  codeVerifier: () => verifier,
  // The person: the authorization server redirects at once.
  redirectToAuthorization: async (where) => {
    asked += 1;
    const { searchParams } = new URL((await fetch(where, { redirect: "manual" })).headers.get("location"));
    code = searchParams.get("code");
    iss = searchParams.get("iss") ?? undefined;
  },
};

async function connect() {
  const mode = version === "v2" && { versionNegotiation: { mode: "auto" } };
  const client = new sdk.Client({ name: `ts-${version}`, version: "1" }, { capabilities: {}, ...mode });
  const transport = new sdk.StreamableHTTPClientTransport(new URL(url), { authProvider: provider });
  return { client, transport, connected: client.connect(transport) };
}

let client, transport;
async function signedIn(act) {
  try {
    return await act();
  } catch (error) {
    if (!code) throw error;
    const given = code;
    code = undefined;
    await transport.finishAuth(given, iss);
    return await act();
  }
}

await signedIn(async () => {
  const made = await connect();
  ({ client, transport } = made);
  await made.connected;
});
const text = async (name) => (await signedIn(() => client.callTool({ name, arguments: {} }))).content[0].text;
const said = [await text("whoami"), await text("write").catch((error) => error.code)];
tokens = { ...tokens, access_token: "lost" };
said.push(await text("whoami"));
console.log(JSON.stringify({ said, asked }));
await client.close();
