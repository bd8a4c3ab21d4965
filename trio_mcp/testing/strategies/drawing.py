"""Draws values in bulk from a strategy, outside a test; the same seed gives the same values each time."""

from __future__ import annotations

from typing import Any, TypeVar

import hypothesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis.internal.conjecture.providers import AVAILABLE_PROVIDERS, HypothesisProvider
from hypothesis.strategies import SearchStrategy

__all__ = ["PlainProvider", "draws"]

T = TypeVar("T")


class PlainProvider(HypothesisProvider):
    """Hypothesis's own source of choices, without the constants that it collects from a program's modules.

    With these constants, a seed would give different values whenever another local module is imported or edited.
    """

    # Hypothesis has no setting to leave the constants out, and a new provider would have to duplicate its distributions
    # for all five types of choices. If a release renames the method, the test that compares the values drawn with a
    # seed fails.
    def _maybe_draw_constant(self, *_: Any, **__: Any) -> None:
        return None


# Under this name the provider is registered as what Hypothesis calls an alternative backend. Hypothesis imports the
# class by its path.
_BACKEND = "trio-mcp-plain"
AVAILABLE_PROVIDERS[_BACKEND] = f"{__name__}.{PlainProvider.__name__}"


def draws(strategy: SearchStrategy[T], count: int, *, seed: int = 0) -> list[T]:
    """Draw values in bulk, outside a test; inside a test, use ``given`` instead.

    The same strategy, count and seed give the same values in every program, with the same release of Hypothesis. The
    draws take half the time of draws in a test, and nothing is kept between runs.

    Args:
        strategy: The strategy to draw from.
        count: The number of values to draw; fewer are drawn if the strategy has no more.
        seed: The seed, which determines which values are drawn.

    Raises:
        hypothesis.errors.Unsatisfiable: If the strategy rejects nearly all the values that it tries.
    """
    drawn: list[T] = []

    # A database would leave files on the user's disk. The first draw from a large schema is slow, and a slow machine
    # must not change the values that a seed gives, so health checks and the deadline are off. Nothing can fail here, so
    # there is nothing to shrink.
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
