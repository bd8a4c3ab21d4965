"""The parameters of a client with several ways to its server, and the reports about these ways."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, TypeAlias

from trio_mcp import _attrs as attrs
from trio_mcp._checks import check_hook, check_seconds, validator
from trio_mcp.retrying import Backoff

__all__ = ["FailoverParameters", "Switch", "TransportStatus", "WayState", "WayStatus"]

WayState: TypeAlias = Literal["idle", "connecting", "proving", "carrying", "draining", "failed"]
"""The state of a way to the server; see `WayStatus`."""

_WAIT = validator(check_seconds)
_GRACE = validator(check_seconds, zero=True)


@attrs.frozen
class Switch:
    """A switch of a client's session from one way to its server to another.

    Attributes:
        from_way: The name of the way that carried the session before.
        to_way: The name of the way that carries it now.
        cause: Why the previous way failed; None if the switch is planned.
        planned: Whether the switch is the return to a better way, in which no call is lost.
    """

    from_way: str
    to_way: str
    cause: Exception | None
    planned: bool


@attrs.frozen
class WayStatus:
    """The status of one way to a server.

    Attributes:
        name: The name of the way: a URL without secrets, the command of a process, or the name of a server in memory.
        state: ``"carrying"``: the session uses it; ``"idle"``: it is not connected, and need not be;
            ``"connecting"``; ``"proving"``: it is connected, better than the one that carries, and has to work for a
            while before it carries; ``"draining"``: the calls on it finish there; ``"failed"``: it will be tried again.
        cause: The last failure of the way; None if it has not failed yet.
    """

    name: str
    state: WayState
    cause: Exception | None = None


@attrs.frozen
class TransportStatus:
    """A snapshot of the ways to a client's server.

    Attributes:
        ways: The ways to the server, the best first. A client whose target is not a list has exactly one.
        switches: How many times the session has gone from one way to another.
        repeated: How many calls were repeated because of a failure.
        unknown: How many calls have raised `OutcomeUnknown`.
    """

    ways: tuple[WayStatus, ...]
    switches: int = 0
    repeated: int = 0
    unknown: int = 0

    @property
    def carrier(self) -> str | None:
        """The name of the way that carries the session; None while none does."""
        return next((way.name for way in self.ways if way.state == "carrying"), None)


def _some_targets(given: Sequence[Any]) -> tuple[Any, ...]:
    # Accepting every `Sequence` would be too much: a URL that was passed without a list is a sequence as well, of
    # single characters.
    if not isinstance(given, (list, tuple)):
        raise TypeError(f"the ways to a server must be a list of targets, got {type(given).__name__}")
    if not given:
        raise ValueError("a list of ways to a server needs at least one target, and this one is empty")
    for target in given:
        if isinstance(target, (list, tuple, FailoverParameters)):
            raise TypeError("a list of ways to a server can't contain another list: put all targets into one list")
    return tuple(given)


@attrs.frozen
class FailoverParameters:
    """Several ways to the same server, as a target for a `Client`; a plain list of targets is the short form.

    The best way that works carries the session. A failure is noticed at once if the link reports it, and otherwise
    within ``check_after + check_timeout`` seconds.

    Attributes:
        targets: A target for each way, the best first: anything that a `Client` accepts, except another list.
        on_switch: Called with a `Switch` whenever another way carries the session. It must be a sync function, and must
            not block.
        check_after: Seconds without a sign of life after which the way in use is asked for one.
        check_timeout: Seconds that the way in use has to give a sign of life when asked.
        attempt_timeout: Seconds that a way has to connect and give its first response. Each consecutive failure doubles
            this time, up to four times the value, so that a server that starts slowly gets enough time.
        head_start: Seconds for which a way is tried alone before the next one is tried as well.
        settle: Seconds for which a better way must work before it carries the session again. If it fails soon after
            that, this time is doubled, up to 16 times the value.
        patience: Seconds after which connecting is given up if no way has worked yet. Later, calls wait for a way until
            their own time limit.
        backoff: The waits between attempts to connect a way that has failed.

    Raises:
        TypeError, ValueError: If an attribute is invalid.
    """

    # The defaults are arbitrary choices, with two considerations. A link is often silent for five seconds, and five
    # more are ample for a server that is merely busy. And `attempt_timeout` is shorter than `probe_timeout` (5 s),
    # after which a client assumes that a silent server is a legacy one.
    targets: Sequence[Any] = attrs.field(converter=_some_targets)
    on_switch: Callable[[Switch], object] | None = attrs.field(
        default=None, kw_only=True, validator=validator(check_hook, sync=True)
    )
    check_after: float = attrs.field(default=5.0, kw_only=True, validator=_WAIT)
    check_timeout: float = attrs.field(default=5.0, kw_only=True, validator=_WAIT)
    attempt_timeout: float = attrs.field(default=4.0, kw_only=True, validator=_WAIT)
    head_start: float = attrs.field(default=1.0, kw_only=True, validator=_GRACE)
    settle: float = attrs.field(default=10.0, kw_only=True, validator=_GRACE)
    patience: float = attrs.field(default=15.0, kw_only=True, validator=_GRACE)
    # The number of attempts is not limited, because a session may outlive any outage. `longest` bounds how late a
    # recovery is noticed.
    backoff: Backoff = attrs.field(
        default=Backoff(first=0.25, longest=5.0, attempts=None),
        kw_only=True,
        validator=attrs.validators.instance_of(Backoff),
    )
