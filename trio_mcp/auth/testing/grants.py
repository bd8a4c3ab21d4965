"""The token endpoint: one method for each kind of grant."""

from __future__ import annotations

import base64
import hashlib
import secrets
from collections.abc import Callable
from typing import Any, TypeAlias
from urllib.parse import urlsplit

import attrs

from trio_mcp.auth.rules.steps import Fetch
from trio_mcp.auth.testing.answers import Parameters, Refused, ServerResponse, in_json
from trio_mcp.auth.testing.clients import GRANTS, Clients
from trio_mcp.auth.testing.keys import Keys, Once, ReceivedProofs, audiences, check_times, verified
from trio_mcp.auth.testing.records import AuthoritySettings, Device, Family, IssuedCode, KnownClient
from trio_mcp.auth.testing.tokens import IssuedTokens

__all__ = ["Grants", "check_resources", "read_scopes"]

CODE, REFRESH, CREDENTIALS, DEVICE, ASSERTION, EXCHANGE = GRANTS
ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"
ID_TOKEN = "urn:ietf:params:oauth:token-type:id_token"
ID_JAG_TYPE = "oauth-id-jag+jwt"
ACCESS_TOKEN = "urn:ietf:params:oauth:token-type:access_token"


def read_scopes(
    parameters: Parameters, settings: AuthoritySettings, allowed: frozenset[str] | None = None
) -> frozenset[str]:
    """Return the scopes that a request asks for; if it names none, all that are allowed.

    Args:
        parameters: The parameters of the request.
        settings: The settings of the server.
        allowed: The scopes that may be requested; None for all scopes of the server, in which case those of OpenID are
            granted only if the request names them.

    Raises:
        Refused: If a requested scope is not allowed.
    """
    text = parameters.get("scope")
    known = frozenset(settings["scopes"]) if allowed is None else allowed
    if text is None:
        return known if allowed is not None else known - {"offline_access", "openid"}
    if not (scopes := frozenset(text.split(" "))) <= known:
        raise Refused("invalid_scope", "one of the requested scopes is not available")
    return scopes


def check_resources(
    parameters: Parameters, settings: AuthoritySettings, allowed: tuple[str, ...] = ()
) -> tuple[str, ...]:
    """Check the resources that a request names, and return them; none if the server ignores them.

    Args:
        parameters: The parameters of the request.
        settings: The settings of the server.
        allowed: The resources that may be named; empty for any.

    Raises:
        Refused: If a resource is not an absolute URI without a fragment, or is not allowed (RFC 8707, section 2), or if
            the server refuses all.
    """
    if settings["resource"] == "ignored":
        return ()
    if settings["resource"] == "refused" and parameters.resources:
        raise Refused("invalid_request", "the parameter 'resource' is not supported")
    for each in parameters.resources:
        parts = urlsplit(each)
        if not parts.scheme or not parts.netloc or "#" in each or (allowed and each not in allowed):
            raise Refused(
                "invalid_target", "a requested resource is not allowed, or is not an absolute URI without a fragment"
            )
    return parameters.resources


@attrs.frozen
class TokenRequest:
    """A request to the token endpoint."""

    request: Fetch
    url: str
    parameters: Parameters
    jkt: str | None


Grant: TypeAlias = Callable[[TokenRequest], dict[str, Any]]


