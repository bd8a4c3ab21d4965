"""Rules for protected servers: which tokens they refuse, and how; what they publish; what they keep apart for users.

The kit names the token of each request in the fact ``whose``, so only its own traffic is judged: in a recording, a rule
could not know which tokens are valid.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any, Final
from urllib.parse import urlsplit

from trio_mcp._addresses import is_loopback
from trio_mcp.conformance.credentials import WELL_KNOWN, wanted_by
from trio_mcp.conformance.members import items_of, member_of, object_of, objects_of
from trio_mcp.conformance.rules.history import Connection, Exchange, History, RecordedRequest
from trio_mcp.conformance.rules.model import Verdict, broken, expected, held, judged
from trio_mcp.conformance.rules.occasions import UNDECIDED, Occasions, Opinion, each, exchanged
from trio_mcp.conformance.rules.stated import stated_rule
from trio_mcp.conformance.transcript.events import Event
from trio_mcp.types.common import INPUT_REQUIRED

__all__: list[str] = []

SINCE: Final = "2025-06-18"
"""The first revision in which a server is a resource server, with metadata (changelog)."""

BUSY: Final = frozenset({407, 408, 429, 500, 502, 503, 504})
"""HTTP statuses that say nothing about a token: a proxy refuses, or the server can't answer at the moment."""

INVALID: Final = {
    "random": "a token that it has never issued",
    "unsigned": "an unsigned token",
    "forged": "a token with a wrong signature",
    "expired": "an expired token",
    "early": "a token that is not valid yet",
    "elsewhere": "a token for another server",
    "stranger": "a token of another issuer",
}
"""The tokens that no server may accept, by name."""


def _whose(exchange: Exchange) -> Any:
    """Return the name of the token in a request: an empty string for none, None for credentials that are malformed."""
    return exchange.request.facts.get("whose", "unknown")


def _is_in_url(exchange: Exchange) -> bool:
    """Return whether a request has its token in the query of the URL."""
    return "access_token=" in str(exchange.request.facts.get("path"))


def _sent(*names: str | None) -> Occasions[Connection, Exchange]:
    """Return, as occasions for a rule, the requests to the endpoint with these tokens that got a response."""

    def occasions(history: History) -> Iterator[tuple[Event, Connection, Exchange]]:
        for response, connection, exchange in exchanged()(history):
            if _whose(exchange) in names:
                yield response, connection, exchange

    return occasions


def _served(exchange: Exchange) -> bool:
    """Return whether a server has done what a request asked for, or begun to."""
    if not 200 <= (exchange.status or 0) < 300:
        return False
    # An error in JSON-RPC refuses, too, although its status is wrong.
    refused = any("error" in object_of(event.message) for event in exchange.received)
    return not refused


def _refused(exchange: Exchange, what: str) -> Opinion:
    if exchange.status in BUSY:
        return UNDECIDED
    return f"{_shown(exchange)} with {what} was served" if _served(exchange) else None


def _shown(exchange: Exchange) -> str:
    method = member_of(exchange.message, "method")
    return f"the request {method}" if isinstance(method, str) else f"a {exchange.method}"


# --- tokens that must be refused --------------------------------------------------------------------------------------


@stated_rule(
    since=SINCE,
    sentence="Serve nothing to requests without a token.",
    moves=["without-token", "read-metadata"],
    transports=["http"],
)
@each(_sent(""))
def missing_token_refused(_: Event, _connection: Connection, exchange: Exchange) -> Opinion:
    """Check that a request without a token is refused; one with the id of a session is another rule's."""
    in_session = "mcp-session-id" in exchange.request.headers
    return UNDECIDED if in_session or _is_in_url(exchange) else _refused(exchange, "no token")


@stated_rule(
    since=SINCE,
    sentence="Don't take the id of a session for a token.",
    moves=["without-token"],
    transports=["http"],
)
@each(_sent(""))
def session_is_no_token(_: Event, connection: Connection, exchange: Exchange) -> Opinion:
    """Check that a request with the id of a session, and without a token, is refused."""
    named = exchange.request.headers.get("mcp-session-id")
    if named is None or connection.is_after_session(exchange.request) or _is_in_url(exchange):
        return UNDECIDED
    return _refused(exchange, "the id of a session, and no token,")


