// An authorization server on npm's `oidc-provider`, which is certified for OpenID Connect. Prints its issuer.
// argv: the folder of the packages, and in JSON `clients`, as the provider takes them, and `documents`, the metadata
// documents of clients by their URLs. Access tokens are JWTs, but opaque for resources with that word in the URL.

import { generateKeyPairSync, randomBytes } from "node:crypto";
import { createServer } from "node:http";
import { createRequire } from "node:module";
import path from "node:path";
import { pathToFileURL } from "node:url";

const [modules, settings] = process.argv.slice(2);
const resolver = createRequire(path.join(modules, "package.json"));
const { default: Provider } = await import(pathToFileURL(resolver.resolve("oidc-provider")).href);
const { clients, documents } = JSON.parse(settings);

const key = (type, options) => generateKeyPairSync(type, options).privateKey.export({ format: "jwk" });

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
        getResourceServerInfo: (ctx, resource) => ({
          scope: "read write",
          audience: resource,
          accessTokenTTL: 3600,
          accessTokenFormat: resource.includes("opaque") ? "opaque" : "jwt",
          jwt: { sign: { alg: "ES256" } },
        }),
      },
      revocation: { enabled: true },
    },
    ttl: { AccessToken: 3600, ClientCredentials: 3600, Grant: 3600, IdToken: 3600, Interaction: 3600, Session: 3600 },
  });
  server.on("request", provider.callback());
  console.log(issuer);
});