class Grants:
    """The token endpoint of one server.

    Attributes:
        codes: The authorization codes that were issued, by code.
        devices: The devices that have requested a code, by device code.
    """

    def __init__(
        self, settings: AuthoritySettings, keys: Keys, clients: Clients, tokens: IssuedTokens, proofs: ReceivedProofs
    ) -> None:
        self._settings = settings
        self._keys = keys
        self._clients = clients
        self._tokens = tokens
        self._proofs = proofs
        self._assertions = Once(lambda: settings["clock"]())
        self.codes: dict[str, IssuedCode] = {}
        self.devices: dict[str, Device] = {}
        self._grants: dict[str, Grant] = {
            CODE: self._code,
            REFRESH: self._refresh,
            CREDENTIALS: self._credentials,
            DEVICE: self._device,
            ASSERTION: self._assertion,
            EXCHANGE: self._exchange,
        }

    def token(self, request: Fetch, parameters: Parameters, url: str) -> ServerResponse:
        """Respond to a request for tokens."""
        grant = self._grants.get(parameters["grant_type"])
        if grant is None:
            raise Refused("unsupported_grant_type", "this grant_type is not supported")
        settings = self._settings
        jkt = None if settings["dpop"] == "off" else self._proofs.thumbprint(request, url)
        if settings["dpop"] == "require" and jkt is None:
            raise Refused("invalid_dpop_proof", "the token request must contain a DPoP proof")
        said = grant(TokenRequest(request, url, parameters, jkt))
        return in_json(said, fields={"DPoP-Nonce": self._proofs.nonce} if jkt and settings["dpop_nonces"] else None)

    def _client(self, asked: TokenRequest) -> KnownClient:
        client = self._clients.authenticate(asked.request, asked.parameters, asked.url)
        if asked.parameters["grant_type"] not in client.grants:
            raise Refused("unauthorized_client", "the client is not registered for this grant_type")
        return client

    def _code(self, asked: TokenRequest) -> dict[str, Any]:
        client, parameters = self._client(asked), asked.parameters
        code = self.codes.get(parameters["code"])
        # This check comes before the code counts as used, so that another client that has seen the code can't cause a
        # revocation.
        if code is None or code.family.client != client.id:
            raise Refused("invalid_grant", "the code is unknown, or was issued to a different client")
        if code.used:  # the code may have been stolen (RFC 6749, section 4.1.2)
            code.family.revoked = True
            raise Refused("invalid_grant", "the code was used before")
        code.used = True
        digest = hashlib.sha256(parameters["code_verifier"].encode()).digest()
        if base64.urlsafe_b64encode(digest).rstrip(b"=").decode() != code.challenge:
            raise Refused("invalid_grant", "the code_verifier does not match the challenge")
        if code.expires_at <= self._settings["clock"]() or parameters.get("redirect_uri") != code.redirect:
            raise Refused(
                "invalid_grant", "the code has expired, or redirect_uri differs from the authorization request"
            )
        family = code.family
        if family.jkt not in (None, asked.jkt):
            raise Refused(
                "invalid_grant", "the code is bound to a DPoP key, but the request has no proof with that key"
            )
        return self._consented(asked, client, family)

    def _consented(self, asked: TokenRequest, client: KnownClient, family: Family) -> dict[str, Any]:
        """Issue the first tokens after a person's consent, and return the response."""
        # Only the refresh tokens of public clients are bound to keys (RFC 9449, section 5).
        family.jkt = asked.jkt if client.method == "none" else None
        resources = check_resources(asked.parameters, self._settings, family.resources)
        # If the server offers `offline_access`, only a client that asks for it gets a refresh token (OpenID Connect
        # Core, section 11).
        asks = "offline_access" in family.scopes or "offline_access" not in self._settings["scopes"]
        return self._tokens.issue(family, family.scopes, resources, asked.jkt, REFRESH in client.grants and asks)

    def _refresh(self, asked: TokenRequest) -> dict[str, Any]:
        client, parameters = self._client(asked), asked.parameters
        token = parameters["refresh_token"]
        owner = self._tokens.owner(token)
        if owner is not None:  # a refusal before `exchange` does not use up the token
            scopes = read_scopes(parameters, self._settings, owner.scopes)
            resources = check_resources(parameters, self._settings, owner.resources)
            if owner.jkt not in (None, asked.jkt):
                raise Refused(
                    "invalid_grant",
                    "the refresh token is bound to a DPoP key, but the request has no proof with that key",
                )
        family = self._tokens.exchange(token, client)
        if family is None:
            raise Refused("invalid_grant", "the refresh token is unknown, revoked or already used")
        return self._tokens.issue(family, scopes, resources, asked.jkt, refresh=True)

    def _credentials(self, asked: TokenRequest) -> dict[str, Any]:
        client = self._client(asked)
        if client.method == "none":
            raise Refused("unauthorized_client", "a public client can't use the client_credentials grant")
        scopes, resources = (
            read_scopes(asked.parameters, self._settings),
            check_resources(asked.parameters, self._settings),
        )
        return self._without_person(asked, client.id, client.id, scopes, resources)

    def _without_person(
        self, asked: TokenRequest, subject: str, client: str, scopes: frozenset[str], resources: tuple[str, ...]
    ) -> dict[str, Any]:
        family = Family(subject, client, scopes, resources)
        return self._tokens.issue(family, scopes, resources, asked.jkt, refresh=False)

    def start_device(self, request: Fetch, parameters: Parameters, url: str, page: str) -> ServerResponse:
        """Respond to a device that requests a code (RFC 8628)."""
        client = self._clients.authenticate(request, parameters, url)
        if DEVICE not in client.grants:
            raise Refused("unauthorized_client", "the client is not registered for the device authorization grant")
        scopes = read_scopes(parameters, self._settings)
        family = Family(self._settings["user"], client.id, scopes, check_resources(parameters, self._settings))
        code = secrets.token_urlsafe(32)
        # The code has no vowels, so that it spells no word by chance (RFC 8628, section 6.1).
        shown = "-".join("".join(secrets.choice("BCDFGHJKLMNPQRSTVWXZ") for _ in range(4)) for _ in range(2))
        device = self.devices[code] = Device(client.id, shown, family, self._settings["clock"]() + 600)
        said = {"device_code": code, "user_code": shown, "verification_uri": page, "expires_in": 600}
        return in_json(said | {"verification_uri_complete": f"{page}?user_code={shown}", "interval": device.interval})

    def _device(self, asked: TokenRequest) -> dict[str, Any]:
        client = self._client(asked)
        device = self.devices.get(asked.parameters["device_code"])
        now = self._settings["clock"]()
        if device is None or device.client != client.id or device.state == "used":
            raise Refused(
                "invalid_grant", "the device code is unknown or already used, or was issued to a different client"
            )
        if device.expires_at <= now:
            raise Refused("expired_token", "the device code has expired")
        if device.state == "denied":
            raise Refused("access_denied", "the person has said no")
        polled, device.polled_at = device.polled_at, now
        if polled is not None and now < polled + device.interval:
            # RFC 8628, section 3.5: the longer interval is for this request and all later ones.
            device.interval += 5
            raise Refused("slow_down", "the device must poll less often")
        if device.state == "pending":
            raise Refused("authorization_pending", "the person has not answered yet")
        device.state = "used"
        return self._consented(asked, client, device.family)

    def _assertion(self, asked: TokenRequest) -> dict[str, Any]:
        """Grant a token for a client's ID-JAG, or for a workload's own token, which needs no client (RFC 7523).

        For an access token, grant one for another service on behalf of its subject, if the request asks for that.
        """
        if asked.parameters.get("requested_token_use") == "on_behalf_of":
            return self._on_behalf_of(asked)
        header, claims = self._trusted(asked.parameters["assertion"])
        if not isinstance(claims.get("sub"), str) or self._settings["issuer"] not in audiences(claims):
            raise Refused("invalid_grant", "the assertion has no sub, or is not for this server")
        resources = check_resources(asked.parameters, self._settings)
        # A workload presents its token without being a client, but an ID-JAG names the client that may present it.
        if header.get("typ") != ID_JAG_TYPE:
            client_id, allowed = claims["sub"], None
        else:
            client = self._client(asked)
            client_id = client.id
            if claims.get("client_id") != client.id or not self._assertions.use(claims.get("jti"), 3600):
                raise Refused("invalid_grant", "the ID-JAG was issued to a different client, or was used before")
            # An ID-JAG need not name a resource, but if it does, the request must not name another one.
            if (given := claims.get("resource")) is not None:
                if resources not in ((), (given,)):
                    raise Refused("invalid_target", "the ID-JAG is for a resource other than the requested one")
                resources = (given,)
            allowed = frozenset(str(claims["scope"]).split(" ")) if claims.get("scope") else None
        scopes = read_scopes(asked.parameters, self._settings, allowed)
        return self._without_person(asked, claims["sub"], client_id, scopes, resources)

    def _trusted(self, assertion: str) -> tuple[dict[str, Any], dict[str, Any]]:
        for issuer, keys in self._settings["trusted"].items():
            try:
                header, claims = verified(assertion, keys, "invalid_grant")
            except Refused:
                continue
            # An assertion is accepted only if it is signed with the keys of the very issuer that it names.
            if claims.get("iss") == issuer:
                check_times(claims, self._settings["clock"](), "invalid_grant")
                return header, claims
        raise Refused("invalid_grant", "the assertion is not a valid JWT from a trusted issuer")

    def _exchange(self, asked: TokenRequest) -> dict[str, Any]:
        """Exchange an ID token for an ID-JAG for another server, or an access token for another one (RFC 8693)."""
        client, parameters = self._client(asked), asked.parameters
        if self._settings["exchanges"] and parameters["requested_token_type"] == ACCESS_TOKEN:
            if parameters["subject_token_type"] != ACCESS_TOKEN:
                raise Refused("invalid_request", "only an access token can be exchanged for an access token")
            names = {*asked.parameters.resources, *filter(None, [parameters.get("audience")])}
            if len(names) != 1 or not names <= self._settings["exchanges"].keys():
                raise Refused("invalid_target", "audience or resource must name one service that tokens are issued for")
            said = self._for_another(asked, client, parameters["subject_token"], names.pop())
            return said | {"issued_token_type": ACCESS_TOKEN}
        if parameters["requested_token_type"] != ID_JAG or parameters["subject_token_type"] != ID_TOKEN:
            raise Refused("invalid_request", "only an ID token can be exchanged, and only for an ID-JAG")
        header, said = verified(parameters["subject_token"], self._keys, "invalid_grant")
        now = int(self._settings["clock"]())
        check_times(said, now, "invalid_grant")
        # Access tokens and ID-JAGs are signed with the same keys as ID tokens, so only the type tells them apart.
        if header.get("typ") != "JWT" or client.id not in audiences(said):
            raise Refused("invalid_grant", "the subject_token is not an ID token, or was issued to a different client")
        claims: dict[str, Any] = {"iss": self._settings["issuer"], "sub": said["sub"], "aud": parameters["audience"]}
        claims |= {"client_id": client.id, "jti": secrets.token_urlsafe(16), "iat": now, "exp": now + 300}
        if resources := check_resources(parameters, self._settings):
            claims["resource"] = resources[0]
        if (scope := parameters.get("scope")) is not None:
            claims["scope"] = scope
        token = self._keys.sign(ID_JAG_TYPE, claims)
        # RFC 8693, section 2.2.1: the type is N_A, since an ID-JAG is not an access token.
        return {"access_token": token, "issued_token_type": ID_JAG, "token_type": "N_A", "expires_in": 300}

    def _on_behalf_of(self, asked: TokenRequest) -> dict[str, Any]:
        """Exchange an access token as Entra does: the scopes name the service."""
        client, scopes = self._client(asked), frozenset(asked.parameters["scope"].split(" "))
        for service, known in self._settings["exchanges"].items():
            if scopes <= frozenset(known):
                return self._for_another(asked, client, asked.parameters["assertion"], service)
        raise Refused("invalid_scope", "the scopes must be those of one service that tokens are issued for")

    def _for_another(self, asked: TokenRequest, client: KnownClient, subject: str, service: str) -> dict[str, Any]:
        """Issue an access token for another service to the subject of an access token."""
        if client.method == "none":
            raise Refused("unauthorized_client", "a public client can't exchange access tokens")
        claims = self._tokens.claims_of(subject)
        if claims is None:
            raise Refused("invalid_grant", "the token to exchange is unknown, expired or revoked")
        if "cnf" in claims and claims["cnf"]["jkt"] != asked.jkt:
            raise Refused("invalid_grant", "the token to exchange is bound to a key that the request does not prove")
        scopes = read_scopes(asked.parameters, self._settings, frozenset(self._settings["exchanges"][service]))
        family = Family(claims["sub"], client.id, scopes, (service,))
        return self._tokens.issue(family, scopes, (service,), asked.jkt, refresh=False)