@stated_rule(
    since=SINCE,
    sentence="Refuse a token that was never issued.",
    moves=["random-token"],
    transports=["http"],
)
@each(_sent("random"))
def random_token_refused(_: Event, _connection: Connection, exchange: Exchange) -> Opinion:
    """Check that a text that is not a token is refused."""
    return _refused(exchange, INVALID["random"])


@stated_rule(since=SINCE, sentence="Refuse an unsigned token.", moves=["unsigned-token"], transports=["http"])
@each(_sent("unsigned"))
def unsigned_token_refused(_: Event, _connection: Connection, exchange: Exchange) -> Opinion:
    """Check that a JWT with valid claims and the algorithm ``none`` is refused."""
    return _refused(exchange, INVALID["unsigned"])


@stated_rule(since=SINCE, sentence="Check the signature of a token.", moves=["forged-token"], transports=["http"])
@each(_sent("forged"))
def forged_token_refused(_: Event, _connection: Connection, exchange: Exchange) -> Opinion:
    """Check that a JWT with valid claims and a wrong signature is refused."""
    return _refused(exchange, INVALID["forged"])


@stated_rule(since=SINCE, sentence="Refuse an expired token.", moves=["expired-token"], transports=["http"])
@each(_sent("expired"))
def expired_token_refused(_: Event, _connection: Connection, exchange: Exchange) -> Opinion:
    """Check that a token that expired a day ago is refused."""
    return _refused(exchange, INVALID["expired"])


@stated_rule(since=SINCE, sentence="Refuse a token that is not valid yet.", moves=["early-token"], transports=["http"])
@each(_sent("early"))
def early_token_refused(_: Event, _connection: Connection, exchange: Exchange) -> Opinion:
    """Check that a token is refused whose ``nbf`` is hours ahead."""
    return _refused(exchange, INVALID["early"])


@stated_rule(since=SINCE, moves=["elsewhere-token"], transports=["http"])
@each(_sent("elsewhere"))
def foreign_audience_refused(_: Event, _connection: Connection, exchange: Exchange) -> Opinion:
    """Check that a token of the right issuer for another server is refused."""
    return _refused(exchange, INVALID["elsewhere"])


@stated_rule(since=SINCE, sentence="Refuse the tokens of other issuers.", moves=["stranger-token"], transports=["http"])
@each(_sent("stranger"))
def foreign_issuer_refused(_: Event, _connection: Connection, exchange: Exchange) -> Opinion:
    """Check that a token is refused that names another issuer, even if a known key has signed it."""
    return _refused(exchange, INVALID["stranger"])


@stated_rule(since=SINCE, sentence="Ignore a token in the query of a URL.", moves=["query-token"], transports=["http"])
@each(_sent(""))
def query_token_ignored(_: Event, _connection: Connection, exchange: Exchange) -> Opinion:
    """Check that a request is refused whose valid token is in the URL."""
    return _refused(exchange, "a token in its URL") if _is_in_url(exchange) else UNDECIDED


@stated_rule(
    since=SINCE,
    sentence="Refuse an Authorization header that contains no token, with 400 or 401.",
    moves=["malformed-credentials"],
    transports=["http"],
)
@each(_sent(None))
def malformed_credentials_refused(_: Event, _connection: Connection, exchange: Exchange) -> Opinion:
    """Check that malformed credentials are refused with 400, or with 401 as if there were none."""
    if (problem := _refused(exchange, "malformed credentials")) is not None:
        return problem
    # The text has 400 for a malformed request, but a header without a token may also be read as no token at all.
    is_fit = exchange.status in (400, 401)
    return None if is_fit else f"malformed credentials got status {exchange.status}, not 400 or 401"


# --- statuses and challenges ------------------------------------------------------------------------------------------


@stated_rule(
    since=SINCE,
    moves=["without-token", "random-token", "expired-token", "elsewhere-token"],
    transports=["http"],
)
@each(_sent("", *INVALID))
def unauthorized_401(_: Event, _connection: Connection, exchange: Exchange) -> Opinion:
    """Check that a missing or invalid token is refused with 401."""
    # A server without streams for GET may say so first; a token in the URL is a malformed request for some.
    aside = exchange.method == "GET" and exchange.status == 405
    if exchange.status in BUSY - {500} or _served(exchange) or aside or _is_in_url(exchange):
        return UNDECIDED
    what = INVALID.get(_whose(exchange), "no token")
    return None if exchange.status == 401 else f"{_shown(exchange)} with {what} got status {exchange.status}, not 401"


