"""The base of all wire models: names, unknown fields, revisions, and conversion to and from JSON data.

There is one model per construct, with the fields of all revisions. If a field or a class does not exist in every
revision, its declaration says so; tests compare these declarations with the published schemas::

    class Tool(WireModel):
        name: str                                            # in every revision, required
        description: str | None = None                       # in every revision, optional
        title: str | None = since("2025-06-18")
        execution: ToolExecution | None = only("2025-11-25")

    class Task(WireModel, only="2025-11-25"): ...
"""

import types
import typing
from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, NamedTuple, Self, TypeVar

from pydantic import BaseModel, ConfigDict, Field, Strict
from pydantic.fields import FieldInfo

from trio_mcp.types.versions import REVISIONS

__all__ = ["Number", "Span", "WireModel", "always", "class_span", "field_span", "make", "only", "since", "until"]

# JSON numbers keep their type: 50 stays an int and 0.5 a float. Both types are strict, because pydantic would otherwise
# accept True as 1.
Number = Annotated[int, Strict()] | Annotated[float, Strict()]

# The entry of a field's `json_schema_extra` that holds the field's revisions: pydantic keeps it with the field, but
# ignores it in validation.
_SPAN_KEY = "revisions"

# A row for each field: its name, its wire name, the way to convert its value, and the way to handle None.
_Plan = tuple[tuple[str, str, int, int], ...]


class Span(NamedTuple):
    """The revisions in which a field or a class exists, and those in which the field is required."""

    revisions: tuple[str, ...] = REVISIONS
    required: tuple[str, ...] = ()


def _between(first: str | None, last: str | None) -> tuple[str, ...]:
    start = 0 if first is None else REVISIONS.index(first)
    stop = len(REVISIONS) if last is None else REVISIONS.index(last) + 1
    return REVISIONS[start:stop]


def _field(
    revisions: tuple[str, ...],
    required: bool | str = False,
    *,
    optional_in: tuple[str, ...] = (),
    null: bool = False,
    models: bool = False,
) -> Any:
    first = revisions[0] if required is True else required
    # Revisions are named by ISO dates, so comparing the names as strings compares the revisions.
    needed = tuple(r for r in revisions if first and r >= first and r not in optional_in)
    extra: dict[str, Any] = {_SPAN_KEY: {"in": revisions, "required": needed, "null": null, "models": models}}
    return Field(default=None, json_schema_extra=extra)


def always(
    *, required: bool | str = False, optional_in: tuple[str, ...] = (), null: bool = False, models: bool = False
) -> Any:
    """Declare a field that exists in every revision, but needs more than a plain default.

    Args:
        required: True if the field is required, or the first revision in which it is.
        optional_in: The exceptions to ``required``: revisions in which the field is optional.
        null: Whether an explicit null differs in meaning from an absent field, so that ``to_wire`` keeps it.
        models: Whether callers may put models into the field, although it is typed as plain data.
    """
    return _field(REVISIONS, required, optional_in=optional_in, null=null, models=models)


def since(first: str, *, required: bool | str = False, null: bool = False, models: bool = False) -> Any:
    """Declare a field that was added in the revision ``first``; the other arguments are those of :func:`always`."""
    return _field(_between(first, None), required, null=null, models=models)


def until(last: str, *, required: bool | str = False) -> Any:
    """Declare a field whose last revision is ``last``."""
    return _field(_between(None, last), required)


def only(revision: str, *, required: bool | str = False) -> Any:
    """Declare a field that exists in one revision only."""
    return _field((revision,), required)


# The wire names that `_wire_name` can't derive by its rule: pydantic refuses a leading underscore, Python refuses a
# dollar sign, and a field called `schema` would shadow a method of BaseModel.
_IRREGULAR = {"meta": "_meta", "schema_": "$schema"}


def _wire_name(name: str) -> str:
    head, *rest = name.split("_")
    return _IRREGULAR.get(name) or (head + "".join([word.capitalize() for word in rest]) if rest else head)


ModelT = TypeVar("ModelT", bound="WireModel")


