"""Tables of cases: short values stand in one text, with bars between them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, AnyStr

import pytest


def listed(text: AnyStr) -> list[AnyStr]:
    """Return the values of a text."""
    return text.split(" | " if isinstance(text, str) else b" | ")


def each_of(name: str, text: str | bytes, *more: Any) -> pytest.MarkDecorator:
    """Parametrize a test by the values in a text, and by others that a text can't express."""
    return pytest.mark.parametrize(name, [*listed(text), *more])


def by_outcome(value: str, outcome: str, table: Mapping[Any, str | bytes | list[Any]]) -> pytest.MarkDecorator:
    """Parametrize a test by a value and its outcome.

    Args:
        value: The name of the parameter.
        outcome: The name of the parameter, or several with commas between them.
        table: By outcome, a text of values or a list.
    """
    rows = [
        (each, *(key if "," in outcome else (key,)))
        for key, values in table.items()
        for each in (values if isinstance(values, list) else listed(values))
    ]
    return pytest.mark.parametrize(f"{value}, {outcome}", rows)
