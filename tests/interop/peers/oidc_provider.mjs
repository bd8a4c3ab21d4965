// An authorization server on npm's `oidc-provider`, which is certified for OpenID Connect. Prints its issuer.
// argv: the folder of the packages, and in JSON `clients`, as the provider takes them, and `documents`, the metadata
// documents of clients by their URLs, and `services`, for which tokens can be exchanged. Access tokens are JWTs, but opaque for resources with that word in the URL.

import { generateKeyPairSync, randomBytes } from "node:crypto";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

const [modules, settings] = process.argv.slice(2);
const resolver = createRequire(path.join(modules, "package.json"));
const { default: Provider, errors } = await import(pathToFileURL(resolver.resolve("oidc-provider")).href);
const { clients, documents, services } = JSON.parse(settings);

const key = (type, options) => generateKeyPairSync(type, options).privateKey.export({ format: "jwk" });

const resourceServer = (ctx, resource) => ({
  scope: "read write",
  audience: resource,
  accessTokenTTL: 3600,
  accessTokenFormat: resource.includes("opaque") ? "opaque" : "jwt",
  jwt: { sign: { alg: "ES256" } },
});

// The provider has no token exchange (RFC 8693), but a place for grants of one's own. Opaque tokens can be exchanged.
const EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange";
const ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token";
const exchange = (provider) => async (ctx) => {
  const { client, params } = ctx.oidc;
  if (params.subject_token_type !== ACCESS_TOKEN || params.requested_token_type !== ACCESS_TOKEN) {
    throw new errors.InvalidRequest("only access tokens are exchanged");
  }
  const subject = await provider.AccessToken.find(params.subject_token ?? "");
  if (!subject?.isValid) throw new errors.InvalidGrant("the subject_token is unknown or has expired");
  const audience = params.audience ?? params.resource;
  if (!services.includes(audience)) throw new errors.InvalidTarget("no tokens are issued for this service");
  const token = new provider.AccessToken({ accountId: subject.accountId, client, grantId: subject.grantId, gty: "exchange" });
  token.resourceServer = new provider.ResourceServer(audience, resourceServer(ctx, audience));
  token.scope = params.scope;
  ctx.oidc.entity("AccessToken", token);
  ctx.body = {
    access_token: await token.save(),
    issued_token_type: ACCESS_TOKEN,
    token_type: token.tokenType,
    expires_in: token.expiration,
    scope: token.scope,
  };
};

const server = createServer();
server.listen(0, "127.0.0.1", () => {
  const issuer = `http://127.0.0.1:${server.address().port}`;
  const provider = new Provider(issuer, {
    clients,
    // It registers no client without an RSA key: that is the default for ID tokens.
    jwks: { keys: [key("ec", { namedCurve: "P-256" }), key("rsa", { modulusLength: 2048 })] },
    cookies: { keys: [randomBytes(16).toString("hex")] },
    // No network and no TLS is needed for the documents of clients.
    fetch: async (url) => Response.json(documents[url] ?? {}, { status: documents[url] ? 200 : 404 }),
    features: {
      clientIdMetadataDocument: { enabled: true, ack: "draft-02" },
      deviceFlow: { enabled: true },
      dPoP: { enabled: true, nonceSecret: randomBytes(32), requireNonce: () => true },
      introspection: { enabled: true, allowedPolicy: () => true },
      registration: { enabled: true },
      resourceIndicators: {
        enabled: true,
        getResourceServerInfo: resourceServer,
      },
      revocation: { enabled: true },
    },
    ttl: { AccessToken: 3600, ClientCredentials: 3600, Grant: 3600, IdToken: 3600, Interaction: 3600, Session: 3600 },
  });
  const names = ["audience", "resource", "scope", "subject_token", "subject_token_type", "requested_token_type"];
  provider.registerGrantType(EXCHANGE, exchange(provider), names);
  server.on("request", provider.callback());
  console.log(issuer);
});
