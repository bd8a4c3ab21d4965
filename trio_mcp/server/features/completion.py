"""Suggests values for arguments of prompts and variables of templates (`server/utilities/completion`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from trio_mcp import _attrs as attrs
from trio_mcp.eras.rules import rules_of
from trio_mcp.errors import McpError
from trio_mcp.server.context import ServedContext
from trio_mcp.server.features.feature import NO_SCOPES, FeatureSettings, Mounted, Needs, scopes_of
from trio_mcp.server.features.prompts import PromptFeature, PromptOutputError
from trio_mcp.server.features.registry import Registry
from trio_mcp.server.features.resources import ResourceFeature
from trio_mcp.server.functions.function import Call, Function, InvalidArguments, read_function
from trio_mcp.types.error_codes import INVALID_PARAMS, METHOD_NOT_FOUND
from trio_mcp.uri_templates import UriTemplate

__all__ = ["CompletionFeature"]

MAX_VALUES = 100
"""The maximum number of suggestions in a result (`server/utilities/completion`, Completion Results)."""


@attrs.frozen
class Completer:
    """A function that completes one argument.

    Attributes:
        function: The user's function.
        parameters: The names of the function's parameters: one for the text so far and, optionally, one for the other
            arguments.
    """

    function: Function
    parameters: tuple[str, ...]

    def bind(self, value: str, arguments: Mapping[str, str], context: ServedContext[Any] | None) -> Call:
        """Bind the text so far and the other arguments to the function."""
        # `zip` stops at the shorter one, so a function with one parameter gets only the text.
        return self.function.bind(dict(zip(self.parameters, (value, dict(arguments)), strict=False)), context)


class CompletionFeature:
    """The feature that suggests values for arguments of prompts and variables of resource templates."""

    def __init__(self, settings: FeatureSettings, prompts: PromptFeature, resources: ResourceFeature) -> None:
        self.methods = {"completion/complete": self._complete}
        self.needs: Mapping[str, Needs] = {"completion/complete": self._needed}
        self._settings = settings
        self._prompts = prompts
        self._resources = resources
        self._completers: dict[tuple[str, str, str], Completer] = {}
        self._mounted: list[CompletionFeature] = []
        self._offered = False  # never reset, as clients that have seen the capability rely on it

    def __len__(self) -> int:
        return len(self._completers)

    def capabilities(self, revision: str) -> dict[str, Any]:
        """Return the capabilities declared to a client of this revision."""
        return {"completions": {}} if rules_of(revision).completions_capability and self.can_complete() else {}

    def can_complete(self) -> bool:
        """Return whether this server, or a mounted one, can complete anything."""
        # Prompts with choices are completed without a completion function, so any new prompt may make the capability
        # necessary.
        if not self._offered and any(prompt.choices for prompt in self._prompts.registry):
            self._offered = True
        return self._offered or any(each.can_complete() for each in self._mounted)

    def mount(self, other: CompletionFeature) -> None:
        """Offer the completions of a mounted server."""
        self._mounted.append(other)

    def add(self, function: Callable[..., Any], argument: str, prompt: str | None, resource: str | None) -> None:
        """Add a completion function; see `Server.add_completion`."""
        if (prompt is None) == (resource is None):
            raise TypeError("a completion is for an argument of a prompt or of a resource: pass prompt=… or resource=…")
        if not callable(function):
            raise TypeError(f"a completion must be a function, got {type(function).__name__}")
        what = f"the completion of {argument!r}"
        # Prompts may be added after their completions, so the argument can be checked only if the prompt already
        # exists. A template names its variables itself, so its completions can always be checked.
        if prompt is not None:
            key = ("ref/prompt", prompt, argument)
            found = self._prompts.registry.find(prompt)
            if found is not None and not found.takes(argument):
                raise ValueError(f"{what}: the prompt {prompt!r} has no such argument")
        else:
            assert resource is not None
            key = ("ref/resource", resource, argument)
            if argument not in _variables(UriTemplate(resource)):
                raise ValueError(f"{what}: the template {resource!r} has no such variable")
        completer = self._make_completer(function, what)
        # `setdefault` checks and adds in a single step, because another thread may be registering a completion for the
        # same key.
        if self._completers.setdefault(key, completer) is not completer:
            raise ValueError(f"{what} for {key[1]!r} is already registered")
        self._offered = True

    def _make_completer(self, function: Callable[..., Any], what: str) -> Completer:
        own = read_function(function, self._settings.surroundings, what)
        parameters = tuple(own.input_schema.get("properties", {}))
        completer = Completer(own, parameters[:2])
        # A trial call with an empty text and no arguments is bound, to find out whether the types fit and nothing else
        # is required.
        try:
            completer.bind("", {}, None)
            if parameters:
                return completer
        except InvalidArguments:
            pass
        raise TypeError(
            f"{what}: the function must take the text so far, a str, and may take a dict of the other arguments"
        )

    def forget(self, kind: str, name: str) -> None:
        """Drop the completions of a prompt or template that was removed."""
        for key in list(self._completers):
            if key[:2] == (kind, name):
                self._completers.pop(key, None)

    def _needed(self, params: Mapping[str, Any]) -> frozenset[str]:
        reference = params.get("ref")
        if type(reference) is not dict:
            return NO_SCOPES
        if reference.get("type") == "ref/prompt":
            return scopes_of(self._prompts.registry, reference.get("name"))
        if reference.get("type") == "ref/resource":
            return scopes_of(self._resources.templates, reference.get("uri"))
        return NO_SCOPES

    async def _complete(self, context: ServedContext[Any]) -> dict[str, Any]:
        # The error codes are -32601 if the server has no completions, and -32602 for a wrong reference
        # (`server/utilities/completion`, Error Handling).
        if not self.can_complete():
            raise McpError(METHOD_NOT_FOUND, f"unknown method {context.method!r}: this server has no completions")
        kind, name, argument, value = _read(context.params)
        settled = _settled(context.params) if context.rules.completion_context else {}
        choices, mounted = self._find(context, kind, name, argument)
        # A mounted server completes its own arguments, through its own middleware and under the name that it uses for
        # the entry. If it has no completions at all, a function registered on this server may still complete them.
        if mounted is not None and mounted.can_complete():
            reference = {**context.params["ref"], **({"name": mounted.name} if kind == "ref/prompt" else {})}
            return await mounted.pass_on(context, ref=reference)
        completer = self._completers.get((kind, name, argument))
        if completer is None:
            return {"completion": _completion(_matching(choices, value))}
        try:
            return {"completion": _completion(await completer.bind(value, settled, context)())}
        except Exception as exc:
            raise self._settings.failure(
                context, f"the completion of {argument[:100]!r} for {name[:200]!r} failed", exc, PromptOutputError
            ) from None

    def _find(
        self, context: ServedContext[Any], kind: str, name: str, argument: str
    ) -> tuple[list[str], Mounted | None]:
        """Return the values listed in the argument's type, and the origin of its prompt or template if mounted.

        Raises:
            McpError: If the prompt, the template or the argument is unknown (-32602).
        """
        registry: Registry[Any] = self._prompts.registry if kind == "ref/prompt" else self._resources.templates
        entry = registry.get(name)
        if entry is None or (entry.filtered and not self._settings.shows(entry, context)):
            raise McpError(INVALID_PARAMS, f"unknown {registry.kind}: {name[:200]!r}")
        self._settings.check_scopes(entry.scopes, context)
        if kind == "ref/prompt":
            if not entry.takes(argument):
                raise McpError(INVALID_PARAMS, f"the prompt {name!r} has no argument {argument[:100]!r}")
            return entry.choices.get(argument, []), entry.mounted
        if argument not in _variables(entry.template):
            raise McpError(INVALID_PARAMS, f"the template {name!r} has no variable {argument[:100]!r}")
        return [], entry.mounted


def _variables(template: UriTemplate) -> tuple[str | None, ...]:
    return (*template.variables, *template.query_variables, template.exploded)


def _read(params: dict[str, Any]) -> tuple[str, str, str, str]:
    """Return the kind and name of the reference, the argument's name, and the text so far.

    Raises:
        McpError: If the parameters are malformed (-32602).
    """
    reference, argument = params.get("ref"), params.get("argument")
    if type(reference) is not dict or type(argument) is not dict:
        raise McpError(INVALID_PARAMS, "completion/complete needs a ref and an argument, which must be objects")
    kind = reference.get("type")
    if kind not in ("ref/prompt", "ref/resource"):
        raise McpError(INVALID_PARAMS, "the type of a ref must be 'ref/prompt' or 'ref/resource'")
    key = "name" if kind == "ref/prompt" else "uri"
    found = (reference.get(key), argument.get("name"), argument.get("value"))
    for what, value in zip((f"ref.{key}", "argument.name", "argument.value"), found, strict=True):
        if type(value) is not str:
            raise McpError(INVALID_PARAMS, f"completion/complete needs {what}, which must be a string")
    return (kind, *found)  # type: ignore[return-value]  # all are strings, as checked above


def _settled(params: dict[str, Any]) -> dict[str, str]:
    """Return the arguments that the user has already filled in, besides the one to complete.

    Raises:
        McpError: If the arguments are malformed (-32602).
    """
    context = params.get("context")
    arguments = context.get("arguments") if type(context) is dict else context
    if arguments is None:
        return {}
    if type(arguments) is not dict or not all(type(value) is str for value in arguments.values()):
        raise McpError(INVALID_PARAMS, "context.arguments must be an object of strings")
    return arguments


def _matching(choices: list[str], value: str) -> list[str]:
    """Return the choices that begin with the text, then those that contain it, ignoring case."""
    # Both groups of choices keep the order in which the author has listed them.
    typed = value.casefold()
    beginning = [choice for choice in choices if choice.casefold().startswith(typed)]
    return beginning + [choice for choice in choices if typed in choice.casefold() and choice not in beginning]


def _completion(found: Any) -> dict[str, Any]:
    """Return the wire form of a function's suggestions, cut to `MAX_VALUES`."""
    from trio_mcp.types.completion import Completion  # imported late: few servers have completions

    if isinstance(found, Completion):
        completion = found
    elif isinstance(found, (list, tuple)) and all(isinstance(value, str) for value in found):
        completion = Completion(values=list(found), total=len(found), has_more=False)
    else:
        raise TypeError(f"a completion must return a list of strings or a Completion; got {found!r:.100}")
    wire = completion.to_wire()
    count = len(completion.values)
    if count > MAX_VALUES:
        # The function may know of more matches than it returned, so its total is kept unless it is lower than the
        # number of values. A total that the function left out on purpose (has_more without a total) is not added.
        total = completion.total
        if total is not None or not completion.has_more:
            wire["total"] = max(count, total or 0)
        wire |= {"values": completion.values[:MAX_VALUES], "hasMore": True}
    return wire
