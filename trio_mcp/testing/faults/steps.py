"""The steps of a fault script, which are applied to one direction of a connection, one after the other."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable
from typing import TypeAlias

import attrs

from trio_mcp._checks import check_count, check_seconds, validator

__all__ = [
    "CALM",
    "ON_LINKS",
    "ON_WIRES",
    "Await",
    "Delay",
    "Drop",
    "Duplicate",
    "Faults",
    "Pass",
    "Reset",
    "Split",
    "Stall",
    "Step",
    "Tear",
    "check_steps",
]


_some = validator(check_count)
_amount = attrs.validators.optional(_some)
# Zero is allowed, because the waits in `fault_scripts` shrink to it.
_wait = validator(check_seconds, zero=True)


@attrs.frozen
class Pass:
    """Let everything through for a while.

    Attributes:
        amount: How much to let through before the step ends: bytes on a wire, messages on a link. None for no limit.
        seconds: How long the step lasts at most, however much has passed.
    """

    amount: int | None = attrs.field(default=None, validator=_amount)
    seconds: float = attrs.field(default=math.inf, validator=_wait)


@attrs.frozen
class Await:
    """Wait until something arrives, and leave it to the next step: ``Await(), Reset()`` loses a response in transit."""


@attrs.frozen
class Delay:
    """Hold up each piece of data, or each message, before it is passed on; the order is kept.

    Attributes:
        seconds: How long each piece or message is held up.
        amount: The amount to delay, counted as in `Pass`.
    """

    seconds: float = attrs.field(validator=_wait)
    amount: int | None = attrs.field(default=None, validator=_amount)


@attrs.frozen
class Split:
    """Pass data on in small pieces. This step applies only to a wire.

    Attributes:
        size: The maximum number of bytes in a piece.
        amount: The number of bytes to split; None for no limit.
        seconds: The pause before each piece. Without a pause, the system may join pieces that the receiver has not read
            yet.
    """

    size: int = attrs.field(default=1, validator=_some)
    amount: int | None = attrs.field(default=None, validator=_amount)
    seconds: float = attrs.field(default=0.0, validator=_wait)


@attrs.frozen
class Stall:
    """Read nothing and pass nothing on, as if the other side were frozen.

    Attributes:
        seconds: How long the stall lasts; forever by default.
    """

    seconds: float = attrs.field(default=math.inf, validator=_wait)


@attrs.frozen
class Drop:
    """Lose messages. This step applies only to a link.

    Real links never lose messages: the step is for tests of deadlines.

    Attributes:
        amount: The number of messages to lose.
    """

    amount: int = attrs.field(default=1, validator=_some)


@attrs.frozen
class Duplicate:
    """Pass messages on twice. This step applies only to a link.

    Real links never repeat messages: the step is for tests of code that guards against repetition.

    Attributes:
        amount: The number of messages to pass on twice.
    """

    amount: int = attrs.field(default=1, validator=_some)


@attrs.frozen
class Tear:
    """End the connection in both directions, as if each side had closed it: nothing still in transit arrives."""


@attrs.frozen
class Reset:
    """Break the connection: on a wire both sides see a reset; on a link, the session gets a `TransportFailure`.

    Attributes:
        cause: The error in the `TransportFailure` on a link, by default a `TransportError`. Ignored on a wire.
    """

    cause: Exception | None = None


Step: TypeAlias = Pass | Await | Delay | Split | Stall | Drop | Duplicate | Tear | Reset
"""Any step of a fault script."""

# `Drop` and `Duplicate` are missing: the system neither loses nor repeats bytes in the middle of a stream.
ON_WIRES: tuple[type[Step], ...] = (Pass, Await, Delay, Split, Stall, Tear, Reset)
"""The steps that can be applied to bytes."""

# `Split` is missing: a link carries whole messages, so there is nothing to cut.
ON_LINKS: tuple[type[Step], ...] = (Pass, Await, Delay, Stall, Drop, Duplicate, Tear, Reset)
"""The steps that can be applied to messages."""


@attrs.frozen
class Faults:
    """The faults of one connection, as a script for each direction. After its last step, a direction is left alone.

    Attributes:
        sent: The steps for what the side that connects sends.
        received: The steps for what the side that connects receives.
    """

    # Scripts are converted to tuples: a caller may pass a list, and change it later without affecting the faults.
    sent: tuple[Step, ...] = attrs.field(default=(), converter=tuple[Step, ...])
    received: tuple[Step, ...] = attrs.field(default=(), converter=tuple[Step, ...])


CALM = Faults()
"""The faults of a connection that is left alone: none."""


def check_steps(faults: Iterable[Step], allowed: Collection[type[Step]], what: str) -> None:
    """Check that a script contains only steps that can be applied to this kind of connection.

    Raises:
        TypeError: If the script contains anything but steps.
        ValueError: If a step is not among the allowed ones.
    """
    for step in faults:
        if not isinstance(step, (*ON_WIRES, *ON_LINKS)):
            raise TypeError(f"a script consists of steps such as Stall() or Reset(); got {step!r}")
        if type(step) not in allowed:
            raise ValueError(f"{type(step).__name__} can't be applied to {what}; use {_names(allowed)}")


def _names(steps: Collection[type[Step]]) -> str:
    return ", ".join(step.__name__ for step in steps)
