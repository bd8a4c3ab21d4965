"""A docstring as the description of a tool and of its parameters."""

from __future__ import annotations

import functools
from typing import Annotated, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import Field

from tests.server.harness import tool_of
from trio_mcp.server.functions.introspection import read_docstring


def google(place: str, days: int = 1) -> str:
    """Forecast the weather.

    It is a guess: do not rely on it.

    Args:
        place: Where. The text goes on
            in a second line.

            And in another paragraph.
        days (int, optional): How many days.

    Returns:
        A forecast: one line for each day.

    Raises:
        LookupError: No such place.

    Example:
        forecast("Rome")
    """
    raise NotImplementedError


def sphinx(place: str, days: int = 1) -> str:
    """Forecast the weather.

    :param place: Where. The text goes on
        in a second line.
    :type place: str
    :param int days: How many days.
    :returns: A forecast.
    :rtype: str
    :raises LookupError: No such place.

    It is a guess.
    """
    raise NotImplementedError


def described(function: Any) -> tuple[str | None, dict[str, str | None]]:
    definition = tool_of(function)
    properties = definition.input_schema["properties"]
    return definition.description, {name: each.get("description") for name, each in properties.items()}


def test_google_style() -> None:
    """Parameters move into the schema; what it returns stays for the model; exceptions no client sees go."""
    text, parameters = described(google)
    assert text == (
        "Forecast the weather.\n\nIt is a guess: do not rely on it.\n\n"
        'Returns:\n    A forecast: one line for each day.\n\nExample:\n    forecast("Rome")'
    )
    assert parameters == {
        "place": "Where. The text goes on in a second line. And in another paragraph.",
        "days": "How many days.",
    }


def test_sphinx_style() -> None:
    text, parameters = described(sphinx)
    assert text == "Forecast the weather.\n\nReturns: A forecast.\n\nIt is a guess."
    assert parameters == {"place": "Where. The text goes on in a second line.", "days": "How many days."}


def test_the_description_of_a_field_wins() -> None:
    def function(
        a: Annotated[int, Field(description="from the annotation")],
        b: int = Field(default=1, description="from the default"),
        c: Annotated[int, Field(ge=0)] = 0,
    ) -> None:
        """Text.

        Args:
            a: from the docstring
            b: from the docstring
            c: from the docstring
        """

    assert described(function)[1] == {"a": "from the annotation", "b": "from the default", "c": "from the docstring"}


def test_no_docstring_no_description() -> None:
    assert described(lambda x: x) == (None, {"x": None})


def test_an_explicit_description_replaces_the_text_only() -> None:
    definition = tool_of(google, description="Mine")
    assert definition.description == "Mine"
    assert definition.input_schema["properties"]["days"]["description"] == "How many days."
    assert tool_of(google, description="").description == ""


class Speaker:
    """An object that speaks."""

    def __call__(self, word: str) -> None:
        """Speak.

        Args:
            word: What to say.
        """


class Mute:
    """An object without words."""

    def __call__(self) -> None: ...


@pytest.mark.parametrize(
    ("function", "text"),
    [
        (Speaker(), "Speak."),
        (Mute(), "An object without words."),
        (functools.partial(Speaker(), "a"), "Speak."),
        (functools.partial(google, days=2), described(google)[0]),
        (functools.lru_cache(google), described(google)[0]),
    ],
)
def test_the_docstring_of_the_call_counts(function: Any, text: str) -> None:
    assert described(function)[0] == text


@pytest.mark.parametrize(
    ("docstring", "text", "parameters"),
    [
        ("\nArgs:\n    x: One.", None, {"x": "One."}),
        ("Do.\n\nArgs:\n    x:\n        One.", "Do.", {"x": "One."}),
        ("Do.\n\nArgs:\n    *xs: Some.\n    **options: More.", "Do.", {"xs": "Some.", "options": "More."}),
        ("Do.\n\nArgs:\n    x (Callable[[int], str]): One.", "Do.", {"x": "One."}),
        (
            "Do.\n\nArgs:\n    x: One, as\n        y: no parameter.",
            "Do.",
            {"x": "One, as y: no parameter."},
        ),
        ("Do.\n\nArgs:\n    Nothing to see.", "Do.\n\nArgs:\n    Nothing to see.", {}),
        ("Do.\n\nArgs:\n    x: One.\nMore text.", "Do.\n\nMore text.", {"x": "One."}),
        ("Ask it: it knows.\nArgs: none", "Ask it: it knows.\nArgs: none", {}),
        ("Use :class:`Thing` well.", "Use :class:`Thing` well.", {}),
        ("Do.\n:param x:\n:param y: Two", "Do.", {"y": "Two"}),
        ("   ", None, {}),
        ("", None, {}),
        (None, None, {}),
    ],
)
def test_odd_docstrings(docstring: str | None, text: str | None, parameters: dict[str, str]) -> None:
    assert read_docstring(docstring) == (text, parameters)


@given(st.text(st.sampled_from("Args: :param x\n\tReturns()*'é")) | st.text())
def test_any_docstring_can_be_read(docstring: str) -> None:
    """It is prose: whatever it looks like, registration succeeds."""
    text, parameters = read_docstring(docstring)
    assert text is None or text.strip()
    assert all(parameters.values())


@given(st.lists(st.sampled_from(["plain words", "    indented words", "", "A heading:", "- an item"]), max_size=8))
def test_text_without_sections_is_kept_word_for_word(lines: list[str]) -> None:
    docstring = "Do.\n\n" + "\n".join(lines)
    assert (read_docstring(docstring)[0] or "").split() == docstring.split()
