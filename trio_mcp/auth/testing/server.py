"""`AuthorizationServer`: its metadata, its endpoints, and a method that serves them."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, MutableSequence
from typing import Any, Unpack
from urllib.parse import parse_qsl, urlsplit

import attrs
import trio

from trio_mcp._keywords import refuse_unknown
from trio_mcp._settings import completed
from trio_mcp.auth.rules.steps import Fetch
from trio_mcp.auth.testing.answers import Parameters, Refused, ServerResponse, answer, in_json, redirection
from trio_mcp.auth.testing.asgi import respond, served
from trio_mcp.auth.testing.clients import GRANTS, METHODS, Clients, matches
from trio_mcp.auth.testing.faults import Fault
from trio_mcp.auth.testing.grants import Grants, check_resources, read_scopes
from trio_mcp.auth.testing.keys import ALGORITHMS, Keys, ReceivedProofs
from trio_mcp.auth.testing.records import AuthoritySettings, Family, IssuedCode, KnownClient
from trio_mcp.auth.testing.tokens import IssuedTokens
from trio_mcp.http.headers import Headers
from trio_mcp.http.server.asgi import ReceiveCallable, Scope, SendCallable

__all__ = ["AuthorizationServer", "Seen"]

OAUTH, OPENID = "/.well-known/oauth-authorization-server", "/.well-known/openid-configuration"
ID_JAG_PROFILE = "urn:ietf:params:oauth:grant-profile:id-jag"
CODE_LIFE = 60
REMEMBERED = 100_000
"""The maximum number of requests that are remembered (arbitrary)."""


@attrs.frozen
class Seen:
    """A request that the server got.

    Attributes:
        endpoint: The endpoint that the request was for; an empty string if there is no such endpoint.
        parameters: The parameters: of a POST those of the form in its body, otherwise those of the query.
        request: The request itself.
    """

    endpoint: str
    parameters: Mapping[str, str]
    request: Fetch


class AuthorizationServer:
    """An authorization server for tests and demos; never for production.

    It keeps everything in memory and says yes to everyone: opening the authorization URL signs ``user`` in.
    Otherwise it is strict. The server is an ASGI application; `served` serves it, and `handle` needs no event loop.

    Args:
        issuer: The issuer; see `AuthoritySettings`.
        faults: The faults, by endpoint: ``"metadata"``, ``"jwks"``, ``"register"``, ``"authorize"``, ``"token"``,
            ``"device"``, ``"revoke"``, ``"introspect"``, and ``""`` for whatever else is asked for. Each request uses
            up one fault of a list.
        settings: Further settings; see `AuthoritySettings`.

    Attributes:
        issuer: The issuer.
        denies: Whether the person refuses consent.
        faults: The faults; may be changed at any time.
        seen: The requests so far.
        settings: All settings, `issuer` among them; may be changed at any time.
        keys: The keys that it signs with.
        clients: The clients that it knows.
        issued: The tokens that it has issued.
        proofs: The DPoP proofs that it has seen.
    """

    def __init__(
        self,
        issuer: str = "https://id.example.com",
        /,
        *,
        faults: Mapping[str, Fault | MutableSequence[Fault]] | None = None,
        **settings: Unpack[AuthoritySettings],
    ) -> None:
        refuse_unknown(type(self), settings, AuthoritySettings)
        self.settings = given = completed(AuthoritySettings, {"issuer": issuer, **settings})
        # The dict is copied, because a test may add trusted issuers to it, and the default is shared by all servers.
        given["trusted"] = dict(given["trusted"])
        self.denies = False
        self.faults: dict[str, Fault | MutableSequence[Fault]] = dict(faults or {})
        self.seen: list[Seen] = []
        self.keys = Keys()
        self.clients = Clients(given)
        self.issued = IssuedTokens(given, self.keys)
        # The two functions read the settings on each call, since a test may change them at any time.
        self.proofs = ReceivedProofs(lambda: given["clock"](), lambda: given["dpop_nonces"])
        self._grants = Grants(given, self.keys, self.clients, self.issued, self.proofs)

    @property
    def issuer(self) -> str:
        return self.settings["issuer"]

    # --- for tests to call -------------------------------------------------------------------------------------------

    def add_client(
        self,
        id: str,
        secret: str | None = None,
        *,
        redirects: Iterable[str] = (),
        method: str | None = None,
        grants: Iterable[str] = GRANTS,
        jwks: Mapping[str, Any] | None = None,
    ) -> None:
        """Register a client beforehand.

        Args:
            id: The ``client_id``.
            secret: The client's secret, if it has one.
            redirects: The redirect URIs of the client; on loopback, any port is accepted.
            method: The method by which the client authenticates; by default its keys, otherwise Basic with its
                secret, or none if it has neither.
            grants: The grant types that the client may use.
            jwks: The public keys of the client.
        """
        if method is None:
            method = "private_key_jwt" if jwks is not None else "none" if secret is None else "client_secret_basic"
        self.clients.add(
            KnownClient(
                id=id, secret=secret, method=method, redirects=tuple(redirects), grants=frozenset(grants), jwks=jwks
            )
        )

    def sign_in(self, url: str) -> dict[str, str]:
        """Act as the person: open an authorization URL, and return the parameters of the redirection.

        Raises:
            ValueError: If the server responds with a page instead, as it does to an unknown client.
        """
        return dict(parse_qsl(urlsplit(self._visited(url)).query))

    async def show(self, url: str) -> str:
        """Act as the person for ``OAuth(show=...)``: open an authorization URL, and return the URL that it leads to.

        Raises:
            ValueError: As for `sign_in`.
        """
        await trio.lowlevel.checkpoint()
        return self._visited(url)

    def _visited(self, url: str) -> str:
        given = self.handle(Fetch("authorization", "GET", url))
        location = given.headers.get("Location")
        if location is None:
            raise ValueError(f"the authorization server shows a page instead of redirecting: {given.body.decode()}")
        return location

    def approve(self, user_code: str, *, deny: bool = False) -> None:
        """Act as the person: enter a device's code, and approve or deny the device.

        Raises:
            ValueError: If no device is waiting for approval with that code.
        """
        for device in self._grants.devices.values():
            if device.user_code == user_code and device.state == "pending":
                device.state = "denied" if deny else "approved"
                return
        raise ValueError("no device with this user code is waiting for approval")

    def make_token(self, **claims: Any) -> str:
        """Return an access token that no client has asked for, such as one that has expired.

        Args:
            claims: The claims in place of those that a token of ``user`` has; None removes one. ``aud``, for example,
                is the server that the token is for.
        """
        return self.issued.make(claims)

    def claims_of(self, token: str) -> dict[str, Any] | None:
        """Return the claims of an access token; None if it is unknown, expired or revoked."""
        return self.issued.claims_of(token)

    def count(self, endpoint: str, **parameters: str) -> int:
        """Return how many requests with these parameters an endpoint got."""
        return sum(each.endpoint == endpoint and parameters.items() <= each.parameters.items() for each in self.seen)

    # --- responding --------------------------------------------------------------------------------------------------

    def handle(self, request: Fetch) -> ServerResponse:
        """Respond to a request for a URL of this server."""
        endpoint, parameters = self._endpoint(request), _parameters(request)
        if len(self.seen) < REMEMBERED:
            self.seen.append(Seen(endpoint, dict(parameters), request))
        fault = self.faults.get(endpoint)
        if isinstance(fault, MutableSequence):
            fault = fault.pop(0) if fault else None
        return self._handle(request) if fault is None else fault(request, self._handle)

    def _endpoint(self, request: Fetch) -> str:
        given, issuer = urlsplit(request.url), urlsplit(self.issuer)
        if given[:2] != issuer[:2]:
            return ""
        root = issuer.path.rstrip("/")
        # The well-known part comes before the path (RFC 8414, section 3.1), or after it (OpenID Connect Discovery,
        # section 4).
        known = {"oauth": {OAUTH + root}, "openid": {OPENID + root, root + OPENID}}
        known |= {"both": known["oauth"] | known["openid"], "none": set()}
        if given.path in known[self.settings["discovery"]]:
            return "metadata"
        name = given.path.removeprefix(root + "/")
        # The path is compared again, as `removeprefix` returns a path outside the root unchanged.
        return name if given.path == f"{root}/{name}" and name in self._endpoints else ""

    @property
    def _endpoints(self) -> dict[str, tuple[str, Callable[[Fetch, Parameters], ServerResponse]]]:
        return {
            "metadata": ("GET", lambda request, parameters: in_json(self.metadata())),
            "jwks": ("GET", lambda request, parameters: in_json(self.keys.published())),
            "authorize": ("GET", self._authorize),
            "verify": ("GET", self._verify),
            "register": ("POST", lambda request, parameters: self.clients.register(request.body)),
            "token": ("POST", lambda request, parameters: self._grants.token(request, parameters, self._url("token"))),
            "device": (
                "POST",
                lambda request, parameters: self._grants.start_device(
                    request, parameters, self._url("device"), self._url("verify")
                ),
            ),
            "revoke": ("POST", self._revoke),
            "introspect": ("POST", self._introspect),
        }

    def _handle(self, request: Fetch) -> ServerResponse:
        endpoint = self._endpoint(request)
        found = self._endpoints.get(endpoint)
        if found is None or (endpoint == "register" and not self.settings["registration"]):
            return answer(404)
        method, function = found
        if request.method != method:
            return answer(405, fields={"Allow": method})
        try:
            return function(request, Parameters(_parameters(request)))
        except Refused as refused:
            return refused.answer()

    def _url(self, endpoint: str) -> str:
        return f"{self.issuer.rstrip('/')}/{endpoint}"

    def metadata(self) -> dict[str, Any]:
        """Return the metadata that the server publishes (RFC 8414)."""
        settings = self.settings
        said: dict[str, Any] = {
            "issuer": self.issuer,
            "authorization_endpoint": self._url("authorize"),
            "token_endpoint": self._url("token"),
            "revocation_endpoint": self._url("revoke"),
            "introspection_endpoint": self._url("introspect"),
            "device_authorization_endpoint": self._url("device"),
            "jwks_uri": self._url("jwks"),
            "scopes_supported": list(settings["scopes"]),
            "response_types_supported": ["code"],
            "response_modes_supported": ["query"],
            "grant_types_supported": list(GRANTS),
            "token_endpoint_auth_methods_supported": list(METHODS),
            "token_endpoint_auth_signing_alg_values_supported": list(ALGORITHMS),
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": True,
            "client_id_metadata_document_supported": settings["documents"] is not None,
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        }
        if settings["registration"]:
            said["registration_endpoint"] = self._url("register")
        if settings["dpop"] != "off":
            said["dpop_signing_alg_values_supported"] = ["ES256"]
        if settings["trusted"]:
            said["authorization_grant_profiles_supported"] = [ID_JAG_PROFILE]
        return said

    def _authorize(self, request: Fetch, parameters: Parameters) -> ServerResponse:
        # A problem with the client or the redirect URI is shown on a page, because a redirection might lead to an
        # attacker.
        client = self.clients.find(parameters["client_id"], "invalid_request")
        # The redirect URI may be left out if only one is registered (RFC 6749, section 3.1.2.3).
        redirect = parameters.get("redirect_uri") or (client.redirects[0] if len(client.redirects) == 1 else "")
        if not matches(redirect, client.redirects):
            raise Refused("invalid_request", "the redirect URI is not registered for this client")
        # `state` and `iss` are sent with errors, too (RFC 9207, section 2).
        said = {"state": parameters.get("state"), "iss": self.issuer}
        try:
            return redirection(redirect, {"code": self._code_for(client, parameters), **said})
        except Refused as refused:
            return redirection(redirect, {"error": refused.error, "error_description": refused.description, **said})

    def _code_for(self, client: KnownClient, parameters: Parameters) -> str:
        if parameters["response_type"] != "code":
            raise Refused("unsupported_response_type", "response_type must be 'code'")
        # A SHA-256 digest has 32 bytes, which are 43 characters in Base64url.
        if parameters["code_challenge_method"] != "S256" or len(parameters["code_challenge"]) != 43:
            raise Refused("invalid_request", "the code_challenge is not an S256 challenge")
        if "authorization_code" not in client.grants:
            raise Refused("unauthorized_client", "the client is not registered for authorization codes")
        scopes, resources = read_scopes(parameters, self.settings), check_resources(parameters, self.settings)
        if self.denies:
            raise Refused("access_denied", "the person has said no")
        jkt = parameters.get("dpop_jkt")
        family = Family(self.settings["user"], client.id, scopes, resources, jkt, nonce=parameters.get("nonce"))
        code = secrets.token_urlsafe(32)
        self._grants.codes[code] = IssuedCode(
            family,
            parameters.get("redirect_uri"),
            parameters["code_challenge"],
            self.settings["clock"]() + CODE_LIFE,
        )
        return code

    def _verify(self, request: Fetch, parameters: Parameters) -> ServerResponse:
        try:
            self.approve(parameters["user_code"], deny=self.denies)
        except ValueError as error:
            raise Refused("invalid_request", str(error)) from None
        return answer(200, b"The device may go on.", {"Content-Type": "text/plain"})

    def _revoke(self, request: Fetch, parameters: Parameters) -> ServerResponse:
        client = self.clients.authenticate(request, parameters, self._url("revoke"))
        family = self.issued.owner(parameters["token"])
        if family is not None and family.client == client.id:
            self.issued.revoke(parameters["token"])
        return answer(200)  # an invalid token gets a 200, too (RFC 7009, section 2.2)

    def _introspect(self, request: Fetch, parameters: Parameters) -> ServerResponse:
        client = self.clients.authenticate(request, parameters, self._url("introspect"))
        # The client must prove who it is, because otherwise anyone could try out tokens (RFC 7662, section 2.1).
        if client.method == "none":
            raise Refused("invalid_client", "public clients may not introspect tokens", 401)
        claims = self.issued.claims_of(parameters["token"])
        if claims is None:
            return in_json({"active": False})
        return in_json({"active": True, "token_type": "DPoP" if "cnf" in claims else "Bearer", **claims})

    # --- serving -----------------------------------------------------------------------------------------------------

    async def __call__(self, scope: Scope, receive: ReceiveCallable, send: SendCallable) -> None:
        """Respond to a request that an ASGI server passes on."""
        await respond(self.issuer, self.handle, scope, receive, send)

    @contextlib.asynccontextmanager
    async def served(self, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
        """Serve this server for the duration of a block; set the issuer to the server's URL, and yield that.

        Args:
            host: The address to listen at.
            port: The port; 0 means any free port.
        """
        async with served(self, host, port) as url:
            # The issuer's port is known only now; its path stays as it was.
            self.settings["issuer"] = url + urlsplit(self.issuer).path.rstrip("/")
            yield self.issuer


def _parameters(request: Fetch) -> list[tuple[str, str]]:
    text = urlsplit(request.url).query
    if request.method == "POST":  # a secret must not be in a URL (RFC 6749, section 2.3.1)
        form = Headers(request.fields.items()).media_type == "application/x-www-form-urlencoded"
        text = request.body.decode("latin-1") if form else ""
    return parse_qsl(text, keep_blank_values=True)
