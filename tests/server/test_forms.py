"""Forms: a flat model as the requested schema of each revision (`client/elicitation`), an answer as that model."""

from __future__ import annotations

import enum
from datetime import date, datetime
from typing import Annotated, Any, Literal

import jsonschema_rs
import pytest
from pydantic import AnyUrl, BaseModel, ConfigDict, Field, SecretStr, ValidationError, create_model

from tests.tables import by_outcome
from tests.types.published import validator
from trio_mcp.server.input.forms import NoSuchField, form_of

REVISIONS = ("2025-06-18", "2025-11-25", "2026-07-28")


class Color(enum.Enum):
    RED = "#f00"
    DARK_GREEN = "#0a0"


class Size(enum.StrEnum):
    SMALL = "small"
    LARGE = "large"


Fruit = Annotated[Literal["a"], Field(title="Apple")] | Annotated[Literal["b"], Field(title="Banana")]


class Everything(BaseModel):
    text: str = Field(min_length=1, max_length=9, title="Text", description="A line.")
    mail: str = Field("a@b.c", json_schema_extra={"format": "email"})
    link: AnyUrl
    day: date = date(2020, 1, 1)
    moment: datetime
    whole: int = Field(7, gt=0, le=10)
    real: Annotated[float, Field(ge=0.5, lt=2)]
    yes: bool = True
    one: Literal["x", "y"] = "x"
    color: Color = Color.RED
    size: Size
    fruit: Fruit = "a"
    maybe: int | None = None
    wanted: Size | None
    several: Annotated[set[Color], Field(min_length=1, max_length=2)] = {Color.DARK_GREEN}
    plain: list[Literal["x", "y"]] = ["y"]
    fruits: list[Fruit] = []


def test_the_form_in_the_newest_revision() -> None:
    assert form_of(Everything).schema_for("2026-07-28") == {
        "type": "object",
        "required": ["text", "link", "moment", "real", "size"],
        "properties": {
            "text": {"type": "string", "title": "Text", "description": "A line.", "minLength": 1, "maxLength": 9},
            "mail": {"type": "string", "format": "email", "default": "a@b.c"},
            "link": {"type": "string", "format": "uri", "minLength": 1},
            "day": {"type": "string", "format": "date", "default": "2020-01-01"},
            "moment": {"type": "string", "format": "date-time"},
            "whole": {"type": "integer", "minimum": 1, "maximum": 10, "default": 7},
            "real": {"type": "number", "minimum": 0.5, "maximum": 2},
            "yes": {"type": "boolean", "default": True},
            "one": {"type": "string", "enum": ["x", "y"], "default": "x"},
            "color": {
                "type": "string",
                "oneOf": [{"const": "#f00", "title": "Red"}, {"const": "#0a0", "title": "Dark green"}],
                "default": "#f00",
            },
            "size": {"type": "string", "enum": ["small", "large"]},
            "fruit": {
                "type": "string",
                "oneOf": [{"const": "a", "title": "Apple"}, {"const": "b", "title": "Banana"}],
                "default": "a",
            },
            "maybe": {"type": "integer"},
            "wanted": {"type": "string", "enum": ["small", "large"]},
            "several": {
                "type": "array",
                "items": {"anyOf": [{"const": "#f00", "title": "Red"}, {"const": "#0a0", "title": "Dark green"}]},
                "minItems": 1,
                "maxItems": 2,
                "default": ["#0a0"],
            },
            "plain": {"type": "array", "items": {"type": "string", "enum": ["x", "y"]}, "default": ["y"]},
            "fruits": {
                "type": "array",
                "items": {"anyOf": [{"const": "a", "title": "Apple"}, {"const": "b", "title": "Banana"}]},
                "default": [],
            },
        },
    }


class Old(BaseModel):
    text: str = "x"
    number: int = 3
    yes: bool = True
    color: Color = Color.RED
    size: Size = Size.SMALL


def test_the_first_revision_with_forms_has_enum_names_and_defaults_of_booleans_only() -> None:
    assert form_of(Old).schema_for("2025-06-18")["properties"] == {
        "text": {"type": "string"},
        "number": {"type": "integer"},
        "yes": {"type": "boolean", "default": True},
        "color": {"type": "string", "enum": ["#f00", "#0a0"], "enumNames": ["Red", "Dark green"]},
        "size": {"type": "string", "enum": ["small", "large"]},
    }


