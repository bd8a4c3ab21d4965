"""Registers, lists and gets prompts, and reads their arguments from strings (`server/prompts`)."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

from trio_mcp import _attrs as attrs
from trio_mcp.errors import McpError
from trio_mcp.server.changes import PROMPTS_CHANGED
from trio_mcp.server.context import ServedContext
from trio_mcp.server.features.feature import (
    Entry,
    EntryKind,
    FeatureSettings,
    Needs,
    described,
    held,
    name_of,
    scopes_of,
)
from trio_mcp.server.features.registry import Registry
from trio_mcp.server.functions.function import Call, InvalidArguments, read_function
from trio_mcp.server.functions.schemas import alternatives, json_types, listed_values, read_texts
from trio_mcp.server.input.interactive import run_interactive
from trio_mcp.server.input.options import Asked
from trio_mcp.server.media import MEDIA, block_of
from trio_mcp.server.revisions import downgraded_block, wire_for
from trio_mcp.types.common import Icon
from trio_mcp.types.content import AudioContent, EmbeddedResource, ImageContent, ResourceLink, TextContent
from trio_mcp.types.error_codes import INVALID_PARAMS, METHOD_NOT_FOUND

if TYPE_CHECKING:  # loaded when the first prompt is added
    from trio_mcp.types.prompts import Prompt, PromptMessage  # noqa: F401 - used as `Entry["Prompt"]`

__all__ = ["PromptDetails", "PromptFeature", "PromptOutputError", "RegisteredPrompt"]

_BLOCKS = (TextContent, ImageContent, AudioContent, ResourceLink, EmbeddedResource)


class PromptOutputError(Exception):
    """The prompt returned something that can't be sent as a message: a fault in the server, not in the request."""


class PromptDetails(TypedDict, total=False):
    """The optional details of a prompt.

    Attributes:
        name: The prompt's name; the function's own by default.
        title: The prompt's name for people.
        description: The purpose of the prompt; the docstring by default.
        icons: Icons, each an https: or data: URI.
        tags: As in `ToolDetails`.
        enabled: As in `ToolDetails`.
        scopes: As in `ToolDetails`; completions of the prompt's arguments need the scopes, too.
        meta: The prompt's ``_meta``; a key has the form ``com.example/name``.
        park_input: As in `ToolDetails`.
    """

    name: str | None
    title: str | None
    description: str | None
    icons: Iterable[Icon] | None
    tags: Iterable[str] | None
    enabled: bool
    scopes: Iterable[str] | None
    meta: Mapping[str, Any] | None
    park_input: bool


@attrs.frozen
class RegisteredPrompt(Entry["Prompt"]):
    """A registered prompt of a server.

    Attributes:
        choices: For each argument that is limited to certain values, these values as clients write them.
    """

    choices: dict[str, list[str]]
    _types: dict[str, frozenset[str]]  # for each argument, the JSON types other than string that its hint allows

    @property
    def kind(self) -> EntryKind:
        return "prompt"

    def takes(self, argument: str) -> bool:
        """Return whether the prompt has an argument of this name."""
        return argument in self.function.input_schema.get("properties", {})

    def bind(self, arguments: Mapping[str, str], context: ServedContext[Any]) -> Call:
        """Validate arguments and bind them to the function.

        A string that is refused is parsed as JSON, and the value is tried if the argument's type allows it.

        Raises:
            InvalidArguments: If the arguments don't fit the function's parameters.
        """
        values: dict[str, Any] = dict(arguments)
        # The strings are tried first: an argument of type `str` must get "5" and "null" unchanged.
        try:
            return self.function.bind(values, context)
        except InvalidArguments as exc:
            # A client sends a list as the string "[1, 2]", as arguments of prompts are strings in the protocol.
            read = read_texts(values, exc.names, self._types)
            if not read:
                raise
        return self.function.bind(values | read, context)


