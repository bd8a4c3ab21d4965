"""The gate of a protected server: it asks clients to sign in, and plays the authorization servers.

Whatever a client sends to sign in is recorded as a mark, ``login``, and so is each request that the gate refuses.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import parse_qsl, urlsplit

from trio_mcp.auth.rules.steps import Fetch
from trio_mcp.auth.testing import faults
from trio_mcp.auth.testing.answers import ServerResponse, answer, in_json
from trio_mcp.auth.testing.faults import Fault
from trio_mcp.auth.testing.server import AuthorizationServer
from trio_mcp.conformance.members import member_of, object_of, parsed
from trio_mcp.conformance.serving.protection import ProtectionScript
from trio_mcp.conformance.transcript.tape import Tape
from trio_mcp.http.headers import Headers
from trio_mcp.types import meta

__all__ = ["ScriptedGate"]

SCOPE, MORE, OTHER = "read", "write", "list"
RESOURCE: Final = "/.well-known/oauth-protected-resource"
ELSEWHERE: Final = "/about/this-server.json"
"""Where the resource metadata is if a 401 names a URL that is not the well-known one."""
DISCOVERY: Final = ("/.well-known/oauth-authorization-server", "/.well-known/openid-configuration")
EXPIRIES: Final = {"expiring": 1, "offline": 1, "unrefreshed": 1, "rotating": 2}
LONGEST: Final = 64 * 1024
"""The longest body of a request to sign in, in bytes (an arbitrary choice)."""


class ScriptedGate:
    """Protects a server against one client, and keeps its authorization servers.

    Args:
        protection: How the server is protected.
        tape: Records what the client sends to sign in.
        server: The URL of the endpoint.
        authority: The origin of the authorization server.
        stranger: Another origin, which the client has no reason to trust.
    """

    def __init__(self, protection: ProtectionScript, tape: Tape, server: str, authority: str, stranger: str) -> None:
        self._protection = protection
        self._tape = tape
        self._server = server
        self._origin = _origin(server)
        self._stranger = stranger
        self._authority = self._made(authority, protection.trap)
        # The second authorization server is honest: a client that signs in there does nothing wrong.
        self._second = self._made(stranger, "")
        self._current = self._authority
        self._expiries = 0
        self._has_moved = False

    def handle(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes, connection: int
    ) -> ServerResponse | None:
        """Respond to a request.

        Args:
            method: The HTTP method.
            url: The URL that was requested.
            headers: The header fields.
            body: The body.
            connection: The number of the connection in the transcript.

        Returns:
            The response; None if the request may pass to the server behind the gate.
        """
        facts: dict[str, Any] = {"to": "elsewhere"}
        try:
            found = self._response(Fetch("", method, url, headers, body), facts)
        # A URL that can't be taken apart, or JSON that is nested too deeply.
        except (ValueError, RecursionError):
            found = answer(400)
        if found is not None:
            # A redirect URI may have characters that no header can.
            if not all(value.isascii() and value.isprintable() for value in found.headers.as_dict().values()):
                found = answer(400)
            pairs = [*headers.items()]
            facts |= {"method": method, "url": url, "headers": pairs, "status": found.status}
            self._tape.note("mark", "kit", connection=connection, what="login", **facts)
        return found

    def _response(self, request: Fetch, facts: dict[str, Any]) -> ServerResponse | None:
        if request.url.partition("?")[0] == self._server:
            return self._refusal(request, facts)
        if len(request.body) > LONGEST:
            return answer(413)
        return (self._document if _origin(request.url) == self._origin else self._authorized)(request, facts)

    # --- the server itself --------------------------------------------------------------------------------------------

    def _refusal(self, request: Fetch, facts: dict[str, Any]) -> ServerResponse | None:
        """Return the response to a request for the endpoint that has no good token; None if it has one."""
        called = parsed(request.body)
        method = object_of(called).get("method")
        named = member_of(called, "params", "_meta", meta.PROTOCOL_VERSION)
        if method == "initialize":
            named = member_of(called, "params", "protocolVersion")
        facts |= {"to": "server", "asks": method, "revision": named, "request_id": object_of(called).get("id")}
        scheme, _, token = str(Headers(request.fields.items()).get("Authorization") or "").partition(" ")
        claims = self._current.claims_of(token.strip()) if scheme.lower() == "bearer" else None
        # The audience is compared without regard to what the metadata called the server.
        if claims is None or not self._is_for_us(claims):
            return self._challenge(401, facts, self._first_scope, "invalid_token" if token else None)
        # Only requests for tools are met with more than a sign-in: all clients make them, and an opening in which a
        # notification is lost would break other rules.
        if method not in ("tools/list", "tools/call"):
            return None
        self._use()
        if method == "tools/call" and self._lacks(str(claims.get("scope")).split()):
            return self._challenge(403, facts, MORE, "insufficient_scope")
        if self._protection.trap == "moved server" and not self._has_moved:
            self._has_moved = True
            return answer(307, fields={"Location": self._stranger + urlsplit(self._server).path})
        return None

    def _is_for_us(self, claims: Mapping[str, Any]) -> bool:
        audience = claims.get("aud")
        names = [audience] if isinstance(audience, str) else audience or []
        # A client that names no resource gets a token for the authorization server; the rules say what is wrong, and
        # the client may go on, to show what else is.
        return any(_origin(str(each)) in (self._origin, _origin(self._current.issuer)) for each in names)

    def _lacks(self, scopes: list[str]) -> bool:
        steps = self._protection.steps
        return steps == "never" or (steps == "up" and MORE not in scopes)

    def _use(self) -> None:
        """Let the token expire after this request, or be refused for good, if that is due."""
        if self._protection.trap == "new authority" and self._current is self._authority:
            self._current = self._second
        elif self._expiries < EXPIRIES.get(self._protection.tokens, 0):
            self._expiries += 1
            self._current.issued.expire()

    @property
    def _first_scope(self) -> str | None:
        return SCOPE if self._protection.scopes in ("challenge", "unrelated") else None

    def _challenge(self, status: int, facts: dict[str, Any], scope: str | None, error: str | None) -> ServerResponse:
        where = {"named": RESOURCE + urlsplit(self._server).path, "elsewhere": ELSEWHERE}.get(self._protection.metadata)
        said = {
            "error": error,
            "scope": scope,
            "resource_metadata": None if where is None else self._origin + where,
        }
        facts["answer"] = {name: value for name, value in said.items() if value is not None}
        bearer = "Bearer " + ", ".join(f'{name}="{value}"' for name, value in facts["answer"].items())
        several = 'Basic realm="staff, and others", ' if self._protection.challenge == "several" else ""
        return answer(status, fields={"WWW-Authenticate": several + bearer.strip()})

    def _document(self, request: Fetch, facts: dict[str, Any]) -> ServerResponse | None:
        """Return what the server's origin has beside the endpoint; None if it is nothing to sign in with."""
        path = urlsplit(request.url).path
        own = urlsplit(self._server).path
        if path in (ELSEWHERE, RESOURCE, RESOURCE + own):
            places = {"named": RESOURCE + own, "path": RESOURCE + own, "root": RESOURCE, "elsewhere": ELSEWHERE}
            facts["to"] = "resource metadata"
            if path != places[self._protection.metadata]:
                return answer(404)
            facts["answer"] = self._resource()
            return in_json(facts["answer"])
        # A client that takes the server for its own authorization server, as in 2025-03-26, finds nothing.
        names = {**dict.fromkeys(DISCOVERY, "authority metadata"), "/register": "register", "/token": "token"}
        kind = next((name for start, name in names.items() if path.startswith(start)), None)
        if kind is None and path != "/authorize":
            return None
        facts |= {"to": kind or "authorize", "sent_form": _form(request)}
        return answer(404)

    def _resource(self) -> dict[str, Any]:
        own = self._server
        if self._protection.resource == "upper":
            own = own.replace("http://", "HTTP://")
        elif self._protection.trap == "other resource":
            own = self._stranger + urlsplit(self._server).path
        listed = {"challenge": [SCOPE, MORE], "unrelated": [OTHER], "listed": [SCOPE]}.get(self._protection.scopes)
        scopes = {} if listed is None else {"scopes_supported": listed}
        return {"resource": own, "authorization_servers": [self._current.issuer], **scopes}

    # --- the authorization servers ------------------------------------------------------------------------------------

    def _made(self, origin: str, trap: str) -> AuthorizationServer:
        """Return an authorization server."""
        protection = self._protection
        path = "/tenant" if protection.issuer == "tenant" else ""
        made = AuthorizationServer(
            origin + path,
            scopes=(SCOPE, MORE, OTHER, *(["offline_access"] if protection.tokens == "offline" else [])),
            tokens="opaque",
            documents=self._client_document if protection.client == "documents" else None,
        )
        announced = protection.iss == "announced" if trap != "unannounced wrong iss" else False
        edits: dict[str, Any] = {"authorization_response_iss_parameter_supported": announced or None}
        said: dict[str, str | None] = {} if protection.iss != "absent" else {"iss": None}
        if "iss" in trap:
            edits["authorization_response_iss_parameter_supported"] = None if "unannounced" in trap else True
            said["iss"] = {"similar iss": f"{origin}{path}/", "no iss": None}.get(trap, self._stranger)
        elif trap in ("wrong state", "no state"):
            said["state"] = "another" if trap == "wrong state" else None
        if trap == "no pkce":
            edits["code_challenge_methods_supported"] = None
        elif trap == "other issuer":
            edits["issuer"] = self._stranger
        found: dict[str, Fault] = {"metadata": faults.edited(**edits)}
        if said:
            found["authorize"] = faults.redirected(**said)
        if trap == "moved token endpoint":
            found["token"] = faults.moved(f"{self._stranger}/token")
        elif protection.tokens == "unrefreshed":
            found["token"] = faults.edited(refresh_token=None)
        if trap == "refused registration":
            refusal = {"error": "invalid_redirect_uri", "error_description": "this redirect URI is not allowed"}
            found["register"] = faults.raw(json.dumps(refusal).encode(), code=400)
        made.faults.update(found)
        return made

    def _client_document(self, url: str) -> bytes:
        """Return the metadata document of a client, which is not fetched, but supposed to be right."""
        seen = (*self._authority.seen, *self._second.seen)
        asked = [each.parameters.get("redirect_uri") for each in seen if each.endpoint == "authorize"]
        grants = ["authorization_code", "refresh_token"]
        known: dict[str, Any] = {"client_id": url, "client_name": "a client", "grant_types": grants}
        redirects = [each for each in asked if each is not None]
        return json.dumps({**known, "redirect_uris": redirects, "token_endpoint_auth_method": "none"}).encode()

    def _authorized(self, request: Fetch, facts: dict[str, Any]) -> ServerResponse:
        """Return the response of an authorization server, or that of an origin that the client has no reason to ask."""
        path = urlsplit(request.url).path
        one = self._authority if _origin(request.url) == _origin(self._authority.issuer) else self._second
        root = urlsplit(one.issuer).path
        if self._is_published(path, root):
            endpoint = "metadata"
        else:
            endpoint = path.removeprefix(root + "/") if path.startswith(root + "/") else ""
            if endpoint not in ("register", "authorize", "token", "revoke"):
                facts |= {"to": "authority metadata" if ".well-known" in path else "elsewhere"}
                facts["sent_form"] = _form(request)
                return answer(404)
        facts |= {"to": "authority metadata" if endpoint == "metadata" else endpoint, "sent_form": _form(request)}
        found = one.handle(request)
        location = found.headers.get("Location")
        if endpoint == "authorize" and location is not None:
            facts["redirected_with"] = dict(parse_qsl(urlsplit(location).query))
        elif (said := parsed(found.body)) is not None:
            facts["answer"] = said
        return found

    def _is_published(self, path: str, root: str) -> bool:
        """Return whether the metadata of an issuer is at a path."""
        oauth, openid = DISCOVERY
        # OpenID puts its part behind the path (OpenID Connect Discovery, section 4), which is the last place to try.
        return path == {"oauth": oauth + root, "inserted": openid + root}.get(self._protection.discovery, root + openid)


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme.lower()}://{parts.netloc.lower()}"


def _form(request: Fetch) -> dict[str, Any]:
    """Return the parameters of a request, from its query or its body; those of a registration are JSON."""
    query = urlsplit(request.url).query
    kind = Headers(request.fields.items()).media_type
    if kind == "application/json":
        return object_of(parsed(request.body))
    text = request.body.decode("latin-1") if kind == "application/x-www-form-urlencoded" else query
    found: dict[str, Any] = {}
    for name, value in parse_qsl(text, keep_blank_values=True):
        # Only `resource` may be repeated (RFC 8707, section 2).
        found[name] = [*_listed(found[name]), value] if name in found else value
    return found


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]