@pytest.mark.parametrize("revision", REVISIONS)
def test_custom_enum_names_are_kept(revision: str) -> None:
    """2025-11-25 and 2026-07-28 `client/elicitation` still have LegacyTitledEnumSchema, for clients that want it."""

    class Old(BaseModel):
        size: Literal["s", "l"] = Field(json_schema_extra={"enumNames": ["Small", "Large"]})

    assert form_of(Old).schema_for(revision)["properties"] == {
        "size": {"type": "string", "enum": ["s", "l"], "enumNames": ["Small", "Large"]}
    }


def test_enum_names_that_do_not_match_the_choices_are_refused() -> None:
    class Odd(BaseModel):
        size: Literal["s", "l"] = Field(json_schema_extra={"enumNames": ["Small"]})

    with pytest.raises(TypeError, match="'size' has 2 choices, but 1 enumNames"):
        form_of(Odd)


def test_a_multiple_choice_is_refused_in_a_revision_without_it() -> None:
    with pytest.raises(NoSuchField, match=r"'several' is a multiple choice.*2025-06-18"):
        form_of(Everything).schema_for("2025-06-18")


class Inner(BaseModel):
    x: int


class Self(BaseModel):
    again: Self | None = None


class Numbers(enum.Enum):
    ONE = 1


@by_outcome(
    "annotation",
    "text",
    {
        "'field' is object": [Inner, dict[str, str]],
        "is a list, but not of choices": [list[str], list[Inner], list[Any], tuple[int, int]],
        "'field' is of any type": [Any],
        "'field' is a union": [int | str, Literal["a"] | int],
        "a choice whose values are not all strings": [Literal[1, 2], Literal["a", 2], Numbers],
        r"a secret.*ctx\.elicit_url": [SecretStr],
        "can't be described|of any type": [object],
        "'field' is null": [None],
    },
)
def test_a_field_that_is_not_flat_is_refused_by_name(annotation: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        form_of(create_model("Model", field=(annotation, ...)))


def test_a_recursive_model_is_refused() -> None:
    with pytest.raises(TypeError, match="'again' is object"):
        form_of(Self)


@pytest.mark.parametrize("model", [int, dict, "Model", None, Everything.model_construct()])
def test_only_a_model_can_become_a_form(model: Any) -> None:
    with pytest.raises(TypeError, match="pydantic model class, with a field for each value; got"):
        form_of(model)


def test_a_form_is_made_once() -> None:
    assert form_of(Old) is form_of(Old)


ANSWER = {"text": "hi", "link": "http://x.example", "moment": "2020-01-01T00:00:00Z", "real": 1, "size": "large"}


def test_an_answer_becomes_the_model() -> None:
    answer = form_of(Everything).read({**ANSWER, "several": ["#f00"]})
    assert (answer.size, answer.several, answer.wanted, answer.one) == (Size.LARGE, {Color.RED}, None, "x")


@pytest.mark.parametrize(
    "wrong", [{"whole": 11}, {"real": 2.0}, {"size": "medium"}, {"text": ""}, {"several": []}, {"moment": "now"}]
)
def test_an_answer_that_breaks_the_model_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        form_of(Everything).read({**ANSWER, **wrong})


class Strict(BaseModel):
    model_config = ConfigDict(strict=True)
    day: date
    color: Color


def test_a_strict_model_takes_the_json_form() -> None:
    assert form_of(Strict).read({"day": "2020-01-02", "color": "#f00"}) == Strict(day=date(2020, 1, 2), color=Color.RED)


class Aliased(BaseModel):
    from_: str = Field(alias="from")


def test_the_names_on_the_wire_are_the_aliases() -> None:
    form = form_of(Aliased)
    assert list(form.schema_for("2026-07-28")["properties"]) == ["from"]
    assert form.read({"from": "x"}).from_ == "x"


@pytest.mark.published
@pytest.mark.parametrize(("revision", "model"), [("2025-06-18", Old), *((each, Everything) for each in REVISIONS[1:])])
def test_the_form_of_each_revision_is_as_its_schema_says(revision: str, model: Any) -> None:
    schema = form_of(model).schema_for(revision)
    request = {"method": "elicitation/create", "params": {"message": "m", "requestedSchema": schema}}
    if revision == "2025-11-25":
        request |= {"jsonrpc": "2.0", "id": 1}
    validator(revision, "ElicitRequest").validate(request)
    jsonschema_rs.meta.validate({"$schema": "https://json-schema.org/draft/2020-12/schema", **schema})
