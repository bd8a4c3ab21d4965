// A protected TypeScript server. argv: the folder of the packages, v1 or v2, and for v2 the issuer of its tokens. Version 1 is
// its own authorization server, version 2 asks the issuer about tokens. Prints its URL. A GET of /forget makes version 1
// forget the access tokens.

import { randomUUID } from "node:crypto";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

const [modules, version, issuer] = process.argv.slice(2);
const resolver = createRequire(path.join(modules, "package.json"));
const load = async (name) => await import(pathToFileURL(resolver.resolve(name)).href);

const listener = createServer();
await new Promise((resolve) => listener.listen(0, "127.0.0.1", resolve));
const origin = `http://127.0.0.1:${listener.address().port}`;
const resource = new URL(`${origin}/mcp`);

function build({ McpServer }) {
  const server = new McpServer({ name: `ts-${version}`, version: "1" });
  server.registerTool("whoami", {}, (extra) => ({
    content: [{ type: "text", text: (extra.authInfo ?? extra.http.authInfo).extra.subject }],
  }));
  return server;
}

async function v1() {
  const sdk = {
    ...(await load("@modelcontextprotocol/sdk/server/mcp.js")),
    ...(await load("@modelcontextprotocol/sdk/server/streamableHttp.js")),
    ...(await load("@modelcontextprotocol/sdk/server/auth/router.js")),
    ...(await load("@modelcontextprotocol/sdk/server/auth/errors.js")),
    ...(await load("@modelcontextprotocol/sdk/server/auth/middleware/bearerAuth.js")),
  };
  const { default: express } = await load("express");
  const [clients, codes, access, refresh] = [new Map(), new Map(), new Map(), new Map()];
  const issue = (client, scopes) => {
    const [token, next] = [randomUUID(), randomUUID()];
    const expiresAt = Math.floor(Date.now() / 1000) + 3600;
    access.set(token, { token, clientId: client.client_id, scopes, expiresAt, resource, extra: { subject: "alice" } });
    refresh.set(next, scopes);
    return { access_token: token, token_type: "bearer", expires_in: 3600, refresh_token: next, scope: scopes.join(" ") };
  };
  const provider = {
    clientsStore: {
      getClient: (id) => clients.get(id),
      registerClient: (client) => (clients.set(client.client_id, client), client),
    },
    async authorize(client, params, response) {
      const where = new URL(params.redirectUri);
      const code = randomUUID();
      codes.set(code, params);
      where.searchParams.set("code", code);
      where.searchParams.set("state", params.state);
      response.redirect(where.href);
    },
    challengeForAuthorizationCode: async (client, code) => codes.get(code).codeChallenge,
    async exchangeAuthorizationCode(client, code, verifier, redirect, wanted) {
      const { scopes } = codes.get(code);
      codes.delete(code);
      if (wanted?.href !== resource.href) throw new sdk.InvalidTargetError("resource");
      return issue(client, scopes ?? []);
    },
    async exchangeRefreshToken(client, token) {
      const scopes = refresh.get(token);
      if (!refresh.delete(token)) throw new sdk.InvalidGrantError("unknown");
      return issue(client, scopes);
    },
    async verifyAccessToken(token) {
      const found = access.get(token);
      if (!found) throw new sdk.InvalidTokenError("unknown");
      return found;
    },
    async revokeToken(client, { token }) {
      refresh.delete(token);
    },
  };
  const app = express();
  app.use(sdk.mcpAuthRouter({ provider, issuerUrl: new URL(origin), resourceServerUrl: resource, scopesSupported: ["read"] }));
  app.get("/forget", (request, response) => (access.clear(), response.end()));
  const resourceMetadataUrl = sdk.getOAuthProtectedResourceMetadataUrl(resource);
  const gate = sdk.requireBearerAuth({
    verifier: provider,
    requiredScopes: ["read"],
    resourceMetadataUrl,
    expectedResource: resource,
  });
  app.all("/mcp", gate, async (request, response) => {
    const transport = new sdk.StreamableHTTPServerTransport({ sessionIdGenerator: undefined });
    await build(sdk).connect(transport);
    await transport.handleRequest(request, response);
  });
  listener.on("request", app);
}

async function v2() {
  const sdk = { ...(await load("@modelcontextprotocol/server")), ...(await load("@modelcontextprotocol/node")) };
  const found = await (await fetch(`${issuer}/.well-known/oauth-authorization-server`)).json();
  const verifier = {
    async verifyAccessToken(token) {
      const body = new URLSearchParams({ token, client_id: "resource", client_secret: "secret" });
      const said = await (await fetch(found.introspection_endpoint, { method: "POST", body })).json();
      if (!said.active) throw new sdk.OAuthError(sdk.OAuthErrorCode.InvalidToken, "not active");
      const { client_id: clientId, exp: expiresAt, scope, aud, sub: subject } = said;
      return { token, clientId, scopes: scope.split(" "), expiresAt, resource: new URL(aud), extra: { subject } };
    },
  };
  const metadata = { oauthMetadata: found, resourceServerUrl: resource, scopesSupported: ["read"] };
  const resourceMetadataUrl = sdk.getOAuthProtectedResourceMetadataUrl(resource);
  const gate = sdk.requireBearerAuth({ verifier, requiredScopes: ["read"], resourceMetadataUrl, expectedResource: resource });
  const handler = sdk.createMcpHandler(() => build(sdk));
  const serve = sdk.toNodeHandler({
    async fetch(request) {
      const document = sdk.oauthMetadataResponse(request, metadata);
      if (document) return document;
      const auth = await gate(request);
      return auth instanceof Response ? auth : handler.fetch(request, { authInfo: auth });
    },
  });
  listener.on("request", serve);
}

await { v1, v2 }[version]();
console.log(resource.href);
