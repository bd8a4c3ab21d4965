"""The keys of ``_meta`` that the protocol reserves, and the rules for key names (2026-07-28 basic, "_meta")."""

import re
from typing import Final

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
_LABEL: Final = r"[A-Za-z](?:[A-Za-z0-9-]*[A-Za-z0-9])?"
_KEY: Final = re.compile(rf"(?:{_LABEL}(?:\.{_LABEL})*/)?(?:[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?)?")


def is_valid_key(key: str) -> bool:
    """Tell whether ``key`` has the form the protocol asks of ``_meta`` keys: ``[label(.label)*/][name]``.

    The name may be empty, also without a prefix: the rules say "unless empty".
    """
    return _KEY.fullmatch(key) is not None


def is_reserved_key(key: str) -> bool:
    """Tell whether ``key`` belongs to the protocol, so that applications must not give it a meaning of their own.

    Reserved are the bare keys that the protocol names (``progressToken`` and the trace context), and every prefix
    whose second label is ``modelcontextprotocol`` or ``mcp``: ``com.mcp.tools/`` is, ``com.example.mcp/`` is not.
    """
    prefix, slash, _ = key.partition("/")
    if not slash:
        return key in _BARE_RESERVED
    labels = prefix.split(".")
    return len(labels) > 1 and labels[1] in ("modelcontextprotocol", "mcp")
