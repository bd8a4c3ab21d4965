"""Reads and writes the trace context of a request: ``traceparent``, ``tracestate`` and ``baggage`` in ``_meta``.

The formats are those of W3C Trace Context and W3C Baggage (2026-07-28 `basic/index`, OpenTelemetry trace context;
SEP-414). Earlier revisions don't mention the keys, but peers use them there too: OpenTelemetry's conventions are older.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from typing import Any

from trio_mcp import _attrs as attrs
from trio_mcp._patterns import late_pattern
from trio_mcp.types.meta import BAGGAGE, TRACEPARENT, TRACESTATE

__all__ = ["CURRENT_TRACE", "TraceContext"]

# In version 00, a traceparent ends after the flags; in later versions, it may continue after a hyphen; version ff is
# invalid (Trace Context, section 3.2).
_TRACEPARENT = late_pattern(
    r"(?!ff)(?P<version>[0-9a-f]{2})-(?!0{32})(?P<trace_id>[0-9a-f]{32})-(?!0{16})(?P<parent_id>[0-9a-f]{16})"
    r"-(?P<flags>[0-9a-f]{2})(?P<more>-[!-~]*)?"
)
# A tracestate has up to 32 members with distinct keys; empty members don't count (Trace Context, section 3.3.1).
_STATE_MEMBER = late_pattern(
    r"(?P<key>[a-z][a-z0-9_*/-]{0,255}|[a-z0-9][a-z0-9_*/-]{0,240}@[a-z][a-z0-9_*/-]{0,13})"
    r"=[ -+\--<>-~]{0,255}[!-+\--<>-~]"
)
_MAX_STATE_MEMBERS = 32
# A member of a baggage is key=value, then properties (Baggage, section 3.3). The quantifiers are possessive or atomic:
# hostile input could otherwise make the engine try every way to split a run of blanks between two adjacent patterns.
_TOKEN = r"[ \t]*+[!#$%&'*+.^_`|~0-9A-Za-z-]++[ \t]*+"
_VALUE = r"[ \t]*+[!#-+\--:<-\[\]-~]*+[ \t]*+"
_BAGGAGE_MEMBER = late_pattern(rf"{_TOKEN}={_VALUE}(?>(?:;{_TOKEN}(?:={_VALUE})?)*)")
# The limits are in characters and in members; anything longer counts as malformed. The specifications require at least
# this much to be passed on (Trace Context, section 3.3.1.5, and Baggage, section 3.3.2). A tracestate has up to 32
# members of 256 + 1 + 256 characters and a comma each. The traceparents of later versions have no limit in the
# specification, so 512 is an arbitrary choice.
_MAX_PARENT = 512
_MAX_STATE = 32 * 514
_MAX_BAGGAGE = 8192
_MAX_BAGGAGE_MEMBERS = 64


@attrs.frozen
class TraceContext:
    """The place in a trace at which a request was made, in the formats of W3C Trace Context and W3C Baggage.

    Attributes:
        traceparent: The ids of the trace and of the span in which the request was made, and flags; None if there is
            only baggage.
        tracestate: Data that tracing systems add to the ids; None without a ``traceparent``.
        baggage: Key-value pairs that applications pass along.

    Raises:
        TypeError: If a value is not a string.
        ValueError: If a value is malformed, or there is a ``tracestate`` without a ``traceparent``.
    """

    traceparent: str | None = None
    tracestate: str | None = None
    baggage: str | None = None

    def __attrs_post_init__(self) -> None:
        for name, is_valid in _FORMATS.items():
            value = getattr(self, name)
            if value is None:
                continue
            if not isinstance(value, str):
                raise TypeError(f"{name} must be a string, got {type(value).__name__}")
            if not is_valid(value):
                raise ValueError(f"{name} is not in W3C format: {value[:100]!r}")
        if self.tracestate is not None and self.traceparent is None:
            raise ValueError("a tracestate needs a traceparent; pass both")

    @classmethod
    def from_meta(cls, meta: Mapping[str, Any]) -> TraceContext | None:
        """Read the trace context from the ``_meta`` of a request.

        A malformed value counts as absent, as W3C requires. Without a valid ``traceparent``, the ``tracestate`` counts
        as absent too, but not the ``baggage``.

        Returns:
            The trace context; None if there is neither a valid ``traceparent`` nor valid ``baggage``.
        """
        traceparent, baggage = _read(meta, TRACEPARENT), _read(meta, BAGGAGE)
        if traceparent is None and baggage is None:
            return None
        return cls(traceparent, None if traceparent is None else _read(meta, TRACESTATE), baggage)

    def to_meta(self) -> dict[str, str]:
        """Return the entries for the ``_meta`` of a request."""
        entries = {TRACEPARENT: self.traceparent, TRACESTATE: self.tracestate, BAGGAGE: self.baggage}
        return {key: value for key, value in entries.items() if value is not None}

    @property
    def trace_id(self) -> str | None:
        """The id of the trace, 32 hexadecimal digits."""
        # All versions have these fields in the same places (Trace Context, section 3.2); `_TRACEPARENT` has checked
        # that.
        return None if self.traceparent is None else self.traceparent[3:35]

    @property
    def parent_id(self) -> str | None:
        """The id of the span in which the request was made, 16 hexadecimal digits."""
        return None if self.traceparent is None else self.traceparent[36:52]

    @property
    def sampled(self) -> bool:
        """Whether the caller may have recorded the trace."""
        # The sampled flag is the lowest bit of the flags (Trace Context, section 3.2.2.5.1).
        return self.traceparent is not None and bool(int(self.traceparent[53:55], 16) & 1)

    @classmethod
    def current(cls) -> TraceContext | None:
        """Return the trace context that requests made in the current task carry.

        In a handler, that is the trace context of the request being served; None elsewhere, unless `use` set one. The
        trace context is inherited like any context variable: by child tasks, and by the threads of sync functions.
        """
        return CURRENT_TRACE.get()

    @contextlib.contextmanager
    def use(self) -> Iterator[None]:
        """Make the requests in the block carry this trace context, in place of the current one."""
        token = CURRENT_TRACE.set(self)
        try:
            yield
        finally:
            CURRENT_TRACE.reset(token)

    def added_to(self, params: dict[str, Any] | None) -> dict[str, Any]:
        """Return a request's parameters with this trace context, unless their ``_meta`` already names one.

        The argument is not changed.
        """
        if not params:
            return {"_meta": self.to_meta()}
        given = params.get("_meta") or {}
        # A trace that the caller has put into `_meta` is left alone as a whole: the baggage of one trace must not be
        # combined with the ids of another. A `_meta` that is not an object is left to the validation, which refuses it.
        if not isinstance(given, Mapping) or TRACEPARENT in given or BAGGAGE in given:
            return params
        return {**params, "_meta": {**self.to_meta(), **given}}


CURRENT_TRACE: ContextVar[TraceContext | None] = ContextVar("the trace that requests belong to", default=None)
"""The value that `TraceContext.current` returns."""


def _is_traceparent(value: str) -> bool:
    match = _TRACEPARENT.fullmatch(value) if len(value) <= _MAX_PARENT else None
    # Only a `traceparent` of a version after 00 may have more fields.
    return match is not None and (match["version"] != "00" or match["more"] is None)


def _is_tracestate(value: str) -> bool:
    if len(value) > _MAX_STATE:
        return False
    # The members are split and matched one by one, which takes linear time. The length is checked first, so the whole
    # work is limited.
    members = [member for part in value.split(",") if (member := part.strip(" \t"))]
    matches = [_STATE_MEMBER.fullmatch(member) for member in members]
    keys = {match["key"] for match in matches if match is not None}
    return 0 < len(members) <= _MAX_STATE_MEMBERS and len(keys) == len(members)


def _is_baggage(value: str) -> bool:
    if len(value) > _MAX_BAGGAGE:
        return False
    members = value.split(",")
    return len(members) <= _MAX_BAGGAGE_MEMBERS and all(map(_BAGGAGE_MEMBER.fullmatch, members))


_FORMATS = {TRACEPARENT: _is_traceparent, TRACESTATE: _is_tracestate, BAGGAGE: _is_baggage}


def _read(meta: Mapping[str, Any], key: str) -> str | None:
    value = meta.get(key)
    return value if type(value) is str and _FORMATS[key](value) else None
