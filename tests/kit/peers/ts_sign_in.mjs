// A client on the TypeScript SDK (v1 or v2) that signs in, and calls each tool a few times.
//
// Usage: ts_sign_in.mjs <folder of the packages> v1|v2 legacy|auto URL. `python_sign_in.py` is the same in Python.

import { randomUUID } from "node:crypto";
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

const [modules, version, mode, url] = process.argv.slice(2);
const resolver = createRequire(path.join(modules, "package.json"));
const load = async (name) => await import(pathToFileURL(resolver.resolve(name)).href);
const v1 = version === "v1";
const names = v1 ? ["client/index.js", "client/streamableHttp.js"].map((file) => `@modelcontextprotocol/sdk/${file}`) : ["@modelcontextprotocol/client"];
const sdk = Object.assign({}, ...(await Promise.all(names.map(load))));

const REDIRECT = "http://127.0.0.1:8765/callback";
let known, tokens, verifier, state, came;
const provider = {
  redirectUrl: REDIRECT,
  clientMetadataUrl: "https://client.example/metadata.json",
  clientMetadata: {
    redirect_uris: [REDIRECT],
    client_name: `ts-${version}`,
    grant_types: ["authorization_code", "refresh_token"],
    token_endpoint_auth_method: "none",
  },
  clientInformation: () => known,
  saveClientInformation: (given) => void (known = given),
  tokens: () => tokens,
  saveTokens: (given) => void (tokens = given),
  saveCodeVerifier: (given) => void (verifier = given),
  codeVerifier: () => verifier,
  state: () => (state = randomUUID()),
  // The person's browser, which is redirected at once. The SDK leaves it to its users to compare the state.
  redirectToAuthorization: async (where) => {
    const { searchParams } = new URL((await fetch(where, { redirect: "manual" })).headers.get("location"));
    if (searchParams.get("state") !== state) throw new Error("another state");
    came = searchParams;
  },
};

let client, transport;
async function signedIn(act) {
  for (let tries = 0; ; tries++) {
    try {
      return await act();
    } catch (error) {
      if (!came || tries === 3) throw error;
      const given = came;
      came = undefined;
      await transport.finishAuth(v1 ? given.get("code") : given);
    }
  }
}

await signedIn(async () => {
  client = new sdk.Client({ name: `ts-${version}`, version: "1" }, { capabilities: {}, ...(!v1 && { versionNegotiation: { mode } }) });
  transport = new sdk.StreamableHTTPClientTransport(new URL(url), { authProvider: provider });
  await client.connect(transport);
});
for (const { name } of (await signedIn(() => client.listTools())).tools) {
  for (let time = 0; time < 3; time++) {
    try {
      await signedIn(() => client.callTool({ name, arguments: {} }, ...(v1 ? [undefined] : []), { timeout: 1000 }));
    } catch (error) {
      console.error(String(error));
    }
  }
}
await client.close();
