"""Sources of the choices by which a value is built: Hypothesis, a random generator, or always the simplest choice."""

from __future__ import annotations

import functools
import math
import random
from collections.abc import Sequence
from typing import Protocol, TypeVar

import attrs
from hypothesis import strategies as st

__all__ = ["Choices", "Drawn", "Random", "Simplest", "one_of"]

T = TypeVar("T")


class Choices(Protocol):
    """A source of the choices by which a value is built."""

    def integer(self, low: int, high: int) -> int:
        """Choose an integer between inclusive bounds; the one nearest to zero counts as the simplest."""
        ...

    def number(self, low: float, high: float) -> float:
        """Choose a float between inclusive bounds."""
        ...

    def text(self, low: int, high: int) -> str:
        """Choose a string of characters that UTF-8 can encode, with a length between inclusive bounds."""
        ...


def one_of(choices: Choices, things: Sequence[T]) -> T:
    """Choose one of several things; the first counts as the simplest."""
    return things[choices.integer(0, len(things) - 1)]


# Hypothesis validates a new strategy at its first draw, which takes longer than the draw, so strategies are cached.
_integers = functools.lru_cache(1000)(st.integers)
_numbers = functools.lru_cache(1000)(st.floats)


@functools.lru_cache(1000)
def _texts(low: int, high: int) -> st.SearchStrategy[str]:
    # Half of the strings are plain, so that they pass a tool's first checks.
    plain = st.text("abcdefghijklmnopqrstuvwxyzABCXYZ0123456789 _-.", min_size=low, max_size=high)
    return plain | st.text(st.characters(exclude_categories=["Cs"]), min_size=low, max_size=high)


@attrs.frozen
class Drawn:
    """A source of choices that Hypothesis draws and can shrink."""

    draw: st.DrawFn

    def integer(self, low: int, high: int) -> int:
        """Choose an integer between inclusive bounds."""
        # Schemas often allow only one number, such as the length of an array of fixed length, and a draw takes much
        # longer than this comparison.
        return low if low == high else self.draw(_integers(low, high))

    def number(self, low: float, high: float) -> float:
        """Choose a float between inclusive bounds."""
        return self.draw(_numbers(low, high))

    def text(self, low: int, high: int) -> str:
        """Choose a string with a length between inclusive bounds."""
        return self.draw(_texts(low, high))


@attrs.frozen
class Random:
    """A source of choices that a random generator makes."""

    rng: random.Random

    def integer(self, low: int, high: int) -> int:
        """Choose an integer between inclusive bounds."""
        return self.rng.randint(low, high)

    def number(self, low: float, high: float) -> float:
        """Choose a float between inclusive bounds."""
        # The bounds are halved, because the difference between two large numbers may be infinite.
        return min(max(2 * self.rng.uniform(low / 2, high / 2), low), high)

    def text(self, low: int, high: int) -> str:
        """Choose a string with a length between inclusive bounds."""
        # The last characters take two, three and four bytes in UTF-8: a peer that counts bytes or UTF-16 units, where
        # JSON Schema counts characters, fails on them.
        return "".join(self.rng.choices("abcXYZ019 _-é€😀", k=self.rng.randint(low, high)))


# Hypothesis finds the simplest value of a strategy only by a search; `simplest` must give the same value at once.
class Simplest:
    """A source of choices that always makes the simplest choice."""

    def integer(self, low: int, high: int) -> int:
        """Choose the integer nearest to zero."""
        return min(max(low, 0), high)

    def number(self, low: float, high: float) -> float:
        """Choose zero if it is within the bounds, otherwise the whole number nearest to zero, otherwise a bound."""
        nearest = min(max(low, 0.0), high)
        # Beyond 2**53 every float is whole already.
        return min(max(float(math.ceil(nearest)), low), high) if abs(nearest) < 2**53 else nearest

    def text(self, low: int, high: int) -> str:
        """Choose a string of the shortest length allowed."""
        return "a" * low