def _challenges(history: History) -> Iterator[tuple[Event, Connection, Exchange]]:
    """Yield, as occasions for a rule, the refusals with 401 of requests that the kit has sent."""
    for response, connection, exchange in exchanged()(history):
        if exchange.status == 401 and _whose(exchange) != "unknown":
            yield response, connection, exchange


@stated_rule(
    since=SINCE,
    sentence="Send a Bearer challenge with each 401.",
    moves=["without-token", "random-token"],
    transports=["http"],
)
@each(_challenges)
def challenge_sent(response: Event, _connection: Connection, _exchange: Exchange) -> Opinion:
    """Check that each 401 has a challenge in ``WWW-Authenticate`` that a client can read."""
    field = response.headers.get("www-authenticate")
    if field is None:
        return "a 401 came without WWW-Authenticate"
    wanted = wanted_by(response)
    return None if wanted.bearer or wanted.dpop else f"a 401 came with {field[:100]!r}, which is not a Bearer challenge"


@stated_rule(
    since=SINCE,
    level="SHOULD",
    sentence="Name the error invalid_token in the challenge for an invalid token (RFC 6750).",
    moves=["random-token"],
    transports=["http"],
)
@each(_challenges)
def invalid_token_named(response: Event, _connection: Connection, exchange: Exchange) -> Opinion:
    """Check that the challenge for an invalid token names the error ``invalid_token``."""
    wanted = wanted_by(response)
    if _whose(exchange) not in INVALID or not (wanted.bearer or wanted.dpop):
        return UNDECIDED
    return None if wanted.error == "invalid_token" else f"the challenge for an invalid token has error={wanted.error!r}"


@stated_rule(
    since=SINCE,
    level="SHOULD",
    sentence="Name no error in the challenge for a missing token (RFC 6750).",
    moves=["without-token"],
    transports=["http"],
)
@each(_challenges)
def missing_token_without_error(response: Event, _connection: Connection, exchange: Exchange) -> Opinion:
    """Check that the challenge for a missing token names no error, as there was nothing wrong yet."""
    if _whose(exchange) != "" or _is_in_url(exchange):
        return UNDECIDED
    error = wanted_by(response).error
    return None if error is None else f"the challenge for a missing token has error={error!r}"


@stated_rule(since=SINCE, moves=["read-metadata"], transports=["http"])
def challenge_names_scopes(history: History) -> Iterator[Verdict]:
    """Check that challenges name scopes, if the metadata says that there are some."""
    for connection in history:
        scoped = any(items_of(document, "scopes_supported") for _, _, document in _read(connection))
        for response, other, exchange in _challenges(history):
            if scoped and other is connection and _whose(exchange) == "" and wanted_by(response).bearer:
                yield judged(bool(wanted_by(response).scopes), response, "the challenge of a 401 names no scopes")


# --- metadata ---------------------------------------------------------------------------------------------------------


def _reads(connection: Connection) -> Iterator[tuple[Event, Exchange, str]]:
    """Yield the responses to requests for metadata, each with the path."""
    for exchange in connection.exchanges.values():
        if exchange.method == "GET" and exchange.request.facts.get("aside") and exchange.response is not None:
            yield exchange.response, exchange, str(exchange.request.facts.get("path"))


def _read(connection: Connection) -> Iterator[tuple[Event, str, dict[str, Any]]]:
    """Yield the documents that were found at the places of metadata, each with the path."""
    for response, exchange, path in _reads(connection):
        if exchange.status == 200 and exchange.document is not None:
            yield response, path, exchange.document


def _documents(history: History) -> Iterator[tuple[Event, Connection, dict[str, Any]]]:
    for connection in history:
        for response, _, document in _read(connection):
            yield response, connection, document


def _url(connection: Connection) -> str:
    """Return the URL of the endpoint."""
    return next((str(event.facts.get("url", "")) for event in connection.events if event.kind == "open"), "")


def _named(connection: Connection) -> str | None:
    """Return the URL of the metadata that the first challenge of a connection names."""
    for exchange in connection.exchanges.values():
        if exchange.status == 401 and exchange.response is not None and (url := wanted_by(exchange.response).metadata):
            return url
    return None