class WireModel(BaseModel):
    """The base class of all wire models, with snake_case names in Python and the schema's names on the wire.

    The constructor takes names in either form; :meth:`from_wire` takes only the schema's. Unknown fields survive a
    round trip, with their nulls. Values are not copied: a model and its wire form share nested plain data (except
    ``_meta``, which is copied because sessions add to it), so treat both as read-only.
    """

    # defer_build: building a validator costs far more than declaring a model, and no program uses all models.
    # extra="allow": a peer may use a later revision or an extension, and proxies must pass on fields unknown to them.
    model_config: ClassVar[ConfigDict] = ConfigDict(
        alias_generator=_wire_name,
        validate_by_name=True,
        validate_by_alias=True,
        serialize_by_alias=True,
        extra="allow",
        defer_build=True,
    )

    _span: ClassVar[Span] = Span()
    _plan: ClassVar[_Plan | None] = None

    def __init_subclass__(
        cls, *, since: str | None = None, until: str | None = None, only: str | None = None, **kwargs: Any
    ) -> None:
        super().__init_subclass__(**kwargs)
        cls._span = Span(_between(only or since, only or until))
        cls._plan = None  # the parent's plan would not do: a subclass has more fields

    def to_wire(self) -> dict[str, Any]:
        """Return the model as plain JSON data, with the schema's names, and without optional fields that are None.

        A null is kept where it has a meaning: in required fields, in fields declared with ``null=True`` that were set
        explicitly, and in unknown fields.
        """
        # The conversion is written by hand, with a plan for each class: `model_dump` would copy nested plain data, and
        # can't know which nulls to keep.
        wire: dict[str, Any] = {}
        values = self.__dict__
        for name, alias, mode, null in self._plan or _make_plan(type(self)):
            value = values.get(name)
            if value is None:
                if null == _KEEP or (null == _KEEP_IF_SET and name in self.__pydantic_fields_set__):
                    wire[alias] = None
            elif mode == _PLAIN:
                wire[alias] = value
            else:
                wire[alias] = _plain(value)
        extra = self.__pydantic_extra__
        if extra:
            for key, value in extra.items():
                wire[key] = _plain(value)
        return wire

    @classmethod
    def from_wire(cls, data: Any) -> Self:
        """Validate plain JSON data.

        Raises:
            pydantic.ValidationError: If the data does not match this model.
        """
        # Fields are not populated by name: `is_error` from a peer is an unknown field, not `isError`.
        return cls.model_validate(data, by_alias=True, by_name=False)


def make(model: type[ModelT], **values: Any) -> ModelT:
    """Make the same model as ``model(**values)``, but build no validator if there is nothing to validate.

    Building a validator takes longer than making all the other models of a server. No validator is needed if each value
    has exactly the type that its field declares, or is None where the field allows that.

    Args:
        model: A model whose fields have no constraints or validators of their own, except inside their types.
        values: The values, by the fields' names in Python.
    """
    fields = model.model_fields
    fits = all(name in fields and _is_of(fields[name].annotation, value) for name, value in values.items())
    if not fits or any(field.is_required() and name not in values for name, field in fields.items()):
        return model(**values)
    # The validator copies dicts, so this function copies them as well.
    copies: dict[str, Any] = {name: dict(value) if type(value) is dict else value for name, value in values.items()}
    return model.model_construct(**copies)


def _is_of(annotation: Any, value: Any) -> bool:
    union = typing.get_origin(annotation) in (typing.Union, types.UnionType)
    kinds = typing.get_args(annotation) if union else (annotation,)
    kind = type(value)
    if kind is dict:
        return dict[str, Any] in kinds and all(type(key) is str for key in value)
    return (kind is str or kind is types.NoneType or issubclass(kind, WireModel)) and kind in kinds


# The ways to convert a value, and the ways to handle None.
_PLAIN, _NESTED = range(2)
_DROP, _KEEP, _KEEP_IF_SET = range(3)


# Values of any type not named in this function are returned unchanged. If JSON can't express such a value, the encoder
# raises an error later.
def _plain(value: Any) -> Any:
    if isinstance(value, WireModel):
        return value.to_wire()
    kind = type(value)
    if kind is list:
        return [_plain(item) for item in value]
    if kind is dict:
        return {key: _plain(item) for key, item in value.items()}
    return value


# The plan is made when an instance of the class is first converted: only then are the fields complete, and most models
# are never converted.
def _make_plan(cls: type[WireModel]) -> _Plan:
    # This resolves annotations with names of classes that were defined only after this class.
    if not cls.__pydantic_fields_complete__:
        cls.model_rebuild()
    name_of: Any = cls.model_config["alias_generator"]
    cls._plan = tuple((name, name_of(name), *_modes(name, field)) for name, field in cls.model_fields.items())
    return cls._plan


def _modes(name: str, field: FieldInfo) -> tuple[int, int]:
    data = _span_data(field)
    # `_meta` is copied, because sessions add keys to it.
    nested = name == "meta" or data.get("models") or _may_hold_models(field.annotation)
    return _NESTED if nested else _PLAIN, _KEEP if field.is_required() else _KEEP_IF_SET if data.get("null") else _DROP


def _may_hold_models(annotation: Any) -> bool:
    """Return whether values of this annotation may be, or contain, wire models."""
    # `list[str]` counts as a type in Python 3.11, but issubclass rejects it.
    if isinstance(annotation, type) and not isinstance(annotation, types.GenericAlias):
        return issubclass(annotation, BaseModel)
    return any(_may_hold_models(part) for part in typing.get_args(annotation))


def _span_data(field: FieldInfo) -> Mapping[str, Any]:
    extra = field.json_schema_extra
    data = extra.get(_SPAN_KEY) if isinstance(extra, dict) else None
    return data if isinstance(data, dict) else {}


def class_span(model: type[WireModel]) -> tuple[str, ...]:
    """Return the revisions that define the construct that ``model`` represents."""
    return model._span.revisions  # noqa: SLF001 - this module is its owner; a public name would be a field to pydantic


def field_span(model: type[WireModel], name: str) -> Span:
    """Return the revisions in which ``model`` has the field ``name``, and those in which the field is required."""
    field = model.model_fields[name]
    data = _span_data(field)
    if data:
        return Span(data["in"], data["required"])
    # A default such as that of `type: Literal["text"] = "text"` only saves typing; on the wire the field is required.
    return Span(REVISIONS, REVISIONS if field.is_required() or field.default is not None else ())
