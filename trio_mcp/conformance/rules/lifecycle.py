"""Rules for the opening of a connection, for versions and capabilities, and for what each request declares."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from typing import Any, Final

from trio_mcp.conformance.members import items_of, member_of
from trio_mcp.conformance.rules.common import (
    LEGACY,
    MODERN,
    code_of,
    declares,
    is_ordered,
    is_plain,
    is_proper,
    lost,
    named,
    notifications,
    supported,
    survived,
)
from trio_mcp.conformance.rules.history import LISTS, Connection, History, RecordedRequest
from trio_mcp.conformance.rules.model import Verdict, broken, held, judged
from trio_mcp.conformance.rules.occasions import UNDECIDED, Opinion, about, answered, each
from trio_mcp.conformance.rules.stated import stated_rule
from trio_mcp.conformance.transcript.events import Event
from trio_mcp.eras.capabilities import is_spec_method
from trio_mcp.types import error_codes, meta
from trio_mcp.types.methods import method_spec
from trio_mcp.types.versions import REVISIONS

__all__: list[str] = []

LISTING: Final = ("list-all", "list-undeclared")


# --- the handshake ----------------------------------------------------------------------------------------------------


def _hellos(history: History) -> Iterator[tuple[Event, RecordedRequest, str]]:
    """Yield the first handshake of each connection, with the version that the client asked for."""
    for connection in history:
        # The specification allows only one handshake, as the first interaction (Initialization). The response to a
        # second handshake is up to the server, so only the first handshake is judged.
        first = next((asked for asked in connection.requests if asked.method == "initialize"), None)
        wanted = first.params.get("protocolVersion") if first is not None else None
        if first is not None and isinstance(wanted, str) and is_plain(connection, first.event):
            yield first.event, first, wanted


def _offers(history: History) -> Iterator[tuple[Event, str, str, set[str]]]:
    """Yield the response to each handshake in which the server agrees to a version.

    Each response comes with the agreed version, the version that the client asked for, and the legacy revisions that
    the server was seen to speak, or says that it speaks.
    """
    found = [
        (asked.answers[0], agreed, wanted)
        for _, asked, wanted in _hellos(history)
        if isinstance(agreed := member_of(asked.result, "protocolVersion"), str)
    ]
    # Only legacy revisions count. A version that is unknown to the kit, such as a draft, has no place in the order by
    # which offers are judged. The modern era has no handshake, so a server that speaks a modern revision rightly agrees
    # to a different version in a handshake.
    spoken = ({agreed for _, agreed, _ in found} | supported(history)) & set(LEGACY)
    return ((*offer, spoken) for offer in found)


@stated_rule(moves=("open-in-revision", "another-connection"))
@each(_hellos)
def initialize_answered(_: Event, asked: RecordedRequest, wanted: str) -> Opinion:
    if not asked.answers:
        mark = lost(asked)
        return UNDECIDED if mark is None else broken(mark, f"initialize for {wanted} was not answered")
    # An error may be right: the specification's example for a version that isn't supported is an error (Error
    # Handling).
    if asked.result is None:
        return UNDECIDED
    kinds = {"protocolVersion": str, "capabilities": dict, "serverInfo": dict}
    missing = [key for key, kind in kinds.items() if not isinstance(asked.result.get(key), kind)]
    return judged(not missing, asked.answers[0], f"the result lacks {' and '.join(missing)}")


@stated_rule(moves=("open-in-revision",))
@each(_offers)
def version_echoed(_: Event, agreed: str, wanted: str, spoken: set[str]) -> Opinion:
    if agreed == wanted:
        return None
    # The server is at fault only if another part of the history shows that it speaks the wanted version; otherwise the
    # specification requires it to offer a different version.
    return f"the server speaks {wanted}, but answered with {agreed}" if wanted in spoken else UNDECIDED


# A version that sorts before this constant is older than the first revision, so no server can speak it.
_TOO_OLD: Final = "2024"


@stated_rule(moves=("open-in-revision",))
@each(_offers)
def version_offered(_: Event, agreed: str, wanted: str, _spoken: set[str]) -> Opinion:
    # Only offers are judged, not errors: the specification requires an offer, but gives an error as an example (Error
    # Handling).
    if agreed != wanted and not _may_exist(agreed):
        return f"the server answered {wanted} with {agreed!r:.60}, which never existed"
    if wanted in REVISIONS or wanted >= _TOO_OLD:
        return UNDECIDED
    return None if agreed != wanted else f"the server agreed to {wanted!r:.60}, which never existed"


# A revision is named by its date, and takes about a year: what is further ahead of the newest that is known is made up.
_YEARS_AHEAD: Final = 2


def _may_exist(version: str) -> bool:
    """Return whether a version is a revision, or may be one that is newer than this library."""
    if version in REVISIONS or version.startswith("DRAFT"):
        return True
    newest = max(REVISIONS)
    ahead = int(version[:4]) - int(newest[:4]) if _DATE.fullmatch(version) else math.inf
    return version > newest and ahead <= _YEARS_AHEAD


@stated_rule(moves=("open-in-revision",))
@each(_offers)
def version_offered_latest(_: Event, agreed: str, wanted: str, spoken: set[str]) -> Opinion:
    if agreed not in REVISIONS or agreed == wanted or wanted in spoken:
        return UNDECIDED
    newest = max(spoken, key=REVISIONS.index)
    # The server may speak more revisions than the history shows, so a newer offer is right as well.
    kept = REVISIONS.index(agreed) >= REVISIONS.index(newest)
    return None if kept else f"the server offered {agreed}, but also speaks the newer {newest}"


@stated_rule(moves=("another-connection", "open-in-revision"))
def server_waits_for_initialized(history: History) -> Iterator[Verdict]:
    for connection in history:
        ready = next(notifications(connection, "client", "notifications/initialized"), None)
        if connection.hello is None or ready is None:
            continue
        # A request that arrived after the client had sent the notification may have crossed the notification on the
        # way, or be a reaction to it. Only a request that arrived before is certainly too early.
        questions = (asked for asked in connection.questions if asked.method != "ping")
        place = connection.position(ready)
        early = next((asked for asked in questions if connection.position(asked.event) < place), None)
        if early is None:
            yield held(ready)
        else:
            yield broken(early.event, f"the server sent {early.method} before notifications/initialized")


@stated_rule(moves=("call-tool", "call-with-capabilities", "list-all"))
def negotiated_version_kept(history: History) -> Iterator[Verdict]:
    for connection in history:
        for event in connection.messages("server") if connection.hello is not None else ():
            method = member_of(event.message, "method")
            # A method that no revision defines may come from an extension. A method that only other revisions define
            # shows that the server doesn't keep to the agreed revision.
            if isinstance(method, str) and is_spec_method(method):
                spec = method_spec(connection.revision, method)
                kept = spec is not None and "server" in spec.senders
                yield judged(kept, event, f"a server must not send {method} in revision {connection.revision}")


# --- capabilities -----------------------------------------------------------------------------------------------------


@stated_rule(
    sentence="Declare the capability of all that the server offers: tools, resources, prompts, completion and logging.",
    moves=(*LISTING, "complete-unknown", "call-with-logging", "call-tool"),
)
def capabilities_declared(history: History) -> Iterator[Verdict]:
    for connection in filter(_knows_capabilities, history):
        for asked in connection.requests:
            if asked.method in LISTS:
                # An empty list doesn't show that the server offers anything: a server may return an empty list instead
                # of an error.
                needed, offered = asked.method.split("/")[0], member_of(asked.result, LISTS[asked.method][0])
            # 2024-11-05 has completion, but no capability for it.
            elif asked.method == "completion/complete" and connection.revision != "2024-11-05":
                needed, offered = "completions", member_of(asked.result, "completion", "values")
            else:
                continue
            if offered:
                kept = declares(connection.server_capabilities, needed)
                yield judged(kept, asked.answers[0], f"{asked.method} returned data, but {needed} is not declared")
        for event in notifications(connection, "server", "notifications/message"):
            # Versions 1 and 2 of the Python SDK break this rule: they send log messages without declaring `logging`.
            kept = declares(connection.server_capabilities, "logging")
            yield judged(kept, event, "a log message was sent, but logging is not declared")


def _knows_capabilities(connection: Connection) -> bool:
    # A server declares its capabilities in its response to `initialize` or `server/discover`. If it has responded to
    # neither, it has had no occasion to declare anything.
    return any(
        asked.method in ("initialize", "server/discover") and asked.result is not None for asked in connection.requests
    )


_CHANGES: Final = {
    "notifications/tools/list_changed": "tools.listChanged",
    "notifications/prompts/list_changed": "prompts.listChanged",
    "notifications/resources/list_changed": "resources.listChanged",
    "notifications/resources/updated": "resources.subscribe",
}


@stated_rule(
    sentence="Announce changes only of what was declared with `listChanged` or `subscribe`.",
    moves=("call-tool", "subscribe"),
)
def capabilities_respected(history: History) -> Iterator[Verdict]:
    for connection in history:
        for event in notifications(connection, "server", *_CHANGES) if connection.hello is not None else ():
            needed = _CHANGES[event.message["method"]]
            kept = declares(connection.server_capabilities, needed)
            yield judged(kept, event, f"{event.message['method']} was sent, but {needed} is not declared")


@stated_rule(
    sentence="Answer `tools/list`, `resources/list` and `prompts/list` with a list if their capability was declared.",
    moves=("list-all", "list-twice", "list-everywhere"),
)
@each(about("tools/list", "resources/list", "prompts/list"))
def lists_answered(_: Event, connection: Connection, asked: RecordedRequest) -> Opinion:
    # A server may refuse a cursor that has expired or that the kit made up, and a log level that does not exist.
    if "cursor" in asked.params or meta.LOG_LEVEL in asked.meta:
        return UNDECIDED
    code = code_of(asked)
    # An error code of the server's own, outside the range that JSON-RPC reserves, may mean that the server is busy.
    own = code is not None and not -32768 <= code <= -32000
    if own or not declares(connection.server_capabilities, asked.method.split("/")[0]):
        return UNDECIDED
    return None if asked.error is None else f"{asked.method} was answered with the error {code}"


@stated_rule(moves=("discover",))
@each(answered("server/discover"))
def extension_names(_: Event, _connection: Connection, asked: RecordedRequest) -> Opinion:
    capabilities = member_of(asked.result, "capabilities")
    if not isinstance(capabilities, dict):
        return UNDECIDED
    extensions = capabilities.get("extensions")
    names = extensions if isinstance(extensions, dict) else {}
    # Keys of `_meta` may lack a prefix; names of extensions may not (Extension Negotiation).
    wrong = next((name for name in names if "/" not in name or not meta.is_valid_key(name)), None)
    return None if wrong is None else f"the extension name {wrong!r:.80} must consist of a prefix and a name"


# --- discovery, and what each request declares ------------------------------------------------------------------------


@stated_rule(section="server/discover", moves=("discover", "less-meta"))
@each(about("server/discover"))
def discover_answered(_: Event, _connection: Connection, asked: RecordedRequest) -> Opinion:
    # A log level that does not exist, and parameters that the method lacks, may be refused.
    if meta.LOG_LEVEL in asked.meta or asked.params.keys() - {"_meta"}:
        return UNDECIDED
    return None if asked.error is None else f"server/discover was answered with the error {code_of(asked)}"


def _declaring(history: History) -> Iterator[tuple[Event, Connection, RecordedRequest, set[str]]]:
    """Yield each request that could be refused only because of its ``_meta``, with the server's revisions."""
    versions = supported(history)
    for answer, connection, asked in answered()(history):
        # A request may also have been refused because of its HTTP headers, which a server reads before the message.
        by_headers = not is_ordered(connection) and code_of(asked) == error_codes.HEADER_MISMATCH
        once = connection.hello is None and connection.uses(asked.id) == 1
        if once and not by_headers and is_plain(connection, asked.event):
            yield answer, connection, asked, versions


