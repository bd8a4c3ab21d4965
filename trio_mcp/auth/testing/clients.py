"""The clients that the authorization server knows, and how they prove who they are."""

from __future__ import annotations

import base64
import hmac
import secrets
from collections.abc import Collection, Iterable, Mapping
from typing import Any
from urllib.parse import unquote_plus, urlsplit

import attrs

from trio_mcp.auth.rules.steps import Fetch
from trio_mcp.auth.testing.answers import Parameters, Refused, ServerResponse, in_json, read_object
from trio_mcp.auth.testing.keys import Once, audiences, check_times, verified
from trio_mcp.auth.testing.records import AuthoritySettings, KnownClient
from trio_mcp.http.headers import Headers

__all__ = ["ASSERTION", "GRANTS", "METHODS", "Clients"]

METHODS = ("none", "client_secret_basic", "client_secret_post", "private_key_jwt")

ASSERTION = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

GRANTS = (
    "authorization_code",
    "refresh_token",
    "client_credentials",
    "urn:ietf:params:oauth:grant-type:device_code",
    "urn:ietf:params:oauth:grant-type:jwt-bearer",
    "urn:ietf:params:oauth:grant-type:token-exchange",
)

# The draft on client ID metadata documents recommends these values.
LONGEST_DOCUMENT = 5 * 1024
LOOPBACK = ("127.0.0.1", "::1", "localhost")


def is_loopback(url: str) -> bool:
    """Return whether a URL uses plain http and names this machine."""
    parts = urlsplit(url)
    return parts.scheme == "http" and parts.hostname in LOOPBACK


def check_redirects(urls: object) -> tuple[str, ...]:
    """Check the redirect URIs of a client that registers.

    Raises:
        Refused: If they are not a non-empty list of strings, or a URI has a fragment, has no scheme, or uses http for a
            host that is not loopback; private-use schemes are allowed.
    """
    if not isinstance(urls, list) or not urls or not all(isinstance(url, str) for url in urls):
        raise Refused("invalid_redirect_uri", "redirect_uris is not a list of URLs")
    for url in urls:
        parts = urlsplit(url)
        if parts.fragment or not parts.scheme or (parts.scheme == "http" and not is_loopback(url)):
            raise Refused(
                "invalid_redirect_uri",
                "a redirect URI must have a scheme and no fragment, and may use http only for a loopback host",
            )
    return tuple(urls)


def matches(given: str, registered: Iterable[str]) -> bool:
    """Return whether a redirect URI was registered; on loopback any port is accepted (RFC 8252, section 7.3)."""

    def key(url: str) -> str:
        parts = urlsplit(url)
        return parts._replace(netloc=parts.hostname or "").geturl() if is_loopback(url) else url

    return key(given) in {key(each) for each in registered}


