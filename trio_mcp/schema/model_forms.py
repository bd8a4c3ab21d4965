"""The forms in which a model gives values, and how each is mapped to the value that is meant, and back.

`back` never fails: what does not have the form that the model was asked for is passed on as it is, for the server to
judge. `forth` is its inverse for every value that conforms to the original schema.

`fits` looks at the outermost level only: that much tells the alternatives of a union apart.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, Protocol

from pydantic_core import from_json, to_json

from trio_mcp import _attrs as attrs

__all__ = [
    "ANY_KIND",
    "KEY",
    "VALUE",
    "DefinitionForm",
    "JsonText",
    "Labels",
    "ListForm",
    "Nullable",
    "Pairs",
    "Record",
    "RecordField",
    "Same",
    "TupleForm",
    "UnionForm",
    "UnionOption",
    "ValueForm",
    "Wrapped",
    "kind_of",
]

ANY_KIND: Final = frozenset({"null", "boolean", "integer", "number", "string", "array", "object"})
KEY: Final = "key"
VALUE: Final = "value"
"""The members of the objects that stand for the entries of a map."""

_KINDS = ((int, "integer"), (str, "string"), (dict, "object"), (list, "array"))


def kind_of(value: object) -> str:
    """Return the JSON type of a value; a float without a fraction is an integer, as in JSON Schema."""
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, float):
        return "integer" if value.is_integer() else "number"
    return next((name for kind, name in _KINDS if isinstance(value, kind)), "null")


class ValueForm(Protocol):
    """How the model gives the values of a subschema."""

    @property
    def kinds(self) -> frozenset[str]:
        """The JSON types of what the model gives."""

    @property
    def same(self) -> bool:
        """Whether the model gives each value as it is."""

    def fits(self, given: Any) -> bool:
        """Return whether the model may mean a value of this form."""

    def back(self, given: Any) -> Any:
        """Return the value that the model means."""

    def forth(self, value: Any) -> Any:
        """Return what the model gives for a value."""


def _fixed(kind: str) -> Any:
    return attrs.field(default=frozenset({kind}), init=False)


@attrs.frozen
class Same:
    """The value as it is.

    Attributes:
        kinds: Its JSON types.
        values: The strings that are allowed; None if there are others.
    """

    kinds: frozenset[str]
    values: frozenset[str] | None = None
    same: bool = attrs.field(default=True, init=False)

    def fits(self, given: Any) -> bool:
        kind = kind_of(given)
        if self.values is not None and kind == "string":
            return given in self.values
        return kind in self.kinds or (kind == "integer" and "number" in self.kinds)

    def back(self, given: Any) -> Any:
        return given

    def forth(self, value: Any) -> Any:
        return value


@attrs.frozen
class JsonText:
    """JSON in a string."""

    kinds: frozenset[str] = _fixed("string")
    same: bool = attrs.field(default=False, init=False)

    def fits(self, given: Any) -> bool:
        return isinstance(given, str)

    def back(self, given: Any) -> Any:
        if not isinstance(given, str):
            return given
        try:
            return from_json(given, allow_inf_nan=False)  # limits the depth
        except ValueError:
            return given

    def forth(self, value: Any) -> Any:
        return to_json(value).decode()


@attrs.frozen
class Labels:
    """Strings that stand for values.

    Attributes:
        labels: The values, by label.
    """

    labels: Mapping[str, Any]
    kinds: frozenset[str] = _fixed("string")
    same: bool = attrs.field(default=False, init=False)

    def fits(self, given: Any) -> bool:
        return isinstance(given, str) and given in self.labels

    def back(self, given: Any) -> Any:
        return self.labels[given] if self.fits(given) else given

    def forth(self, value: Any) -> Any:
        # In Python, but not in JSON, true equals 1.
        wanted = (isinstance(value, bool), value)
        return next((label for label, each in self.labels.items() if (isinstance(each, bool), each) == wanted), value)


@attrs.frozen
class Nullable:
    """Null, or a value in another form.

    Attributes:
        inner: The other form.
    """

    inner: ValueForm

    @property
    def kinds(self) -> frozenset[str]:
        return self.inner.kinds | {"null"}

    @property
    def same(self) -> bool:
        return self.inner.same

    def fits(self, given: Any) -> bool:
        return given is None or self.inner.fits(given)

    def back(self, given: Any) -> Any:
        return None if given is None else self.inner.back(given)

    def forth(self, value: Any) -> Any:
        return None if value is None else self.inner.forth(value)


@attrs.frozen
class ListForm:
    """An array of values in another form.

    Attributes:
        item: The other form.
    """

    item: ValueForm
    kinds: frozenset[str] = _fixed("array")

    @property
    def same(self) -> bool:
        return self.item.same

    def fits(self, given: Any) -> bool:
        return isinstance(given, list)

    def back(self, given: Any) -> Any:
        return [self.item.back(each) for each in given] if isinstance(given, list) else given

    def forth(self, value: Any) -> Any:
        return [self.item.forth(each) for each in value] if isinstance(value, list) else value


@attrs.frozen
class Pairs:
    """An array of objects, each with a key and a value, for a map with any keys.

    Attributes:
        value: The form of the map's values.
    """

    value: ValueForm
    kinds: frozenset[str] = _fixed("array")
    same: bool = attrs.field(default=False, init=False)

    def fits(self, given: Any) -> bool:
        return isinstance(given, list) and all(
            isinstance(each, dict) and each.keys() == {KEY, VALUE} and isinstance(each[KEY], str) for each in given
        )

    def back(self, given: Any) -> Any:
        return {each[KEY]: self.value.back(each[VALUE]) for each in given} if self.fits(given) else given

    def forth(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return [{KEY: key, VALUE: self.value.forth(each)} for key, each in value.items()]


@attrs.frozen
class RecordField:
    """A property of an object.

    Attributes:
        name: Its original name.
        form: The form of its value.
        required: Whether the model must give it.
        null_is_absent: Whether null says that it is absent.
    """

    name: str
    form: ValueForm
    required: bool
    null_is_absent: bool

    @property
    def tags(self) -> frozenset[str] | None:
        """The strings that its value must be one of; None if it may be something else, or be absent."""
        if self.null_is_absent or not self.required:
            return None
        if isinstance(self.form, Labels):
            return frozenset(self.form.labels)
        return self.form.values if isinstance(self.form, Same) else None


@attrs.frozen
class Record:
    """An object with properties.

    Attributes:
        fields: The properties, by the names that the model uses.
        extra: Which of these names has all properties without names in the schema, as pairs; None if there are none.
    """

    fields: Mapping[str, RecordField]
    extra: str | None = None
    kinds: frozenset[str] = _fixed("object")

    @property
    def same(self) -> bool:
        return self.extra is None and all(
            name == each.name and each.form.same and not each.null_is_absent for name, each in self.fields.items()
        )

    def fits(self, given: Any) -> bool:
        return (
            isinstance(given, dict)
            and given.keys() <= self.fields.keys()
            and all(name in given for name, each in self.fields.items() if each.required)
            and all(each.form.fits(given[name]) for name, each in self.fields.items() if each.tags is not None)
        )

    def back(self, given: Any) -> Any:
        if not isinstance(given, dict):
            return given
        found: dict[str, Any] = {}
        extra: dict[str, Any] = {}
        for name, each in given.items():
            field = self.fields.get(name)
            if field is None:
                found[name] = each  # the model made it up, or knows the original name; the server judges it
            elif each is None and field.null_is_absent:
                continue
            elif name == self.extra and field.form.fits(each):
                extra = field.form.back(each)
            else:
                found[field.name] = field.form.back(each)
        return {**extra, **found}

    def forth(self, value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        found: dict[str, Any] = {}
        left = dict(value)
        for name, field in self.fields.items():
            if name == self.extra:
                continue
            if field.name in left:
                found[name] = field.form.forth(left.pop(field.name))
            elif field.null_is_absent:
                found[name] = None
        if self.extra is None:
            return {**found, **left}
        field = self.fields[self.extra]
        if left:
            return {**found, self.extra: field.form.forth(left)}
        return {**found, self.extra: None} if field.null_is_absent else found


@attrs.frozen
class TupleForm:
    """An object with a property for each item of a tuple.

    Attributes:
        items: The forms of the items, by the names of the properties.
    """

    items: Mapping[str, ValueForm]
    kinds: frozenset[str] = _fixed("object")
    same: bool = attrs.field(default=False, init=False)

    def fits(self, given: Any) -> bool:
        return isinstance(given, dict) and given.keys() == self.items.keys()

    def back(self, given: Any) -> Any:
        return [form.back(given[name]) for name, form in self.items.items()] if self.fits(given) else given

    def forth(self, value: Any) -> Any:
        if not isinstance(value, list) or len(value) != len(self.items):
            return value
        return {name: form.forth(each) for (name, form), each in zip(self.items.items(), value, strict=True)}


@attrs.frozen
class Wrapped:
    """An object whose only property is the value, in its own form.

    Attributes:
        name: The name of the property.
        inner: The form of the value.
    """

    name: str
    inner: ValueForm
    kinds: frozenset[str] = _fixed("object")
    same: bool = attrs.field(default=False, init=False)

    def fits(self, given: Any) -> bool:
        return isinstance(given, dict) and given.keys() == {self.name}

    def back(self, given: Any) -> Any:
        return self.inner.back(given[self.name]) if self.fits(given) else given

    def forth(self, value: Any) -> Any:
        return {self.name: self.inner.forth(value)}


@attrs.frozen
class UnionOption:
    """One alternative of a union.

    Attributes:
        form: Its form. No other alternative can be mistaken for it, unless both give values as they are.
        allows: Tells whether a value conforms to it.
    """

    form: ValueForm
    allows: Callable[[Any], bool]


@attrs.frozen
class UnionForm:
    """A value in the form of one of several alternatives.

    Attributes:
        options: The alternatives.
    """

    options: Sequence[UnionOption]

    @property
    def kinds(self) -> frozenset[str]:
        return frozenset().union(*(option.form.kinds for option in self.options))

    @property
    def same(self) -> bool:
        return all(option.form.same for option in self.options)

    def fits(self, given: Any) -> bool:
        return any(option.form.fits(given) for option in self.options)

    def back(self, given: Any) -> Any:
        return next((option.form.back(given) for option in self.options if option.form.fits(given)), given)

    def forth(self, value: Any) -> Any:
        if self.same:
            return value
        return next((option.form.forth(value) for option in self.options if option.allows(value)), value)


@attrs.define(eq=False)
class DefinitionForm:
    """The form of a definition that refers to itself.

    Attributes:
        kinds: The JSON types of what the model gives.
        form: The form, once the definition has been read.
    """

    kinds: frozenset[str]
    form: ValueForm | None = None
    same: bool = attrs.field(default=False, init=False)

    def fits(self, given: Any) -> bool:
        return self.form is not None and self.form.fits(given)

    def back(self, given: Any) -> Any:
        return given if self.form is None else self.form.back(given)

    def forth(self, value: Any) -> Any:
        return value if self.form is None else self.form.forth(value)
