"""Drawing in bulk from a strategy, outside a test: the same values for the same seed."""

from __future__ import annotations

from typing import Any, TypeVar

import hypothesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.internal.conjecture.providers import AVAILABLE_PROVIDERS, HypothesisProvider
from hypothesis.strategies import SearchStrategy

__all__ = ["PlainProvider", "draws"]

T = TypeVar("T")


class PlainProvider(HypothesisProvider):
    """Hypothesis's own source of choices, without the constants that it collects from the modules of a program.

    With them the same seed gives other values as soon as another local module is imported, or edited.
    """

    # Hypothesis has no setting for it. Where a release has no such method, there are no constants either, or the test
    # of what a seed gives fails.
    def _maybe_draw_constant(self, *_: Any, **__: Any) -> None:
        return None


# Its documentation calls this "alternative backends".
_BACKEND = "trio-mcp-plain"
# Hypothesis takes a path, and imports the class when a setting names the backend.
AVAILABLE_PROVIDERS[_BACKEND] = f"{__name__}.{PlainProvider.__name__}"


def draws(strategy: SearchStrategy[T], count: int, *, seed: int = 0) -> list[T]:
    """Draw values in bulk, outside of a test: inside one, Hypothesis draws them.

    The same strategy, count and seed give the same values in every program, with the same release of Hypothesis.
    It takes half the time of drawing them in a test, and remembers nothing between runs.

    Args:
        strategy: What to draw from.
        count: How many values. There are fewer if the strategy has no more.
        seed: Decides which.

    Raises:
        hypothesis.errors.Unsatisfiable: If the strategy rejects nearly all that it tries.
    """
    drawn: list[T] = []

    # No database: a check of a server leaves nothing on the user's disk. No health checks and no deadline, as the first
    # draw from a large schema is slow, and a slow machine must not change what a seed gives. Only generation: there is
    # nothing to shrink.
    @hypothesis.seed(seed)
    @settings(
        backend=_BACKEND,
        database=None,
        deadline=None,
        max_examples=count,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def draw(value: T) -> None:
        drawn.append(value)

    draw()
    return drawn
