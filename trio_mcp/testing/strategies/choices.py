"""Where the choices come from that make a value: from Hypothesis, from a random generator, or always the simplest."""

from __future__ import annotations

import functools
import math
import random
from typing import Protocol

import attrs
from hypothesis import strategies as st

__all__ = ["Choices", "Drawn", "Random", "Simplest"]


class Choices(Protocol):
    """A source of choices."""

    def integer(self, low: int, high: int) -> int:
        """Choose a number; the bounds are included, and the one nearest to zero is the simplest."""
        ...

    def number(self, low: float, high: float) -> float:
        """Choose a float; the bounds are included."""
        ...

    def text(self, low: int, high: int) -> str:
        """Choose a text of any characters that UTF-8 can carry, with at least and at most so many of them."""
        ...


@functools.lru_cache(1000)
def _integers(low: int, high: int) -> st.SearchStrategy[int]:
    return st.integers(low, high)


@functools.lru_cache(1000)
def _numbers(low: float, high: float) -> st.SearchStrategy[float]:
    return st.floats(low, high)


@functools.lru_cache(1000)
def _texts(low: int, high: int) -> st.SearchStrategy[str]:
    # Plain ones half of the time, so that a tool gets past the first look at them.
    plain = st.text("abcdefghijklmnopqrstuvwxyzABCXYZ0123456789 _-.", min_size=low, max_size=high)
    return plain | st.text(st.characters(exclude_categories=["Cs"]), min_size=low, max_size=high)


@attrs.frozen
class Drawn:
    """Choices that Hypothesis makes, and shrinks."""

    draw: st.DrawFn

    def integer(self, low: int, high: int) -> int:
        """Choose a number."""
        # Schemas often leave one number only, as for an array of fixed length, and a draw takes many times as long as
        # this.
        return low if low == high else self.draw(_integers(low, high))

    def number(self, low: float, high: float) -> float:
        """Choose a float."""
        # The strategies are cached by their bounds, as Hypothesis validates a new strategy when it is first drawn from,
        # which costs more than the draw.
        return self.draw(_numbers(low, high))

    def text(self, low: int, high: int) -> str:
        """Choose a text."""
        return self.draw(_texts(low, high))


@attrs.frozen
class Random:
    """Choices of a random generator."""

    rng: random.Random

    def integer(self, low: int, high: int) -> int:
        """Choose a number."""
        return self.rng.randint(low, high)

    def number(self, low: float, high: float) -> float:
        """Choose a float."""
        # Halved, because the difference of two large numbers may be infinite.
        return min(max(2 * self.rng.uniform(low / 2, high / 2), low), high)

    def text(self, low: int, high: int) -> str:
        """Choose a text."""
        # One character of each length in UTF-8, from one byte to four: a peer that counts bytes or UTF-16 units where
        # JSON Schema counts characters is off with the last three, or with the last one.
        return "".join(self.rng.choices("abcXYZ019 _-é€😀", k=self.rng.randint(low, high)))


# Needed beside Hypothesis, which can't be asked for the simplest value of a strategy without a search: `simplest` must
# give the same value each time, and at once.
class Simplest:
    """The simplest choice each time."""

    def integer(self, low: int, high: int) -> int:
        """Choose the number nearest to zero."""
        return min(max(low, 0), high)

    def number(self, low: float, high: float) -> float:
        """Choose zero, or a whole number, or else a bound."""
        nearest = min(max(low, 0.0), high)
        # Beyond 2**53 every float is whole already.
        return min(max(float(math.ceil(nearest)), low), high) if abs(nearest) < 2**53 else nearest

    def text(self, low: int, high: int) -> str:
        """Choose the shortest text."""
        return "a" * low
