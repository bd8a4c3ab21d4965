"""Prompts: registration, arguments out of strings, messages out of return values (`server/prompts`)."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import attrs
from pydantic import ValidationError
from pydantic_core import from_json

from trio_mcp.server.context import Context
from trio_mcp.server.functions.arguments import ArgumentsValidator
from trio_mcp.server.functions.hints import bare
from trio_mcp.server.functions.signature import Bound, Signature, read_signature
from trio_mcp.server.revisions import downgraded_block, wire_for
from trio_mcp.types.common import Icon
from trio_mcp.types.content import AudioContent, EmbeddedResource, ImageContent, ResourceLink, TextContent
from trio_mcp.types.icons import checked_icons
from trio_mcp.types.meta import checked_meta
from trio_mcp.types.prompts import GetPromptResult, Prompt, PromptArgument, PromptMessage

if TYPE_CHECKING:
    from trio_mcp.server.features.mounting import Mounted

__all__ = ["PromptOutputError", "RegisteredPrompt", "make_prompt", "prompt_result"]

_BLOCKS = (TextContent, ImageContent, AudioContent, ResourceLink, EmbeddedResource)

# The names that JSON Schema has for the types of values; a boolean comes before the integer that Python takes it for.
_NAMES: dict[type, frozenset[str]] = {
    bool: frozenset({"boolean"}),
    int: frozenset({"integer", "number"}),
    float: frozenset({"number"}),
    str: frozenset({"string"}),
    list: frozenset({"array"}),
    dict: frozenset({"object"}),
    type(None): frozenset({"null"}),
}
_JSON_TYPES = tuple(frozenset().union(*_NAMES.values()))


class PromptOutputError(Exception):
    """The prompt returned what is no message: a fault of the server's, not of the caller's."""


@attrs.frozen
class RegisteredPrompt:
    """A prompt as the server holds it.

    Attributes:
        definition: What clients see of it.
        signature: The function's.
        choices: For each argument that takes certain values only, those values, as clients write them.
    """

    definition: Prompt
    signature: Signature
    choices: dict[str, list[str]]
    _arguments: ArgumentsValidator
    _types: dict[str, frozenset[str]]
    mounted: Mounted | None = attrs.field(default=None, kw_only=True)
    _wire: dict[str, dict[str, Any]] = attrs.field(factory=dict, init=False)

    @property
    def name(self) -> str:
        """Its name."""
        return self.definition.name

    def takes(self, argument: str) -> bool:
        """Whether it has an argument of that name."""
        return argument in self.signature.input_schema.get("properties", {})

    def for_revision(self, revision: str) -> dict[str, Any]:
        """The definition on the wire, with the fields that a revision knows."""
        wire = self._wire.get(revision)
        if wire is None:
            wire = self._wire[revision] = wire_for(self.definition, revision)
        return wire

    def bind(self, arguments: Mapping[str, str], context: Context[Any]) -> Bound:
        """Validate arguments and bind them to the function.

        A string that an argument does not take as it is is read as JSON, if the argument is of a type that has it.

        Raises:
            InvalidArguments: They don't fit.
        """
        values: dict[str, Any] = dict(arguments)
        try:
            return self.signature.bind(values, context)
        except ValidationError as exc:
            refused = {str(error["loc"][0]) for error in exc.errors(include_url=False) if error["loc"]}
        for name in refused & values.keys() & self._types.keys():
            try:
                value = from_json(values[name])
            except ValueError:
                continue  # what is wrong with the string is said below
            # Only what the type asks for: in pydantic's lax mode true would pass for the number 1.
            if _json_types(value) & self._types[name]:
                values[name] = value
        return self._arguments.bind(values, context)


def make_prompt(
    function: Callable[..., Any],
    *,
    name: str | None,
    title: str | None,
    description: str | None,
    icons: Iterable[Icon] | None,
    meta: Mapping[str, Any] | None,
    park_input: bool,
) -> RegisteredPrompt:
    """Make a prompt of a function. See `Server.add_prompt`."""
    if not callable(function):
        raise TypeError(f"a prompt must be a function, got {type(function).__name__}")
    if name is None:
        name = getattr(bare(function), "__name__", type(function).__name__)
    if not isinstance(name, str) or not name or name == "<lambda>":
        raise ValueError(f"{name!r} is no valid prompt name; pass name=…")
    signature = read_signature(function, Context, f"prompt {name!r}", park_input=park_input)
    schema = signature.input_schema
    properties, required = schema.get("properties", {}), schema.get("required", ())
    arguments = [
        PromptArgument(name=each, description=part.get("description"), required=each in required)
        for each, part in properties.items()
    ]
    definition = Prompt(
        name=name,
        title=title,
        description=description if description is not None else signature.description,
        arguments=arguments or None,
        icons=None if icons is None else checked_icons(icons, f"prompt {name!r}"),
        meta=None if meta is None else checked_meta(meta, f"prompt {name!r}"),
    )
    options = {each: list(_options(part, schema.get("$defs", {}))) for each, part in properties.items()}
    return RegisteredPrompt(
        definition,
        signature,
        {each: found for each, parts in options.items() if (found := _choices(parts))},
        ArgumentsValidator(signature, None),
        {each: frozenset().union(*map(_types, parts)) - {"string"} for each, parts in options.items()},
    )


def prompt_result(value: Any, description: str | None, revision: str) -> dict[str, Any]:
    """The wire form of a `GetPromptResult` that carries what a prompt returned.

    Raises:
        PromptOutputError: It is no message.
    """
    if not isinstance(value, GetPromptResult):
        items = value if isinstance(value, (list, tuple)) else [value]
        value = GetPromptResult(description=description, messages=[_message(item) for item in items])
    result = wire_for(value, revision)
    for message in result["messages"]:
        message["content"] = downgraded_block(message["content"], revision)
    return result


def _message(item: Any) -> PromptMessage:
    if isinstance(item, PromptMessage):
        return item
    if isinstance(item, str):
        # File names and captured output may hold lone surrogates, which UTF-8 can't carry.
        item = TextContent(text=item.encode("utf-8", "backslashreplace").decode())
    if isinstance(item, _BLOCKS):
        return PromptMessage(role="user", content=item)
    raise PromptOutputError(
        f"a prompt returns strings, content blocks, PromptMessages, a list of these, or a GetPromptResult, "
        f"not {type(item).__name__}"
    )


def _options(schema: Any, definitions: dict[str, Any], seen: tuple[str, ...] = ()) -> Iterable[dict[str, Any]]:
    """The alternatives that a schema consists of: one, unless it is a union."""
    if not isinstance(schema, dict):
        yield {}
        return
    reference = schema.get("$ref")
    if isinstance(reference, str):
        if reference not in seen:  # a type may consist of itself
            definition = definitions.get(reference.removeprefix("#/$defs/"), {})
            yield from _options(definition, definitions, (*seen, reference))
        return
    union = schema.get("anyOf") or schema.get("oneOf")
    if union is None:
        yield schema
        return
    for option in union:
        yield from _options(option, definitions, seen)


def _values(option: dict[str, Any]) -> list[Any] | None:
    """The values that a schema without alternatives allows, if it tells them one by one."""
    if "const" in option:
        return [option["const"]]
    if option.get("type") == "boolean" and "enum" not in option:
        return [True, False]
    return option.get("enum")


def _types(option: dict[str, Any]) -> frozenset[str]:
    """The types of JSON that a schema without alternatives allows."""
    values = _values(option)
    if values is not None:
        return frozenset().union(*map(_json_types, values))
    named = option.get("type", _JSON_TYPES)
    return frozenset([named] if isinstance(named, str) else named)


def _json_types(value: Any) -> frozenset[str]:
    for kind, names in _NAMES.items():
        if isinstance(value, kind):
            return names
    return frozenset()


def _choices(options: Iterable[dict[str, Any]]) -> list[str]:
    """All values that can be told one by one, as clients write them; null is written by leaving the argument out."""
    found: dict[str, None] = {}
    for option in options:
        for value in _values(option) or ():
            if isinstance(value, (str, int, float)):
                found[value if isinstance(value, str) else json.dumps(value)] = None
    return list(found)
