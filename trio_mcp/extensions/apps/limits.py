"""The limits of a view: how much it may send, and how fast."""

from __future__ import annotations

from typing import Any, Final, Literal

import attrs

from trio_mcp._checks import check_count, check_seconds, validator
from trio_mcp.jsonrpc.codec import DEFAULT_MAX_MESSAGE_SIZE

__all__ = ["AppLimits", "Budget", "problem_with"]

MAX_DEPTH: Final = 100
"""How deeply the parameters of a view's message may be nested (arbitrary)."""


@attrs.frozen(kw_only=True)
class AppLimits:
    """The limits of a page and its view.

    Attributes:
        max_html: The maximum size of a page, in bytes.
        max_message: The maximum size of a message of the view, in bytes. A link may have a lower limit of its own.
        max_calls: How many requests of the view run at once; as many more may wait, and all others are refused.
        rate: How many messages a second the view may send for as long as it likes.
        burst: How many more messages it may send at once. Further messages are refused, and once as many have been
            refused, the view is ended.
        teardown_wait: How many seconds the view may take to respond to its teardown.

    Raises:
        TypeError, ValueError: If a value is invalid.
    """

    # The defaults are arbitrary, except that of a message, which is that of all transports.
    max_html: int = attrs.field(default=10 * 1024 * 1024, validator=validator(check_count))
    max_message: int = attrs.field(default=DEFAULT_MAX_MESSAGE_SIZE, validator=validator(check_count))
    max_calls: int = attrs.field(default=16, validator=validator(check_count))
    rate: float = attrs.field(default=100.0, validator=validator(check_seconds, finite=True))
    burst: int = attrs.field(default=200, validator=validator(check_count))
    teardown_wait: float = attrs.field(default=2.0, validator=validator(check_seconds, finite=True))


class Budget:
    """The messages that a view may still send: a token bucket that may run into debt, but not deeper than its burst.

    Args:
        rate: How many messages a second are added.
        burst: How many messages the bucket holds at most.
    """

    def __init__(self, rate: float, burst: int) -> None:
        self._rate = rate
        self._burst = burst
        self._left = float(burst)
        self._at: float | None = None

    def spend(self, now: float) -> Literal["take", "refuse", "end"]:
        """Count a message, and return what to do with it.

        Args:
            now: The time, in seconds.
        """
        if self._at is not None:
            self._left = min(self._burst, self._left + (now - self._at) * self._rate)
        self._at = now
        # A refused message counts, too: a view that never slows down must come to an end.
        self._left -= 1
        if self._left >= 0:
            return "take"
        return "refuse" if self._left > -self._burst else "end"


def problem_with(params: dict[str, Any] | None, size: int, max_size: int) -> str | None:
    """Return what is wrong with the size or the depth of a message's parameters; None if nothing is.

    Args:
        params: The parameters.
        size: The size of the message in bytes; 0 if it was never written as JSON.
        max_size: The limit in bytes. A message that was never written is measured roughly, and never above its size.
    """
    too_large = f"the message is larger than {max_size} bytes"
    if size > max_size:
        return too_large
    # An explicit stack is used, because the view chooses how deeply its message is nested.
    left = max_size
    stack: list[tuple[Any, int]] = [(params, 1)]
    while stack:
        value, depth = stack.pop()
        if depth > MAX_DEPTH:
            return f"the message is nested more than {MAX_DEPTH} levels deep"
        left -= len(value) if type(value) is str else 1
        if left < 0 and not size:
            return too_large
        if type(value) is dict:
            for key, each in value.items():
                left -= len(key)
                stack.append((each, depth + 1))
        elif type(value) is list:
            stack.extend((each, depth + 1) for each in value)
    return None