@stated_rule(since=SINCE, moves=["read-metadata"], transports=["http"])
def resource_metadata_served(history: History) -> Iterator[Verdict]:
    """Check that there is metadata at the URL of the challenge or at a well-known place, once all were tried."""
    for connection in history:
        found = {path for _, path, _ in _read(connection)}
        tried = {path: response for response, _, path in _reads(connection)}
        below = f"{WELL_KNOWN}{urlsplit(_url(connection)).path.rstrip('/')}"
        named = _named(connection)
        # The kit does not look on other servers, and without a challenge there may be a URL that was not named yet.
        is_elsewhere = named is not None and not named.startswith(_origin(_url(connection)))
        if tried and found:
            yield held(next(response for response, path, _ in _read(connection)))
        elif {below, WELL_KNOWN} <= tried.keys() and not is_elsewhere and _was_refused(connection):
            yield broken(tried[WELL_KNOWN], "there is no metadata: neither where a 401 says, nor at a well-known place")


def _was_refused(connection: Connection) -> bool:
    """Return whether a request without a token shows which challenges there are."""
    return any(_whose(exchange) == "" and exchange.response for exchange in connection.exchanges.values())


def _origin(url: str) -> str:
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc}"


@stated_rule(
    since=SINCE,
    sentence="Serve the metadata at the URL that a 401 names.",
    moves=["read-metadata"],
    transports=["http"],
)
def challenge_leads_to_metadata(history: History) -> Iterator[Verdict]:
    """Check that the URL in a challenge, if it is on the same server, leads to a JSON object."""
    for connection in history:
        named, url = _named(connection), _url(connection)
        if named is None or not named.startswith(f"{_origin(url)}/"):
            continue
        path = named.removeprefix(_origin(url)).partition("#")[0]
        found = {path for _, path, _ in _read(connection)}
        for response, exchange, read in _reads(connection):
            if read == path and exchange.status not in BUSY:
                yield judged(path in found, response, f"the URL of the challenge, {path}, leads to no metadata")


@stated_rule(since=SINCE, moves=["read-metadata"], transports=["http"])
@each(_documents)
def metadata_names_issuers(_: Event, _connection: Connection, document: dict[str, Any]) -> Opinion:
    """Check that the metadata names at least one authorization server, each as a URL."""
    named = document.get("authorization_servers")
    kept = isinstance(named, list) and bool(named) and all(isinstance(url, str) and "://" in url for url in named)
    return None if kept else f"the metadata has authorization_servers={named!r}"


@stated_rule(
    since=SINCE,
    sentence="Name the server's own URL as resource in its metadata (RFC 9728).",
    moves=["read-metadata"],
    transports=["http"],
)
@each(_documents)
def metadata_names_resource(_: Event, connection: Connection, document: dict[str, Any]) -> Opinion:
    """Check that the ``resource`` in the metadata is the URL of the endpoint, or a part of that up to a slash."""
    resource = document.get("resource")
    if not isinstance(resource, str):
        return f"the metadata has resource={resource!r}"
    # RFC 9728, section 3.3, compares with the URL that a client has used. Clients also take what contains that, such as
    # the origin.
    own, named = _canonical(_url(connection)), _canonical(resource)
    return (
        None if f"{own}/".startswith(f"{named}/") else f"the metadata is about {resource!r}, not {_url(connection)!r}"
    )


def _canonical(url: str) -> str:
    try:
        parts = urlsplit(url)
        port = {"http": ":80", "https": ":443"}.get(parts.scheme, "")
        return f"{parts.scheme}://{parts.netloc.lower().removesuffix(port)}{parts.path}".rstrip("/")
    except ValueError:  # such as a bracket that is not closed
        return url


@stated_rule(
    since=SINCE,
    sentence="Leave out a slash at the end of the server's URL that means nothing, in its metadata, too.",
    moves=["read-metadata"],
    transports=["http"],
)
@each(_documents)
def metadata_without_slash(_: Event, connection: Connection, document: dict[str, Any]) -> Opinion:
    """Check that ``resource`` has no slash at its end if the URL in use has none."""
    resource, url = document.get("resource"), _url(connection)
    if not isinstance(resource, str) or _canonical(resource) != _canonical(url):
        return UNDECIDED
    return f"the metadata is about {resource!r}" if resource.endswith("/") and not url.endswith("/") else None


@expected(
    "Publish the same metadata in each place.",
    "Clients look in different places, and must come to the same authorization server.",
    moves=["read-metadata"],
    transports=["http"],
)
def metadata_agrees(history: History) -> Iterator[Verdict]:
    """Check that two documents about one server agree on its URL and its authorization servers."""
    for connection in history:
        first: dict[str, Any] | None = None
        for response, _, document in _read(connection):
            if first is not None:
                same = all(first.get(name) == document.get(name) for name in ("resource", "authorization_servers"))
                yield judged(same, response, "two places of the metadata have different documents")
            first = document if first is None else first