# The form of a revision's name, which is a date.
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}")


def _shown(asked: RecordedRequest) -> str:
    return "a result" if asked.error is None else f"the error {code_of(asked)}"


@stated_rule(moves=("unsupported-version",))
@each(_declaring)
def unsupported_version_error(_: Event, _connection: Connection, asked: RecordedRequest, versions: set[str]) -> Opinion:
    version = asked.meta.get(meta.PROTOCOL_VERSION)
    # A string that does not have the form of a revision's name may be refused as malformed before anything else is
    # checked.
    if not isinstance(version, str) or _DATE.fullmatch(version) is None:
        return UNDECIDED
    # If the revision exists, the server may speak it without having said so yet.
    if version in REVISIONS or version in versions or not isinstance(asked.meta.get(meta.CLIENT_CAPABILITIES), dict):
        return UNDECIDED
    # Over stdio, version 2 of the TypeScript SDK responds to `server/discover` whatever version the request names; the
    # specification makes no exception for this method.
    if code_of(asked) != error_codes.UNSUPPORTED_PROTOCOL_VERSION:
        wanted = error_codes.UNSUPPORTED_PROTOCOL_VERSION
        return f"version {version} was answered with {_shown(asked)}, not with {wanted}"
    named = items_of(asked.error, "data", "supported")
    if not named or not all(isinstance(each, str) for each in named):
        return "error.data.supported must list the versions that the server speaks"
    requested = member_of(asked.error, "data", "requested")
    if requested != version:
        return f"error.data.requested must be {version!r}, not {requested!r:.60}"
    return f"error.data.supported has {version}, which was refused" if version in named else None


