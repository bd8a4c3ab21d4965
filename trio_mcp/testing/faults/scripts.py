"""Makes random scripts of faults, drawn from a seed or by Hypothesis."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from trio_mcp.testing.faults.steps import (
    CALM,
    ON_WIRES,
    Await,
    Delay,
    Drop,
    Duplicate,
    Faults,
    Pass,
    Reset,
    Split,
    Stall,
    Step,
    Tear,
)

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

__all__ = ["fault_scripts", "random_faults"]

_DRAWN: Mapping[type[Step], Callable[[random.Random, float], Step]] = {
    Delay: lambda rng, longest: Delay(rng.uniform(0, longest / 50)),  # a short delay, because all pieces' delays add up
    # Only 2000 bytes are split: each piece is a system call, so sending a long response byte by byte would take very
    # long.
    Split: lambda rng, longest: Split(rng.choice((1, 50, 1000)), amount=2000),
    Stall: lambda rng, longest: Stall(rng.uniform(longest / 10, longest)),
    Drop: lambda rng, longest: Drop(),
    Duplicate: lambda rng, longest: Duplicate(),
    Tear: lambda rng, longest: Tear(),
    Reset: lambda rng, longest: Reset(),
}
"""For each kind of step, a function that makes one from a random generator and the length of the longest wait."""


def random_faults(
    seed: int | str,
    kinds: Collection[type[Step]] = ON_WIRES,
    *,
    calm: float = 0.5,
    most: int = 60_000,
    longest: float = 2.0,
) -> Iterator[Faults]:
    """Draw faults for any number of connections; the same arguments always give the same faults.

    A connection has one fault or none. The fault comes at the very first byte or message, or after a random amount, and
    affects what is received more often than what is sent.

    Args:
        seed: The seed, which determines what is drawn.
        kinds: The kinds of faults; for `FaultLinks`, pass `ON_LINKS` or some of its members.
        calm: The share of connections that are left alone.
        most: The maximum amount that passes before the fault, in bytes or messages. Small amounts are more frequent.
        longest: The maximum length of a wait, in seconds.
    """
    rng = random.Random(seed)
    # `Pass` and `Await` are not faults: one of them says when the fault comes. The faults are in the order of the
    # table, because the order of a set of classes differs from one process to the next.
    makers = [make for kind, make in _DRAWN.items() if kind in kinds]
    while True:
        if rng.random() < calm:
            yield CALM
            continue
        # The amount is log-uniform: 1 to 10 bytes are as frequent as 1,000 to 10,000. Most boundaries that matter are
        # near the beginning: handshakes, heads, the first message.
        first: Step = Await() if rng.random() < 0.2 else Pass(int(most ** rng.random()))
        steps = (first, rng.choice(makers)(rng, longest))
        yield Faults(sent=steps) if rng.random() < 0.25 else Faults(received=steps)


def fault_scripts(
    kinds: Collection[type[Step]] = ON_WIRES, *, connections: int = 3, most: int = 60_000, longest: float = 2.0
) -> SearchStrategy[list[Faults]]:
    """Return a Hypothesis strategy for the faults of several connections; it shrinks to an empty list.

    Needs the extra ``trio-mcp[testing]``.

    Args:
        kinds: The kinds of steps; for `FaultLinks`, pass `ON_LINKS` or some of its members.
        connections: The maximum number of connections that get faults.
        most: The maximum amount of a step, in bytes or messages.
        longest: The maximum length of a wait, in seconds.

    Raises:
        ModuleNotFoundError: If Hypothesis is not installed.
    """
    # Hypothesis is imported here, so that the rest of the module works without it.
    try:
        from hypothesis import strategies as st
    except ModuleNotFoundError as exc:
        text = "fault_scripts() needs Hypothesis, which is not installed: pip install 'trio-mcp[testing]'"
        raise ModuleNotFoundError(text, name=exc.name) from exc

    amounts, waits = st.integers(1, most), st.floats(0, longest)
    fields: dict[type[Step], tuple[SearchStrategy[Any], ...]] = {
        Pass: (amounts,),
        Delay: (waits, amounts),
        Split: (st.integers(1, 1000), amounts),
        Stall: (waits,),
        Drop: (st.integers(1, min(most, 10)),),
        Duplicate: (st.integers(1, min(most, 10)),),
    }
    # Lists shrink to empty ones, which are scripts without faults, so only the steps that matter for a failure remain.
    steps = st.lists(st.one_of([st.builds(kind, *fields.get(kind, ())) for kind in kinds]), max_size=5)
    return st.lists(st.builds(Faults, steps, steps), max_size=connections)
