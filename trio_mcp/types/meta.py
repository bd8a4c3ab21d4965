"""The keys of ``_meta`` that the protocol reserves, and the rules for key names (2026-07-28 basic, "_meta")."""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from trio_mcp.types.versions import LATEST, REVISIONS, at_least

__all__ = [
    "BAGGAGE",
    "CLIENT_CAPABILITIES",
    "CLIENT_INFO",
    "LOG_LEVEL",
    "PROGRESS_TOKEN",
    "PROTOCOL_VERSION",
    "RELATED_TASK",
    "SERVER_INFO",
    "SUBSCRIPTION_ID",
    "TRACEPARENT",
    "TRACESTATE",
    "checked_meta",
    "is_reserved_key",
    "is_valid_key",
]

PROGRESS_TOKEN: Final = "progressToken"

# Of every request of the modern era
PROTOCOL_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
CLIENT_INFO: Final = "io.modelcontextprotocol/clientInfo"
CLIENT_CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
LOG_LEVEL: Final = "io.modelcontextprotocol/logLevel"
# Of every result of the modern era
SERVER_INFO: Final = "io.modelcontextprotocol/serverInfo"
# Of everything that travels on a subscriptions/listen stream
SUBSCRIPTION_ID: Final = "io.modelcontextprotocol/subscriptionId"
# 2025-11-25 basic/utilities/tasks
RELATED_TASK: Final = "io.modelcontextprotocol/related-task"

# W3C Trace Context and W3C Baggage: the exception to the rule that reserved keys have a prefix
TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
BAGGAGE: Final = "baggage"

_BARE_RESERVED: Final = frozenset({PROGRESS_TOKEN, TRACEPARENT, TRACESTATE, BAGGAGE})
_OWNER: Final = frozenset({"modelcontextprotocol", "mcp"})
_SECOND_LABEL_SINCE: Final = "2025-11-25"

# "Official extensions define additional keys" under it (2026-07-28 basic, "_meta"), so it is not ours alone to use.
_OFFICIAL: Final = "io.modelcontextprotocol/"
_OF_REQUESTS: Final = frozenset({LOG_LEVEL, RELATED_TASK, TRACEPARENT, TRACESTATE, BAGGAGE})
_FILLED_IN: Final = {
    PROGRESS_TOKEN: "pass on_progress=… to a call for progress notifications",
    PROTOCOL_VERSION: "the mode of the Client decides on it",
    CLIENT_INFO: "pass client_info=… to the Client",
    CLIENT_CAPABILITIES: "the Client declares what it has callbacks for",
    SERVER_INFO: "it is what the Server was given",
    SUBSCRIPTION_ID: "it ties messages to a subscription",
}
_SHOWN: Final = 100  # characters of a key in an error message

_LABEL: Final = r"[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_KEY: Final = re.compile(rf"(?:{_LABEL}(?:\.{_LABEL})*/)?(?:[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)?")


def is_valid_key(key: str) -> bool:
    """Tell whether ``key`` has the form the protocol asks of ``_meta`` keys: ``[label(.label)*/][name]``.

    The name may be empty, also without a prefix: the rules say "unless empty".
    """
    return _KEY.fullmatch(key) is not None


def is_reserved_key(key: str, revision: str = LATEST) -> bool:
    """Tell whether ``key`` belongs to the protocol, so that applications must not give it a meaning of their own.

    Reserved are the bare keys that the protocol names (``progressToken`` and the trace context), and prefixes with the
    label ``modelcontextprotocol`` or ``mcp`` in a certain place: since 2025-11-25 the second (``com.mcp.tools/`` is
    reserved, ``com.example.mcp/`` and ``mcp.dev/`` are not), in 2025-06-18 any but the last (``mcp.dev/`` is). Older
    revisions say nothing, and are held to the first that does.
    """
    prefix, slash, _ = key.partition("/")
    if not slash:
        return key in _BARE_RESERVED
    labels = prefix.split(".")
    return not _OWNER.isdisjoint(labels[1:2] if at_least(revision, _SECOND_LABEL_SINCE) else labels[:-1])


def checked_meta(
    given: Mapping[str, Any], what: str, *, of_request: bool = False, revisions: Iterable[str] = REVISIONS
) -> dict[str, Any]:
    """Check entries that an application gives for a ``_meta`` of ours. What a peer sends is never refused.

    Keys of its own are open to it, and so are those under ``io.modelcontextprotocol/``, where extensions have theirs;
    not the ones that this library fills in, nor, except on a request, those that only requests have.

    Args:
        given: The entries.
        what: Whose they are, for the error message.
        of_request: Whether they are a request's, rather than a definition's.
        revisions: Those that they may travel in; a key must be in order in each of them.

    Returns:
        A copy of the entries.

    Raises:
        TypeError: They are no mapping with strings as keys.
        ValueError: A key is malformed, or belongs to the protocol; the message says which, and why.
    """
    if not isinstance(given, Mapping):
        raise TypeError(f"{what}: meta must be a mapping, got {type(given).__name__}")
    revisions = tuple(revisions)
    for key in given:
        if not isinstance(key, str):
            raise TypeError(f"{what}: the keys of _meta must be strings, got {key!r}")
        problem = _problem(key, of_request, revisions)
        if problem is not None:
            shown = key if len(key) <= _SHOWN else key[:_SHOWN] + "…"
            raise ValueError(f"{what}: the _meta key {shown!r} {problem}")
    return dict(given)


def _problem(key: str, of_request: bool, revisions: tuple[str, ...]) -> str | None:
    if not is_valid_key(key):
        return (
            "is malformed: it must be a name of letters, digits, '-', '_' and '.' that begins and ends with a letter "
            "or digit, perhaps after a prefix of labels with dots between them and a slash, as in 'com.example/name'"
        )
    if key in _FILLED_IN:
        return f"is filled in by trio_mcp: {_FILLED_IN[key]}"
    if key in _OF_REQUESTS:
        return None if of_request else "belongs to requests, not to definitions"
    if key.startswith(_OFFICIAL):
        return None
    for revision in revisions:
        if is_reserved_key(key, revision):
            rule = (
                "2025-11-25 keeps prefixes whose second label is 'mcp' or 'modelcontextprotocol'"
                if at_least(revision, _SECOND_LABEL_SINCE)
                else "2025-06-18 keeps prefixes in which 'mcp' or 'modelcontextprotocol' comes before another label"
            )
            return f"is reserved: {rule} for the protocol; use a prefix of your own, as in 'com.example/name'"
    return None