@stated_rule(moves=("incomplete-meta",))
@each(_declaring)
def incomplete_meta_refused(_: Event, connection: Connection, asked: RecordedRequest, versions: set[str]) -> Opinion:
    version = asked.meta.get(meta.PROTOCOL_VERSION)
    capabilities = asked.meta.get(meta.CLIENT_CAPABILITIES)
    # To a server of both eras, a request without a version is a request of the legacy era.
    lacks_version = version is None and isinstance(capabilities, dict) and bool(versions) and versions <= set(MODERN)
    lacks_capabilities = capabilities is None and version in MODERN
    # A method that doesn't exist is a reason of its own to refuse the request, and the specification doesn't say which
    # of the two reasons takes precedence.
    if not (lacks_version or lacks_capabilities) or method_spec(connection.revision, asked.method) is None:
        return UNDECIDED
    what = meta.PROTOCOL_VERSION if lacks_version else meta.CLIENT_CAPABILITIES
    kept = code_of(asked) == error_codes.INVALID_PARAMS
    return None if kept else f"a request without {what} was answered with {_shown(asked)}, not with -32602"


@stated_rule(moves=("call-with-capabilities",))
@each(answered())
def missing_capability_error(_: Event, _connection: Connection, asked: RecordedRequest) -> Opinion:
    if code_of(asked) != error_codes.MISSING_REQUIRED_CLIENT_CAPABILITY:
        return UNDECIDED
    required = member_of(asked.error, "data", "requiredCapabilities")
    if not isinstance(required, dict) or not required:
        return "error.data.requiredCapabilities must name the missing capabilities"
    declared = asked.meta.get(meta.CLIENT_CAPABILITIES)
    # If the client had already declared every capability that the error names, there would be nothing to add, and a
    # retry would be in vain.
    missing = any(not declares(declared, name) for name in _paths(required))
    # The names of extensions contain dots, which `declares` would read as levels, so they aren't compared.
    extensions = "extensions" in required or "experimental" in required
    return None if missing or extensions else "the client had declared all capabilities that the error names"