@expected(
    "Offer no tokens in URLs: bearer_methods_supported without query.",
    "Logs and histories keep URLs, and a client must put no token into one.",
    section="basic/authorization#token-requirements",
    moves=["read-metadata"],
    transports=["http"],
)
@each(_documents)
def query_method_not_offered(_: Event, _connection: Connection, document: dict[str, Any]) -> Opinion:
    """Check that ``bearer_methods_supported`` does not name the query."""
    offered = "query" in items_of(document, "bearer_methods_supported")
    return "the metadata offers tokens in the query of a URL" if offered else None


@expected(
    "List no scope that stands for all, such as *.",
    "Clients ask for each scope that is listed, and a user would have to grant everything at once.",
    section="basic/authorization#scope-selection-strategy",
    moves=["read-metadata"],
    transports=["http"],
)
@each(_documents)
def scopes_without_wildcards(_: Event, _connection: Connection, document: dict[str, Any]) -> Opinion:
    """Check that ``scopes_supported`` has no wildcards."""
    wide = [scope for scope in items_of(document, "scopes_supported") if isinstance(scope, str) and _is_wide(scope)]
    return f"the metadata lists the scopes {', '.join(wide)}" if wide else None


def _is_wide(scope: str) -> bool:
    return scope == "*" or scope.endswith((":*", "/*", ".*"))


@stated_rule(moves=["read-metadata"], transports=["http"])
def offline_access_not_asked(history: History) -> Iterator[Verdict]:
    """Check that neither a challenge nor the metadata names ``offline_access``."""
    for response, _, _ in _challenges(history):
        named = "offline_access" in (wanted_by(response).scopes or ())
        yield judged(not named, response, "a challenge asks for offline_access")
    for response, _, document in _documents(history):
        named = "offline_access" in items_of(document, "scopes_supported")
        yield judged(not named, response, "the metadata lists offline_access")


@stated_rule(since=SINCE, sentence="Take tokens over TLS only.", moves=["without-token"], transports=["http"])
def tokens_over_tls(history: History) -> Iterator[Verdict]:
    """Check that the endpoint of a protected server has an https: URL, unless it is on this machine."""
    for connection in history:
        parts = urlsplit(_url(connection))
        host = parts.hostname or ""
        for exchange in list(connection.exchanges.values())[-1:] if host else ():
            kept = parts.scheme == "https" or host == "localhost" or is_loopback(host)
            yield judged(kept, exchange.request, f"tokens go to {_origin(_url(connection))} without encryption")


# --- scopes -----------------------------------------------------------------------------------------------------------


@stated_rule(
    since=SINCE,
    sentence="Refuse a token without the scopes that are needed with 403.",
    moves=["narrow-token"],
    transports=["http"],
)
@each(_sent("narrow"))
def missing_scope_403(_: Event, _connection: Connection, exchange: Exchange) -> Opinion:
    """Check that a token without scopes, where it is refused, gets 403."""
    # Without scopes, some requests are served. A server that has no streams for GET says so first.
    if _served(exchange) or exchange.status in BUSY or exchange.status in (404, 405):
        return UNDECIDED
    return None if exchange.status == 403 else f"a token without scopes got status {exchange.status}, not 403"


def _short(history: History) -> Iterator[tuple[Event, Connection, Exchange]]:
    """Yield, as occasions for a rule, the refusals with 403 of a token that lacks a scope."""
    for response, connection, exchange in exchanged("POST")(history):
        # The first user's own token may lack one, too, if nothing else in the request is a reason to refuse it.
        usual = _whose(exchange) == "a" and not exchange.request.facts.get("altered")
        is_call = member_of(exchange.message, "method") == "tools/call"
        if exchange.status == 403 and (_whose(exchange) == "narrow" or (usual and is_call)):
            yield response, connection, exchange


@stated_rule(since=SINCE, moves=["narrow-token"], transports=["http"])
@each(_short)
def scope_challenge_sent(response: Event, _connection: Connection, _exchange: Exchange) -> Opinion:
    """Check that a 403 for a missing scope has a challenge."""
    wanted = wanted_by(response)
    return None if wanted.bearer or wanted.dpop else "a 403 for a missing scope came without a Bearer challenge"


