"""The keys of ``_meta`` that the protocol reserves, and the rules for the names of keys (2026-07-28 basic, "_meta")."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from trio_mcp._patterns import late_pattern
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

# A key of requests whose sender wants progress notifications; it is older than the rule that reserved keys have a
# prefix.
PROGRESS_TOKEN: Final = "progressToken"

# Keys of requests in the modern era; the log level and the client's name are optional.
PROTOCOL_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
CLIENT_INFO: Final = "io.modelcontextprotocol/clientInfo"
CLIENT_CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
LOG_LEVEL: Final = "io.modelcontextprotocol/logLevel"
# A key of results in the modern era.
SERVER_INFO: Final = "io.modelcontextprotocol/serverInfo"
# A key of every message in a subscriptions/listen stream.
SUBSCRIPTION_ID: Final = "io.modelcontextprotocol/subscriptionId"
# A key of messages about a task (2025-11-25 basic/utilities/tasks).
RELATED_TASK: Final = "io.modelcontextprotocol/related-task"

# W3C Trace Context and W3C Baggage: the exceptions to the rule that reserved keys have a prefix.
TRACEPARENT: Final = "traceparent"
TRACESTATE: Final = "tracestate"
BAGGAGE: Final = "baggage"

_BARE_RESERVED: Final = frozenset({PROGRESS_TOKEN, TRACEPARENT, TRACESTATE, BAGGAGE})
# The labels that reserve a prefix for the protocol, and the first revision in which only the second label counts.
_OWNER: Final = frozenset({"modelcontextprotocol", "mcp"})
_SECOND_LABEL_SINCE: Final = "2025-11-25"

# Official extensions define keys under this prefix (2026-07-28 basic, "_meta"), so applications may set such keys.
_OFFICIAL: Final = "io.modelcontextprotocol/"
_OF_REQUESTS: Final = frozenset({LOG_LEVEL, RELATED_TASK, TRACEPARENT, TRACESTATE, BAGGAGE})
# The keys that this library sets itself, each with what to do instead, or why.
_FILLED_IN: Final = {
    PROGRESS_TOKEN: "to receive progress notifications, pass on_progress=… to the call",
    PROTOCOL_VERSION: "the mode of the Client determines it",
    CLIENT_INFO: "pass client_info=… to the Client",
    CLIENT_CAPABILITIES: "the callbacks of the Client determine the capabilities",
    SERVER_INFO: "it describes the Server itself",
    SUBSCRIPTION_ID: "it ties messages to a subscription",
}
# The number of characters of a key that an error message shows (an arbitrary choice).
_SHOWN: Final = 100

# 2026-07-28 basic, "_meta": a label begins with a letter and ends with a letter or digit; a name begins and ends with
# either.
_LABEL: Final = r"[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_KEY: Final = late_pattern(rf"(?:{_LABEL}(?:\.{_LABEL})*/)?(?:[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)?")


def is_valid_key(key: str) -> bool:
    """Return whether ``key`` has the form that the protocol requires of ``_meta`` keys: ``[label(.label)*/][name]``.

    The name may be empty, even without a prefix: the rules say "unless empty".
    """
    return _KEY.fullmatch(key) is not None


def is_reserved_key(key: str, revision: str = LATEST) -> bool:
    """Return whether ``key`` is reserved for the protocol, so that applications must not give it a meaning.

    The reserved keys are those that the protocol defines without a prefix (``progressToken`` and the trace context),
    and those whose prefix has the label ``modelcontextprotocol`` or ``mcp`` in a certain place. Since 2025-11-25 that
    is the second label (``com.mcp.tools/`` is reserved, ``com.example.mcp/`` and ``mcp.dev/`` are not), in 2025-06-18
    any label but the last (``mcp.dev/`` is reserved). Earlier revisions have no such rule; the rule of 2025-06-18 is
    applied to them.
    """
    prefix, slash, _ = key.partition("/")
    if not slash:
        return key in _BARE_RESERVED
    labels = prefix.split(".")
    return not _OWNER.isdisjoint(labels[1:2] if at_least(revision, _SECOND_LABEL_SINCE) else labels[:-1])


def checked_meta(
    given: Mapping[str, Any], what: str, *, of_request: bool = False, revisions: Iterable[str] = REVISIONS
) -> dict[str, Any]:
    """Check the ``_meta`` entries that an application sets. A peer's entries are never refused.

    An application may use its own keys, and keys under ``io.modelcontextprotocol/``, where extensions define theirs.
    It may not use keys that this library sets itself, nor, except on a request, keys that only requests have.

    Args:
        given: The entries.
        what: The object that the entries are set on, for the error message.
        of_request: Whether the entries are set on a request, rather than on a definition.
        revisions: The revisions in which the entries may be sent; a key must be valid in each of them.

    Returns:
        A copy of the entries.

    Raises:
        TypeError: If the entries are not a mapping with string keys.
        ValueError: If a key is malformed or reserved; the message says which, and why.
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
            "or digit, optionally after a prefix of labels separated by dots and a slash, as in 'com.example/name'"
        )
    # These keys are checked before the prefixes, because most of them have a prefix under which other keys are allowed.
    if key in _FILLED_IN:
        return f"is set by trio_mcp: {_FILLED_IN[key]}"
    if key in _OF_REQUESTS:
        return None if of_request else "is for requests only, not for definitions"
    if key.startswith(_OFFICIAL):
        return None
    for revision in revisions:
        if is_reserved_key(key, revision):
            rule = (
                "2025-11-25 reserves prefixes whose second label is 'mcp' or 'modelcontextprotocol'"
                if at_least(revision, _SECOND_LABEL_SINCE)
                else "2025-06-18 reserves prefixes in which 'mcp' or 'modelcontextprotocol' comes before another label"
            )
            return f"is reserved: {rule} for the protocol; use a prefix of your own, as in 'com.example/name'"
    return None
