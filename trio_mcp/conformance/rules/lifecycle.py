"""Rules for the opening, for versions and capabilities, and for what each request declares."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, Final

from trio_mcp.conformance.rules.common import (
    MODERN,
    asked_about,
    code_of,
    declares,
    is_ordered,
    is_plain,
    is_proper,
    lost,
    notifications,
    survived,
)
from trio_mcp.conformance.rules.history import LISTS, Connection, History, RecordedRequest, is_response
from trio_mcp.conformance.rules.model import Verdict, broken, held, judged
from trio_mcp.conformance.rules.stated import stated_rule
from trio_mcp.types import error_codes, meta
from trio_mcp.types.methods import method_spec
from trio_mcp.types.versions import REVISIONS

__all__: list[str] = []

LISTING: Final = ("list-all", "list-undeclared")


# --- the handshake ----------------------------------------------------------------------------------------------------


def _hellos(history: History) -> Iterator[tuple[Connection, RecordedRequest, str]]:
    """Yield the first handshake of each connection, with the version that the client asked for."""
    for connection in history:
        # The text knows one handshake, the first interaction (Initialization); what a second one gets is up to the
        # server.
        first = next((asked for asked in connection.requests if asked.method == "initialize"), None)
        wanted = first.params.get("protocolVersion") if first is not None else None
        if first is not None and isinstance(wanted, str) and is_plain(connection, first.event):
            yield connection, first, wanted


def _agreed(asked: RecordedRequest) -> str | None:
    version = (asked.result or {}).get("protocolVersion")
    return version if isinstance(version, str) else None


def _spoken(history: History) -> set[str]:
    """Return the revisions that the server has shown to speak, or says it does, of those that exist."""
    found = {version for _, asked, _ in _hellos(history) if (version := _agreed(asked)) is not None}
    # Versions that the kit doesn't know, such as drafts, have no place in the order by which offers are judged.
    return (found | _advertised(history)) & set(REVISIONS)


def _advertised(history: History) -> set[str]:
    found: set[str] = set()
    for _, asked in history.requests("server/discover"):
        versions = (asked.result or {}).get("supportedVersions")
        found |= {each for each in versions if isinstance(each, str)} if isinstance(versions, list) else set()
    return found


@stated_rule(moves=("open-in-revision", "another-connection"))
def initialize_answered(history: History) -> Iterator[Verdict]:
    for _, asked, wanted in _hellos(history):
        # An error may be right: the text has an example of one for a version that isn't supported (Error Handling).
        if asked.answers and asked.result is not None:
            missing = [key for key in ("capabilities", "serverInfo") if not isinstance(asked.result.get(key), dict)]
            yield judged(not missing, asked.answers[0], f"the result lacks {' and '.join(missing)}")
        elif not asked.answers and (mark := lost(asked)) is not None:
            yield broken(mark, f"initialize for {wanted} was not answered")


@stated_rule(moves=("open-in-revision",))
def version_echoed(history: History) -> Iterator[Verdict]:
    # The modern era has no handshake, so a server that speaks it rightly agrees to another version here.
    spoken = _spoken(history) - set(MODERN)
    for _, asked, wanted in _hellos(history):
        agreed = _agreed(asked)
        if agreed == wanted:
            yield held(asked.answers[0])
        # That the server speaks the version must show elsewhere; otherwise an offer is what the text demands.
        elif agreed is not None and wanted in spoken:
            yield broken(asked.answers[0], f"the server speaks {wanted}, but answers with {agreed}")


# Before the first revision; nothing that a server could speak is called that.
_TOO_OLD: Final = "2024"


@stated_rule(moves=("open-in-revision",))
def version_offered(history: History) -> Iterator[Verdict]:
    for _, asked, wanted in _hellos(history):
        agreed = _agreed(asked)
        # An error is an example in the text, although it asks for a version.
        if agreed is not None and wanted not in REVISIONS and wanted < _TOO_OLD:
            yield judged(
                agreed != wanted, asked.answers[0], f"the server agrees to {wanted!r:.60}, which never existed"
            )


@stated_rule(moves=("open-in-revision",))
def version_offered_latest(history: History) -> Iterator[Verdict]:
    spoken = _spoken(history) - set(MODERN)
    for _, asked, wanted in _hellos(history):
        agreed = _agreed(asked)
        if agreed in REVISIONS and agreed is not None and agreed != wanted and wanted not in spoken:
            newest = max(spoken, key=REVISIONS.index)
            # The revisions seen are the least that a server speaks, so something newer is right as well.
            kept = REVISIONS.index(agreed) >= REVISIONS.index(newest)
            yield judged(kept, asked.answers[0], f"the server offers {agreed}, but speaks {newest}")


@stated_rule(moves=("another-connection", "open-in-revision"))
def server_waits_for_initialized(history: History) -> Iterator[Verdict]:
    for connection in history:
        ready = next(notifications(connection, "client", "notifications/initialized"), None)
        if connection.hello is None or ready is None:
            continue
        early = [
            asked
            for asked in connection.questions
            # A message after the notification was sent may have crossed it, or be a response to it; only what came
            # before is certain.
            if asked.method != "ping" and connection.position(asked.event) < connection.position(ready)
        ]
        if early:
            yield broken(early[0].event, f"{early[0].method} was asked before notifications/initialized")
        else:
            yield held(ready)


@stated_rule(since="2025-06-18", moves=("call-tool", "call-with-capabilities", "list-all"))
def negotiated_version_kept(history: History) -> Iterator[Verdict]:
    for connection in history:
        if connection.hello is None:
            continue
        for event in connection.messages("server"):
            message = event.message
            method = message.get("method") if isinstance(message, dict) else None
            if not isinstance(method, str):
                continue
            # A method that no revision has may come from an extension; one that only others have shows the wrong
            # version.
            known = [each for each in REVISIONS if method_spec(each, method) is not None]
            if known:
                spec = method_spec(connection.revision, method)
                kept = spec is not None and "server" in spec.senders
                yield judged(kept, event, f"a server sends no {method} in revision {connection.revision}")


# --- capabilities -----------------------------------------------------------------------------------------------------


@stated_rule(
    sentence="Declare the capability of all that the server offers: tools, resources, prompts, completion and logging.",
    moves=(*LISTING, "complete-unknown", "call-with-logging", "call-tool"),
)
def capabilities_declared(history: History) -> Iterator[Verdict]:
    for connection in history:
        if not _knows_capabilities(connection):
            continue
        for asked in connection.requests:
            answer = asked.answers[0] if asked.answers else None
            if answer is None or asked.result is None:
                continue
            if asked.method in LISTS:
                # An empty list may only be polite.
                needed, offered = asked.method.split("/")[0], bool(asked.result.get(LISTS[asked.method][0]))
            # 2024-11-05 has completion, but no capability for it.
            elif asked.method == "completion/complete" and connection.revision != "2024-11-05":
                completion = asked.result.get("completion")
                needed, offered = "completions", bool(completion.get("values") if isinstance(completion, dict) else 0)
            else:
                continue
            if offered:
                kept = declares(connection.server_capabilities, needed)
                yield judged(kept, answer, f"{asked.method} gives something, but {needed} is not declared")
        for event in notifications(connection, "server", "notifications/message"):
            # Versions 1 and 2 of the Python SDK do this: they log although they don't declare it.
            kept = declares(connection.server_capabilities, "logging")
            yield judged(kept, event, "a log message was sent, but logging is not declared")


def _knows_capabilities(connection: Connection) -> bool:
    # A server that was asked neither has had no occasion to declare anything.
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
    since="2025-06-18",
    sentence="Announce changes only of what was declared with `listChanged` or `subscribe`.",
    moves=("call-tool", "subscribe"),
)
def capabilities_respected(history: History) -> Iterator[Verdict]:
    for connection in history:
        if connection.hello is None:
            continue
        for event in notifications(connection, "server", *_CHANGES):
            needed = _CHANGES[event.message["method"]]
            kept = declares(connection.server_capabilities, needed)
            yield judged(kept, event, f"{event.message['method']} was sent, but {needed} is not declared")


@stated_rule(
    sentence="Answer `tools/list`, `resources/list` and `prompts/list` with a list if their capability was declared.",
    moves=("list-all", "list-twice", "list-everywhere"),
)
def lists_answered(history: History) -> Iterator[Verdict]:
    for connection, asked, answer in asked_about(history, "tools/list", "resources/list", "prompts/list"):
        # A cursor may have expired, or be one that the kit made up.
        if "cursor" in asked.params or not declares(connection.server_capabilities, asked.method.split("/")[0]):
            continue
        # A level that does not exist may be refused, and a code of the server's own may mean that it is busy.
        code = code_of(asked)
        if meta.LOG_LEVEL not in asked.meta and (code is None or -32768 <= code <= -32000):
            yield judged(asked.error is None, answer, f"{asked.method} was answered with the error {code_of(asked)}")


@stated_rule(moves=("discover",))
def extension_names(history: History) -> Iterator[Verdict]:
    for _, asked in history.requests("server/discover"):
        capabilities = (asked.result or {}).get("capabilities")
        if isinstance(capabilities, dict):
            extensions = capabilities.get("extensions")
            names = extensions if isinstance(extensions, dict) else {}
            # Keys of `_meta` may do without a prefix, names of extensions may not (Extension Negotiation).
            wrong = next((name for name in names if "/" not in name or not meta.is_valid_key(name)), None)
            yield judged(wrong is None, asked.answers[0], f"{wrong!r:.80} is not a prefix and a name")


# --- discovery, and what each request declares ------------------------------------------------------------------------


@stated_rule(
    section="server/discover",
    sentence="Answer `server/discover` with what the server is and can do.",
    moves=("discover", "less-meta"),
)
def discover_answered(history: History) -> Iterator[Verdict]:
    for _, asked, answer in asked_about(history, "server/discover"):
        # A level that does not exist, and parameters that the method lacks, may be refused.
        if meta.LOG_LEVEL not in asked.meta and not asked.params.keys() - {"_meta"}:
            yield judged(asked.error is None, answer, f"server/discover was answered with the error {code_of(asked)}")


def _own_http_fault(connection: Connection, asked: RecordedRequest) -> bool:
    """Return whether the headers, too, may be why a request was refused: they are read before the message."""
    return not is_ordered(connection) and code_of(asked) == error_codes.HEADER_MISMATCH


def _declared(asked: RecordedRequest) -> tuple[Any, Any]:
    return asked.meta.get(meta.PROTOCOL_VERSION), asked.meta.get(meta.CLIENT_CAPABILITIES)


@stated_rule(
    sentence="Refuse a version that the server doesn't speak with -32022, naming those that it speaks.",
    moves=("unsupported-version",),
)
def unsupported_version_error(history: History) -> Iterator[Verdict]:
    for connection, asked in history.requests():
        version, capabilities = _declared(asked)
        if connection.hello is not None or not isinstance(version, str) or not isinstance(capabilities, dict):
            continue
        # A revision that exists may be one that the server speaks without having said so yet.
        if version in REVISIONS or version in _advertised(history) or connection.uses(asked.id) != 1:
            continue
        # A text that is not even a name may be malformed first of all.
        if not asked.answers or not is_plain(connection, asked.event) or not _looks_like_a_version(version):
            continue
        if _own_http_fault(connection, asked):
            continue
        # Over stdio, version 2 of the TypeScript SDK answers `server/discover` in any version; the text excepts no
        # method.
        yield Verdict(asked.answers[0], _version_problem(asked, version))


def _looks_like_a_version(version: str) -> bool:
    parts = version.split("-")
    return [len(part) for part in parts] == [4, 2, 2] and all(part.isdigit() for part in parts)


def _version_problem(asked: RecordedRequest, version: str) -> str | None:
    code = code_of(asked)
    if code != error_codes.UNSUPPORTED_PROTOCOL_VERSION:
        shown = "a result" if asked.error is None else f"the error {code}"
        return f"version {version} was answered with {shown}, not with {error_codes.UNSUPPORTED_PROTOCOL_VERSION}"
    data = (asked.error or {}).get("data")
    supported = data.get("supported") if isinstance(data, dict) else None
    if not isinstance(supported, list) or not supported or not all(isinstance(each, str) for each in supported):
        return "error.data.supported must list the versions that the server speaks"
    requested = data.get("requested") if isinstance(data, dict) else None
    if requested != version:
        return f"error.data.requested must be {version!r}, not {requested!r:.60}"
    return f"error.data.supported has {version}, which was refused" if version in supported else None


@stated_rule(moves=("incomplete-meta",))
def incomplete_meta_refused(history: History) -> Iterator[Verdict]:
    only_modern = bool(_advertised(history)) and _advertised(history) <= set(MODERN)
    for connection, asked in history.requests():
        if connection.hello is not None or not asked.answers or not is_plain(connection, asked.event):
            continue
        # An id that is in use and a method that doesn't exist are reasons of their own, and the text doesn't say which
        # comes first.
        if connection.uses(asked.id) != 1 or method_spec(connection.revision, asked.method) is None:
            continue
        version, capabilities = _declared(asked)
        # Without a version it is a request of the legacy era to a server that speaks both.
        lacks_version = version is None and isinstance(capabilities, dict) and only_modern
        lacks_capabilities = capabilities is None and version in MODERN
        if not (lacks_version or lacks_capabilities) or _own_http_fault(connection, asked):
            continue
        code = code_of(asked)
        shown = "a result" if asked.error is None else f"the error {code}"
        what = meta.PROTOCOL_VERSION if lacks_version else meta.CLIENT_CAPABILITIES
        kept = code == error_codes.INVALID_PARAMS
        yield judged(kept, asked.answers[0], f"a request without {what} was answered with {shown}, not with -32602")


@stated_rule(sentence="Name the missing capabilities in -32021.", moves=("call-with-capabilities",))
def missing_capability_error(history: History) -> Iterator[Verdict]:
    for connection in history:
        for asked in connection.requests:
            if code_of(asked) != error_codes.MISSING_REQUIRED_CLIENT_CAPABILITY:
                continue
            data = (asked.error or {}).get("data")
            required = data.get("requiredCapabilities") if isinstance(data, dict) else None
            if not isinstance(required, dict) or not required:
                yield broken(asked.answers[0], "error.data.requiredCapabilities must name the missing capabilities")
                continue
            declared = asked.meta.get(meta.CLIENT_CAPABILITIES)
            # If all that it names was declared, a client can add nothing, and would try in vain.
            missing = [name for name in _paths(required) if not declares(declared, name)]
            # The names of extensions contain dots, which `declares` would take for steps downwards, so they aren't
            # compared.
            extensions = "extensions" in required or "experimental" in required
            yield judged(bool(missing) or extensions, asked.answers[0], "all the capabilities it names were declared")


def _paths(capabilities: dict[str, Any], prefix: str = "") -> Iterator[str]:
    for name, value in capabilities.items():
        if isinstance(value, dict) and value:
            yield from _paths(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


@stated_rule(
    sentence="Take nothing from earlier requests of a connection: no version, no capabilities, no name.",
    moves=("call-with-capabilities", "incomplete-meta"),
)
def stateless(history: History) -> Iterator[Verdict]:
    for connection, asked, answer in asked_about(history, "tools/call", "prompts/get", "resources/read"):
        found = asked.result
        questions = found.get("inputRequests") if found is not None else None
        declared = asked.meta.get(meta.CLIENT_CAPABILITIES)
        earlier = [
            before.meta.get(meta.CLIENT_CAPABILITIES)
            for before in connection.requests
            if connection.position(before.event) < connection.position(asked.event)
        ]
        wanted = {
            each["method"].split("/")[0]
            for each in (questions.values() if isinstance(questions, dict) else ())
            if isinstance(each, dict) and isinstance(each.get("method"), str)
        }
        # Undeclared capabilities are for `input_within_capabilities`; this is about those that an earlier request
        # declared.
        borrowed = [
            name for name in sorted(wanted) if not declares(declared, name) and any(declares(e, name) for e in earlier)
        ]
        if borrowed:
            yield broken(answer, f"{borrowed[0]} was declared by an earlier request only")
        elif is_response(answer.message):
            yield held(answer)


@stated_rule(
    revisions=("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28"),
    older="basic/lifecycle#version-negotiation",
    moves=("open-in-revision",),
)
def initialize_refusal_names_versions(history: History) -> Iterator[Verdict]:
    advertised = _advertised(history)
    # A server that also speaks legacy versions agrees to one, and refuses `initialize` only for other reasons.
    if not advertised or not advertised <= set(MODERN):
        return
    for _, asked, _ in _hellos(history):
        if asked.error is not None:
            # Where in the error the versions stand isn't said: users see the message, programs read `data`.
            told = json.dumps(asked.error)
            kept = any(version in told for version in advertised)
            yield judged(kept, asked.answers[0], "the error does not name the versions that the server speaks")


@stated_rule(sentence="Don't let a list depend on the connection, or on earlier requests.", moves=("list-everywhere",))
def list_same_on_each_connection(history: History) -> Iterator[Verdict]:
    for method, (field, key) in LISTS.items():
        readings = [
            (connection.number, asked)
            for connection, asked, _ in asked_about(history, method)
            if asked.result is not None and "cursor" not in asked.params  # the first page will do
        ]
        # Connections are used at the same time, so the order of the whole transcript counts, not that of each.
        readings.sort(key=lambda reading: history.order(reading[1].answers[0]))
        seen = [(number, _names(asked, field, key), asked.answers[0]) for number, asked in readings]
        for (a, one, _), (b, other, _), (c, again, event) in zip(seen, seen[1:], seen[2:], strict=False):
            # The same list before and after: what changes with time would have to change twice just then.
            if a == c != b:
                apart = one == again != other
                yield judged(not apart, event, f"{method} gives one list on connection {a}, and another on {b}")


def _names(asked: RecordedRequest, field: str, key: str) -> frozenset[str]:
    items = (asked.result or {}).get(field)
    return frozenset(
        item[key] for item in (items if isinstance(items, list) else ()) if isinstance(item, dict) and key in item
    )


@stated_rule(moves=("another-connection", "list-everywhere"))
def connection_not_required(history: History) -> Iterator[Verdict]:
    for connection in history:
        first = next((asked for asked in connection.requests if is_proper(connection, asked)), None)
        spec = method_spec(connection.revision, first.method) if first is not None else None
        # Other methods may fail on account of what they name; these two have nothing to fail on.
        if first is None or spec is None or first.method not in ("server/discover", "tools/list"):
            continue
        # A server without tools may well refuse `tools/list`, and what it has may have been said on another connection.
        if first.answers and (first.method == "server/discover" or _declared_anywhere(history, "tools")):
            yield judged(first.error is None, first.answers[0], f"a new connection can't begin with {first.method}")


def _declared_anywhere(history: History, name: str) -> bool:
    return any(declares(connection.server_capabilities, name) for connection in history)


@stated_rule(moves=("roots-changed",))
def roots_change_survived(history: History) -> Iterator[Verdict]:
    for connection in history:
        # Over HTTP the next request may overtake the notification, and then its answer shows nothing.
        if connection.hello is not None and is_ordered(connection):
            for event in notifications(connection, "client", "notifications/roots/list_changed"):
                yield from survived(connection, event)