def _paths(capabilities: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in capabilities.items():
        if isinstance(value, dict) and value:
            yield from _paths(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


@stated_rule(moves=("call-with-capabilities", "incomplete-meta"))
@each(about("tools/call", "prompts/get", "resources/read"))
def stateless(_: Event, connection: Connection, asked: RecordedRequest) -> Opinion:
    questions = member_of(asked.result, "inputRequests")
    methods = [member_of(question, "method") for question in questions.values()] if isinstance(questions, dict) else []
    wanted = {method.split("/")[0] for method in methods if isinstance(method, str)}
    declared = asked.meta.get(meta.CLIENT_CAPABILITIES)
    place = connection.position(asked.event)
    earlier = [
        before.meta.get(meta.CLIENT_CAPABILITIES)
        for before in connection.requests
        if connection.position(before.event) < place
    ]
    # `input_within_capabilities` judges undeclared capabilities; this rule is about those that an earlier request
    # declared.
    undeclared = [name for name in sorted(wanted) if not declares(declared, name)]
    borrowed = next((name for name in undeclared if any(declares(each, name) for each in earlier)), None)
    return None if borrowed is None else f"the server used {borrowed}, which only an earlier request declared"


@stated_rule(
    revisions=("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"),
    older="basic/lifecycle#version-negotiation",
    moves=("open-in-revision",),
)
def initialize_refusal_names_versions(history: History) -> Iterator[Verdict]:
    versions = supported(history)
    # A server that also speaks legacy versions agrees to one of them, and refuses `initialize` only for other reasons.
    for _, asked, _ in _hellos(history) if versions and versions <= set(MODERN) else ():
        if asked.error is not None:
            # The specification doesn't say where in the error the versions belong, so they may be anywhere in the
            # error: users see the message, and programs read `data`.
            told = json.dumps(asked.error)
            kept = any(version in told for version in versions)
            yield judged(kept, asked.answers[0], "the error does not name the versions that the server speaks")


@stated_rule(sentence="Don't let a list depend on the connection, or on earlier requests.", moves=("list-everywhere",))
def list_same_on_each_connection(history: History) -> Iterator[Verdict]:
    for method, (field, key) in LISTS.items():
        readings = [
            (connection.number, frozenset(named([asked], field, key)), answer)
            for answer, connection, asked in about(method)(history)
            if asked.result is not None and "cursor" not in asked.params  # the first page is enough for a comparison
        ]
        # The kit uses several connections at the same time, so what counts is the order in the whole transcript, not
        # the order on each connection.
        readings.sort(key=lambda reading: history.order(reading[2]))
        for (a, one, _), (b, other, _), (c, again, event) in zip(readings, readings[1:], readings[2:], strict=False):
            # Of three readings in a row, the first and the last are on the same connection. If only the one between
            # them differs, the list depends on the connection: a list that changes with time would have had to change
            # twice between these readings.
            if a == c != b:
                apart = one == again != other
                yield judged(not apart, event, f"{method} returned different lists on connections {a} and {b}")


@stated_rule(moves=("another-connection", "list-everywhere"))
def connection_not_required(history: History) -> Iterator[Verdict]:
    offered = any(declares(connection.server_capabilities, "tools") for connection in history)
    for connection in history:
        first = next((asked for asked in connection.requests if is_proper(connection, asked)), None)
        if first is None or not first.answers or method_spec(connection.revision, first.method) is None:
            continue
        # Requests with other methods may fail because of the item that they name; these two methods name none.
        # `tools/list` counts only if the server has declared tools on some connection, because a server without tools
        # may rightly refuse the method.
        if first.method == "server/discover" or (first.method == "tools/list" and offered):
            yield judged(
                first.error is None, first.answers[0], f"the server refused {first.method} as the first request"
            )


@stated_rule(moves=("roots-changed",))
def roots_change_survived(history: History) -> Iterator[Verdict]:
    for connection in history:
        # Over HTTP the next request may overtake the notification, and then its response doesn't show whether the
        # server survived the notification.
        if connection.hello is not None and is_ordered(connection):
            for event in notifications(connection, "client", "notifications/roots/list_changed"):
                yield from survived(connection, event)