class Clients:
    """The clients that one authorization server knows."""

    def __init__(self, settings: AuthoritySettings) -> None:
        self._settings = settings
        self._known: dict[str, KnownClient] = {}
        self._assertions = Once(lambda: settings["clock"]())

    def add(self, client: KnownClient) -> KnownClient:
        """Remember a client, in place of any earlier one with the same id."""
        self._known[client.id] = client
        return client

    def forget(self, client: str) -> None:
        """Forget a client, as a server may do when it cleans up."""
        self._known.pop(client, None)

    def find(self, client: str, error: str = "invalid_client") -> KnownClient:
        """Return a client by its id, which may be the URL of its document.

        Raises:
            Refused: If the client is unknown, or its document is wrong.
        """
        if (known := self._known.get(client)) is not None:
            return known
        parts = urlsplit(client)
        if self._settings["documents"] is None or parts.scheme != "https" or parts.path in ("", "/"):
            raise Refused(error, "this authorization server does not know the client", 401)
        return self._of_document(client, self._settings["documents"](client))

    def _of_document(self, url: str, body: bytes) -> KnownClient:
        document = read_object(body, "invalid_client") if len(body) <= LONGEST_DOCUMENT else {}
        # 2025-11-25 requires the document to contain its own URL and the client's name.
        if document.get("client_id") != url or not document.get("client_name"):
            raise Refused(
                "invalid_client",
                "the client's metadata document is too long, its client_id is not its URL, or client_name is missing",
            )
        return _from_metadata(url, document)

    def register(self, body: bytes) -> ServerResponse:
        """Register a client (RFC 7591)."""
        metadata = read_object(body, "invalid_client_metadata")
        client = _from_metadata(secrets.token_urlsafe(16), metadata)
        until = 0.0
        if client.method in ("client_secret_basic", "client_secret_post"):
            if (seconds := self._settings["client_secret_lifetime"]) is not None:
                until = self._settings["clock"]() + seconds
            client = attrs.evolve(client, secret=secrets.token_urlsafe(32), secret_expires_at=until or None)
        self.add(client)
        said: dict[str, Any] = metadata | {
            "client_id": client.id,
            "client_id_issued_at": int(self._settings["clock"]()),
        }
        said |= {"token_endpoint_auth_method": client.method, "grant_types": sorted(client.grants)}
        if client.secret is not None:
            said |= {"client_secret": client.secret, "client_secret_expires_at": int(until)}
        return in_json(said, 201)

    def authenticate(self, request: Fetch, parameters: Parameters, endpoint: str) -> KnownClient:
        """Return the client that makes a request, after it has proved who it is by its registered method.

        Raises:
            Refused: If the client has not authenticated itself.
        """
        authorization = Headers(request.fields.items()).get("Authorization")
        ways = {
            "client_secret_basic": authorization is not None,
            "client_secret_post": parameters.get("client_secret") is not None,
            "private_key_jwt": parameters.get("client_assertion") is not None,
        }
        # RFC 6749, section 2.3: a client must not use more than one method in a request.
        used = [method for method, is_used in ways.items() if is_used]
        if len(used) > 1:
            raise Refused(
                "invalid_request", f"the request authenticates the client in more than one way: {', '.join(used)}"
            )
        # RFC 6749, section 5.2: a client that is refused after it sent the header Authorization gets a challenge.
        challenge = {"WWW-Authenticate": "Basic"} if authorization is not None else {}
        method, given, secret = _credentials(authorization, parameters)
        client = self.find(given)
        if method == "private_key_jwt":
            self._check_assertion(client, parameters, endpoint)
        late = client.secret_expires_at is not None and client.secret_expires_at <= self._settings["clock"]()
        # A public client has no secret and sends none, so both are empty.
        same = hmac.compare_digest((client.secret or "").encode(), secret.encode())
        if method != client.method or not same or late or parameters.get("client_id") not in (None, client.id):
            raise Refused(
                "invalid_client", "the client did not authenticate itself with its registered method", 401, challenge
            )
        return client

    def _check_assertion(self, client: KnownClient, parameters: Parameters, endpoint: str) -> None:
        if parameters["client_assertion_type"] != ASSERTION or client.jwks is None:
            raise Refused(
                "invalid_client", "the client has registered no keys, or client_assertion_type is not supported", 401
            )
        _, claims = verified(parameters["client_assertion"], client.jwks, "invalid_client")
        check_times(claims, self._settings["clock"](), "invalid_client")
        # RFC 7523 says that the audience is the token endpoint, and the update of RFC 7523 says that it is the issuer;
        # some clients follow the one, some the other.
        allowed = {self._settings["issuer"], endpoint}
        if claims.get("iss") != client.id or claims.get("sub") != client.id or allowed.isdisjoint(audiences(claims)):
            raise Refused("invalid_client", "the iss, sub or aud of the assertion is wrong", 401)
        if not self._assertions.use(claims.get("jti"), 3600):
            raise Refused("invalid_client", "the assertion was used before, or has no jti", 401)


def _credentials(authorization: str | None, parameters: Parameters) -> tuple[str, str, str]:
    """Return the method by which a client authenticates, its id and its secret."""
    if authorization is not None:
        scheme, _, encoded = authorization.partition(" ")
        try:
            given, _, secret = base64.b64decode(encoded, validate=True).decode().partition(":")
        except ValueError:
            scheme = ""
        if scheme.lower() != "basic":
            raise Refused(
                "invalid_client",
                "the Authorization header does not contain valid Basic credentials",
                401,
                {"WWW-Authenticate": "Basic"},
            )
        return "client_secret_basic", unquote_plus(given), unquote_plus(secret)  # form-encoded (RFC 6749, 2.3.1)
    if (assertion := parameters.get("client_assertion")) is not None:
        given = parameters.get("client_id") or _subject(assertion)
        return "private_key_jwt", given, ""
    secret = parameters.get("client_secret") or ""
    return "client_secret_post" if secret else "none", parameters["client_id"], secret


def _subject(assertion: str) -> str:
    try:
        payload = assertion.split(".")[1]
        claims = read_object(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)), "invalid_client")
    except (IndexError, ValueError):
        claims = {}
    return str(claims.get("sub"))


def _from_metadata(client: str, metadata: Mapping[str, Any]) -> KnownClient:
    """Return the client that its own metadata describes.

    Raises:
        Refused: If the metadata is not valid.
    """
    # Missing fields have the defaults of RFC 7591, section 2.
    grants = _names(metadata.get("grant_types", ["authorization_code"]), GRANTS, "grant_types")
    _names(metadata.get("response_types", ["code"]), ("code",), "response_types")
    method = metadata.get("token_endpoint_auth_method", "client_secret_basic")
    (method,) = _names([method], METHODS, "token_endpoint_auth_method")
    redirects = check_redirects(metadata.get("redirect_uris")) if "authorization_code" in grants else ()
    kind = metadata.get("application_type")
    # 2026-07-28 requires a client with a redirect URI on loopback to be "native".
    if kind not in (None, "web", "native") or (kind == "web" and any(map(is_loopback, redirects))):
        raise Refused("invalid_client_metadata", "application_type is unknown, or is web with a loopback redirect URI")
    jwks = metadata.get("jwks")
    return KnownClient(id=client, method=method, redirects=redirects, grants=frozenset(grants), jwks=jwks)


def _names(given: object, known: Collection[str], what: str) -> list[str]:
    if not isinstance(given, list) or not all(isinstance(name, str) and name in known for name in given):
        raise Refused(
            "invalid_client_metadata",
            f"{what} contains an unsupported value; the supported values are {', '.join(known)}",
        )
    return given