class PromptFeature:
    """The prompts of a server, and the handlers of the methods that list and get them.

    Attributes:
        registry: The prompts, by name.
    """

    def __init__(self, settings: FeatureSettings) -> None:
        self.registry: Registry[RegisteredPrompt] = Registry("prompt")
        self.methods = {"prompts/list": self._list, "prompts/get": self._get}
        self.needs: Mapping[str, Needs] = {"prompts/get": self._needed}
        self._settings = settings

    def capabilities(self, revision: str) -> dict[str, Any]:
        """Return the capabilities declared to a client of this revision."""
        # Clients that have seen the capability rely on it, so it remains when the last prompt is removed.
        return {"prompts": {"listChanged": True}} if self.registry.used else {}

    def add(self, function: Callable[..., Any], **details: Unpack[PromptDetails]) -> None:
        """Add a prompt; see `Server.add_prompt`."""
        self.registry.add(_make_prompt(function, self._settings, details), details.get("enabled", True))
        self.notify_changed()

    def remove(self, name: str) -> None:
        """Remove a prompt; see `Server.remove_prompt`."""
        self.registry.remove(name)
        self.notify_changed()

    def notify_changed(self) -> None:
        """Notify clients that the list has changed."""
        self._settings.announce_registration(PROMPTS_CHANGED)

    def _needed(self, params: Mapping[str, Any]) -> frozenset[str]:
        return scopes_of(self.registry, params.get("name"))

    async def _list(self, context: ServedContext[Any]) -> dict[str, Any]:
        self._check_offered(context)
        return await self._settings.list_page(self.registry, "prompts", context)

    async def _get(self, context: ServedContext[Any]) -> dict[str, Any]:
        self._check_offered(context)
        name, arguments = context.params.get("name"), context.params.get("arguments")
        if type(name) is not str:
            raise McpError(INVALID_PARAMS, "prompts/get needs a name, which must be a string")
        prompt = self.registry.get(name)
        # The client chose the name, so it is cut: it must not fill logs.
        if prompt is None or (prompt.filtered and not self._settings.shows(prompt, context)):
            raise McpError(INVALID_PARAMS, f"unknown prompt: {name[:200]!r}")
        self._settings.check_scopes(prompt.scopes, context)
        if prompt.mounted is not None:
            return await prompt.mounted.pass_on(context, name=prompt.mounted.name)
        bind = functools.partial(prompt.bind, _read_arguments(name, arguments), context)
        try:
            if prompt.function.may_ask:
                value = await run_interactive(context, bind, park=prompt.function.park_input)
                if type(value) is Asked:
                    return value.result
            else:
                value = await bind()()
            return _prompt_result(value, prompt.definition.description, context.protocol_version)
        except InvalidArguments as exc:
            # Unlike those for a tool, invalid arguments for a prompt are always an error response (`server/prompts`,
            # Error Handling).
            raise McpError(INVALID_PARAMS, f"invalid arguments for the prompt {name!r}: {exc}") from None
        except Exception as exc:
            raise self._settings.failure(context, f"the prompt {name!r} failed", exc, PromptOutputError) from None

    def _check_offered(self, context: ServedContext[Any]) -> None:
        if not self.registry.used:
            raise McpError(METHOD_NOT_FOUND, f"unknown method {context.method!r}: this server has no prompts")


def _read_arguments(name: str, arguments: Any) -> dict[str, str]:
    if arguments is None:  # optional; null counts as missing
        return {}
    if type(arguments) is not dict:
        raise McpError(INVALID_PARAMS, "the arguments of prompts/get must be an object")
    for argument, value in arguments.items():
        # Only strings are allowed, in every revision: in the published schemas, `arguments` is a map of strings
        # (`GetPromptRequestParams`).
        if type(value) is not str:
            raise McpError(
                INVALID_PARAMS, f"invalid arguments for the prompt {name!r}: {argument[:100]}: must be a string"
            )
    return arguments


def _make_prompt(function: Callable[..., Any], settings: FeatureSettings, details: PromptDetails) -> RegisteredPrompt:
    from trio_mcp.types.prompts import Prompt, PromptArgument

    name = name_of("a prompt", function, details)
    if not name or name == "<lambda>":
        raise ValueError(f"{name!r} is not a valid prompt name; pass name=…")
    what = f"prompt {name!r}"
    own = read_function(function, settings.surroundings, what, park_input=details.get("park_input", False))
    properties, required = own.input_schema.get("properties", {}), own.input_schema.get("required", ())
    arguments = [
        PromptArgument(name=each, description=part.get("description"), required=each in required)
        for each, part in properties.items()
    ]
    definition = Prompt(name=name, arguments=arguments or None, **described(details, own, what))
    # Choices and types are read from the JSON Schema and not from the hints, because in the schema pydantic has
    # resolved aliases, unions and enumerations.
    options = {each: list(alternatives(part, own.input_schema.get("$defs", {}))) for each, part in properties.items()}
    return RegisteredPrompt(
        definition,
        own,
        {each: found for each, parts in options.items() if (found := _choices(parts))},
        # `string` is left out: a string that was refused must not be parsed into another string.
        {each: frozenset().union(*map(json_types, parts)) - {"string"} for each, parts in options.items()},
        **held(details, settings, what),
    )


def _prompt_result(value: Any, description: str | None, revision: str) -> dict[str, Any]:
    """Return the wire form of a `GetPromptResult` for a prompt's return value.

    Raises:
        PromptOutputError: If the value can't be sent as messages.
    """
    from trio_mcp.types.prompts import GetPromptResult

    if not isinstance(value, GetPromptResult):
        items = value if isinstance(value, (list, tuple)) else [value]
        value = GetPromptResult(description=description, messages=[_message(item) for item in items])
    result = wire_for(value, revision)
    for message in result["messages"]:
        message["content"] = downgraded_block(message["content"], revision)
    return result


def _message(item: Any) -> PromptMessage:
    from trio_mcp.types.prompts import PromptMessage

    if isinstance(item, PromptMessage):
        return item
    if isinstance(item, str):
        # File names and captured output may contain lone surrogates, which UTF-8 can't encode.
        item = TextContent(text=item.encode("utf-8", "backslashreplace").decode())
    if isinstance(item, MEDIA):
        item = block_of(item)
    if isinstance(item, _BLOCKS):
        return PromptMessage(role="user", content=item)
    raise PromptOutputError(
        f"a prompt must return strings, content blocks, Image, Audio, File, PromptMessages, a list of these, or a "
        f"GetPromptResult; got {type(item).__name__}"
    )


def _choices(options: Iterable[dict[str, Any]]) -> list[str]:
    """Return the values that schemas list, as clients write them, without null: clients omit the argument instead."""
    found: dict[str, None] = {}
    for option in options:
        # The schema of a bool has neither `const` nor `enum`.
        for value in listed_values(option) or ([True, False] if option.get("type") == "boolean" else ()):
            if isinstance(value, (str, int, float)):  # a bool is an int; `bind` parses the JSON text back
                found[value if isinstance(value, str) else json.dumps(value)] = None
    return list(found)
