"""The words of a script: what happens to one direction of a connection, one step after the other."""

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
    """Let everything through, for a while.

    Attributes:
        amount: The step ends once this much has passed: bytes on a wire, messages on a link. None for no end.
        seconds: It ends after this long, whatever has passed.
    """

    amount: int | None = attrs.field(default=None, validator=_amount)
    seconds: float = attrs.field(default=math.inf, validator=_wait)


@attrs.frozen
class Await:
    """Wait until something comes, and leave it to the next step: ``Await(), Reset()`` loses a response on its way."""


@attrs.frozen
class Delay:
    """Hold up each piece of data, or each message, before it is passed on; the order is kept.

    Attributes:
        seconds: How long.
        amount: For how much, as of `Pass`.
    """

    seconds: float = attrs.field(validator=_wait)
    amount: int | None = attrs.field(default=None, validator=_amount)


@attrs.frozen
class Split:
    """Pass data on in small pieces. Only on a wire.

    Attributes:
        size: The most bytes of a piece.
        amount: For how much, as of `Pass`.
        seconds: The pause before each piece. Without one the system may join pieces that the receiver has not read yet.
    """

    size: int = attrs.field(default=1, validator=_some)
    amount: int | None = attrs.field(default=None, validator=_amount)
    seconds: float = attrs.field(default=0.0, validator=_wait)


@attrs.frozen
class Stall:
    """Take nothing and pass nothing on, as if the other side were frozen.

    Attributes:
        seconds: How long; without end by default.
    """

    seconds: float = attrs.field(default=math.inf, validator=_wait)


@attrs.frozen
class Drop:
    """Lose messages. Only on a link, which must not do this: for tests of deadlines.

    Attributes:
        amount: How many.
    """

    amount: int = attrs.field(default=1, validator=_some)


@attrs.frozen
class Duplicate:
    """Pass messages on twice. Only on a link, which must not do this: for tests of code that guards against it.

    Attributes:
        amount: How many.
    """

    amount: int = attrs.field(default=1, validator=_some)


@attrs.frozen
class Tear:
    """End the connection in both directions, as if each side had closed it: nothing under way arrives."""


@attrs.frozen
class Reset:
    """Break the connection: on a wire both sides get a reset, on a link its user gets a `TransportFailure`.

    Attributes:
        cause: The error in the `TransportFailure` of a link, by default a `TransportError`. Ignored on a wire.
    """

    cause: Exception | None = None


Step: TypeAlias = Pass | Await | Delay | Split | Stall | Drop | Duplicate | Tear | Reset
"""A step of a script."""

# `Drop` and `Duplicate` are missing: the system neither loses nor repeats bytes in the middle of a stream.
ON_WIRES: tuple[type[Step], ...] = (Pass, Await, Delay, Split, Stall, Tear, Reset)
"""The steps that bytes can be put through."""

# `Split` is missing: a link carries whole messages, so there is nothing to cut.
ON_LINKS: tuple[type[Step], ...] = (Pass, Await, Delay, Stall, Drop, Duplicate, Tear, Reset)
"""The steps that messages can be put through."""


@attrs.frozen
class Faults:
    """The faults of one connection, seen from the side that connects. After its last step a direction is left alone.

    Attributes:
        sent: The steps for what that side sends.
        received: The steps for what it receives.
    """

    # They are converted, so that a script may be a list, and later changes to that list do not reach it.
    sent: tuple[Step, ...] = attrs.field(default=(), converter=tuple[Step, ...])
    received: tuple[Step, ...] = attrs.field(default=(), converter=tuple[Step, ...])


CALM = Faults()
"""No faults."""


def check_steps(faults: Iterable[Step], allowed: Collection[type[Step]], what: str) -> None:
    """Check that a script has only steps that can be played.

    Raises:
        TypeError: If something else than a step is in it.
        ValueError: If one means nothing there.
    """
    for step in faults:
        if not isinstance(step, (*ON_WIRES, *ON_LINKS)):
            raise TypeError(f"a script consists of steps such as Stall() or Reset(); got {step!r}")
        if type(step) not in allowed:
            raise ValueError(f"{type(step).__name__} means nothing on {what}; what does: {_names(allowed)}")


def _names(steps: Collection[type[Step]]) -> str:
    return ", ".join(step.__name__ for step in steps)