def _shortages(history: History) -> Iterator[tuple[Event, Connection, Exchange]]:
    return (each for each in _short(history) if wanted_by(each[0]).bearer or wanted_by(each[0]).dpop)


@stated_rule(since=SINCE, moves=["narrow-token"], transports=["http"])
@each(_shortages)
def scope_error_named(response: Event, _connection: Connection, _exchange: Exchange) -> Opinion:
    """Check that the challenge of a 403 names the error ``insufficient_scope``."""
    error = wanted_by(response).error
    return None if error == "insufficient_scope" else f"the challenge of a 403 has error={error!r}"


@stated_rule(since="2025-11-25", moves=["narrow-token"], transports=["http"])
@each(_shortages)
def scope_challenge_names_scopes(response: Event, _connection: Connection, _exchange: Exchange) -> Opinion:
    """Check that the challenge of a 403 names scopes."""
    return None if wanted_by(response).scopes else "the challenge of a 403 names no scopes"


@stated_rule(since="2025-11-25", moves=["narrow-token"], transports=["http"])
@each(_shortages)
def scope_challenge_names_metadata(response: Event, _connection: Connection, _exchange: Exchange) -> Opinion:
    """Check that the challenge of a 403 names the URL of the metadata."""
    return None if wanted_by(response).metadata else "the challenge of a 403 names no resource_metadata"


@stated_rule(since="2025-11-25", moves=["narrow-token"], transports=["http"])
def scope_challenge_is_enough(history: History) -> Iterator[Verdict]:
    """Check that a token with the scopes of a challenge is enough for the request that was refused."""
    exchanges = [each for connection in history for each in connection.exchanges.values() if each.response is not None]
    places = {history.order(each.response): each for each in exchanges if each.response and each.status == 403}
    for exchange in exchanges:
        if _whose(exchange) != "stepped" or exchange.response is None:
            continue
        # The token has the scopes of the last challenge before it was sent, which another request may have met.
        earlier = [place for place in places if place < history.order(exchange.request)]
        if not earlier:
            continue
        refused = places[max(earlier)]
        is_same = _whose(refused) == "narrow" and _request(refused) == _request(exchange)
        if is_same and refused.response is not None and wanted_by(refused.response).scopes:
            wrong = f"{_shown(exchange)} needs more scopes than its challenge had named"
            yield judged(exchange.status != 403, exchange.response, wrong)


def _request(exchange: Exchange) -> tuple[Any, Any]:
    params = object_of(member_of(exchange.message, "params"))
    return member_of(exchange.message, "method"), {name: each for name, each in params.items() if name != "_meta"}


@stated_rule(
    since=SINCE,
    sentence="Accept a token that names the server with its scheme and host in capitals.",
    moves=["capital-token"],
    transports=["http"],
)
@each(_sent("capital"))
def audience_in_capitals(_: Event, _connection: Connection, exchange: Exchange) -> Opinion:
    """Check that a token for the server is accepted however its scheme and host are spelled."""
    # With 403, the token was accepted, and lacks a scope.
    return "a token for the server's URL in capitals got status 401" if exchange.status == 401 else None


# --- two users --------------------------------------------------------------------------------------------------------


@expected(
    "Serve a session only to the user who has opened it.",
    "The id of a session travels in headers and logs, and would let one user read and steer what is another's.",
    moves=["other-user", "other-user-ends"],
    transports=["http"],
)
@each(_sent("b"))
def session_of_its_user(_: Event, connection: Connection, exchange: Exchange) -> Opinion:
    """Check that the second user can use no session of the first."""
    named = exchange.request.headers.get("mcp-session-id")
    begun = connection.session
    first = connection.exchanges.get(begun.exchange or 0) if begun is not None else None
    if named is None or named != connection.session_id or first is None or _whose(first) != "a":
        return UNDECIDED
    # A request about a task may be refused because of the task, and one without a stream for other reasons.
    if exchange.method == "GET" and exchange.status == 405:
        return UNDECIDED
    return _refused(exchange, "the token of a second user, in the session of the first,")


@stated_rule(
    since=SINCE,
    sentence="Replay events only to the user for whom they were.",
    moves=["other-user-resumes"],
    transports=["http"],
)
def events_of_their_user(history: History) -> Iterator[Verdict]:
    """Check that the second user is sent no event of the first's streams."""
    sent: set[tuple[Any, str]] = set()
    for connection in history:
        for exchange in connection.exchanges.values():
            if _whose(exchange) == "a":
                sent |= {key for event in exchange.received if (key := _event_key(event)) is not None}
    own = {key for event in _own_events(history) if (key := _event_key(event)) is not None}
    for response, _, exchange in exchanged("GET")(history):
        if _whose(exchange) != "b" or exchange.request.headers.get("last-event-id", "none") == "none":
            continue
        stolen = next((event for event in exchange.received if _event_key(event) in sent - own), None)
        yield held(response) if stolen is None else broken(stolen, "an event of one user was sent to another")


def _own_events(history: History) -> Iterator[Event]:
    """Yield the second user's own events, which may equal the first's: each session may number its events from one."""
    for connection in history:
        for exchange in connection.exchanges.values():
            if _whose(exchange) == "b" and "last-event-id" not in exchange.request.headers:
                yield from exchange.received


def _event_key(event: Event) -> tuple[Any, str] | None:
    is_told = event.facts.get("event_id") and event.message is not None
    return (event.facts["event_id"], repr(event.message)) if is_told else None


def _foreign_tasks(*methods: str) -> Occasions[RecordedRequest, Collection[str]]:
    """Return, as occasions for a rule, the second user's requests that got a response, with the first's task ids."""

    def occasions(history: History) -> Iterator[tuple[Event, RecordedRequest, Collection[str]]]:
        theirs: set[str] = set()
        for connection in history:
            for asked in connection.requests:
                exchange = connection.exchanges.get(asked.event.exchange or 0)
                if exchange is not None and _whose(exchange) == "a" and asked.result is not None:
                    made = asked.result if asked.result.get("resultType") == "task" else asked.result.get("task")
                    if isinstance(name := member_of(made, "taskId"), str):
                        theirs.add(name)
        for connection, asked in history.requests(*methods):
            exchange = connection.exchanges.get(asked.event.exchange or 0)
            if exchange is not None and _whose(exchange) == "b" and exchange.response is not None and theirs:
                yield (asked.answers or [exchange.response])[0], asked, theirs

    return occasions


def _task_kept(asked: RecordedRequest, theirs: Collection[str]) -> Opinion:
    if asked.params.get("taskId") not in theirs:
        return UNDECIDED
    return f"{asked.method} about the task of another user was served" if asked.result is not None else None


@stated_rule(since="2025-11-25", moves=["other-user-tasks"], transports=["http"])
@each(_foreign_tasks("tasks/get", "tasks/result", "tasks/cancel"))
def task_of_its_user(_: Event, asked: RecordedRequest, theirs: Collection[str]) -> Opinion:
    """Check that the second user learns nothing about a task of the first, and can't cancel it."""
    return _task_kept(asked, theirs)


@stated_rule(since="2025-11-25", moves=["other-user-tasks"], transports=["http"])
@each(_foreign_tasks("tasks/list"))
def task_list_of_its_user(_: Event, asked: RecordedRequest, theirs: Collection[str]) -> Opinion:
    """Check that the second user's list contains no task of the first."""
    listed = {each.get("taskId") for each in objects_of(asked.result, "tasks")}
    return "tasks/list has a task of another user" if listed & set(theirs) else None


@stated_rule(moves=["other-user-ext-tasks"], transports=["http"])
@each(_foreign_tasks("tasks/get", "tasks/update", "tasks/cancel"))
def ext_task_of_its_user(_: Event, asked: RecordedRequest, theirs: Collection[str]) -> Opinion:
    """Check the same for tasks of the extension."""
    return _task_kept(asked, theirs)


@stated_rule(moves=["other-user-continues"], transports=["http"])
def state_of_its_user(history: History) -> Iterator[Verdict]:
    """Check that the second user can't go on with what the server has asked the first."""
    for connection in history:
        given = set[str]()
        for asked in connection.requests:
            exchange = connection.exchanges.get(asked.event.exchange or 0)
            if exchange is None:
                continue
            state = object_of(asked.result).get("requestState")
            if _whose(exchange) == "a" and isinstance(state, str):
                given.add(state)
            if _whose(exchange) == "b" and asked.params.get("requestState") in given and exchange.response is not None:
                # A server that asks again has not used the state.
                used = asked.result is not None and asked.result.get("resultType") != INPUT_REQUIRED
                event = (asked.answers or [exchange.response])[0]
                yield judged(not used, event, f"{asked.method} went on with the requestState of another user")
