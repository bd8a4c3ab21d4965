"""Completion: suggestions for arguments of prompts and of resource templates (`server/utilities/completion`)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import attrs
from pydantic import ValidationError

from trio_mcp.eras.rules import rules_of
from trio_mcp.errors import McpError
from trio_mcp.server.connection import Handler
from trio_mcp.server.context import Context
from trio_mcp.server.core import ServerCore
from trio_mcp.server.features.prompt_methods import PromptMethods
from trio_mcp.server.features.prompts import PromptOutputError
from trio_mcp.server.features.resource_methods import ResourceMethods
from trio_mcp.server.functions.handling import failure, run
from trio_mcp.server.functions.signature import Bound, Signature, read_signature
from trio_mcp.types.completion import Completion
from trio_mcp.types.error_codes import INVALID_PARAMS, METHOD_NOT_FOUND
from trio_mcp.uri_templates import UriTemplate

if TYPE_CHECKING:
    from trio_mcp.server.features.mounting import Mounted

__all__ = ["Completer", "CompletionMethods"]

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])

MAX_VALUES = 100
"""Suggestions in one answer (`server/utilities/completion`, Completion Results)."""


@attrs.frozen
class Completer:
    """A function that completes one argument."""

    signature: Signature
    parameters: tuple[str, ...]

    def bind(self, value: str, arguments: Mapping[str, str], context: Context[Any] | None) -> Bound:
        given = dict(zip(self.parameters, (value, dict(arguments)), strict=False))
        return self.signature.bind(given, context)


class CompletionMethods(PromptMethods, ResourceMethods):
    """Registering completions, and answering with them."""

    # As with prompts: what clients have been told once stays true.
    _offers_completions = False

    def _capabilities(self, revision: str) -> dict[str, Any]:
        capabilities = super()._capabilities(revision)
        if rules_of(revision).completions_capability and self._can_complete():
            capabilities["completions"] = {}
        return capabilities

    def _handlers(self) -> dict[str, Handler]:
        return {**super()._handlers(), "completion/complete": self._complete}

    def completion(
        self, *, argument: str, prompt: str | None = None, resource: str | None = None
    ) -> Callable[[FunctionT], FunctionT]:
        """Let a function suggest values for an argument; the function itself stays as it is.

        ``@server.completion(prompt="review", argument="language")`` or
        ``@server.completion(resource="files://{+path}", argument="path")``; see `add_completion`.
        """

        def register(function: FunctionT) -> FunctionT:
            self.add_completion(function, argument=argument, prompt=prompt, resource=resource)
            return function

        return register

    def add_completion(
        self, function: Callable[..., Any], *, argument: str, prompt: str | None = None, resource: str | None = None
    ) -> None:
        """Let a function suggest values for an argument of a prompt or of a resource template.

        The function gets what the user has typed so far and, if it has a second parameter, the other arguments that are
        settled already, a dict of strings (clients tell them since 2025-06-18). It returns the suggestions, the best
        first: a list or tuple of strings, or a `types.Completion`. Of more than 100 the client gets the first 100, and
        how many there are. An async function runs in the event loop, any other in a thread, which counts among
        ``max_sync_tools``. When a request is cancelled, the former is, too, but a thread is left to finish. What else
        it raises than `McpError` is logged, and the client gets -32603.

        An argument of a prompt whose type hint tells its values (an Enum, a Literal, a bool) needs no such function; if
        it has one, the function is asked. Completions go when their prompt or their template is removed.

        Args:
            function: The function, sync or async. A parameter annotated with `Context` is filled by the server.
            argument: The argument's name.
            prompt: The name of the prompt; it may be added later.
            resource: The URI template of the resource; it may be added later.

        Raises:
            TypeError: The function can't be called like that, or there is not exactly one of prompt and resource.
            ValueError: There is no such argument, its completion is there already, or the template can't be used.
        """
        if (prompt is None) == (resource is None):
            raise TypeError("a completion is for an argument of a prompt or of a resource: pass prompt=… or resource=…")
        if not callable(function):
            raise TypeError(f"a completion must be a function, got {type(function).__name__}")
        what = f"the completion of {argument!r}"
        if prompt is not None:
            key = ("ref/prompt", prompt, argument)
            found = self._prompts.get(prompt)
            if found is not None and not found.takes(argument):
                raise ValueError(f"{what}: the prompt {prompt!r} has no such argument")
        else:
            assert resource is not None
            key = ("ref/resource", resource, argument)
            if argument not in _variables(UriTemplate(resource)):
                raise ValueError(f"{what}: the template {resource!r} has no such variable")
        completer = _make_completer(function, what)
        if self._completers.setdefault(key, completer) is not completer:
            raise ValueError(f"{what} of {key[1]!r} is there already")
        self._offers_completions = True

    def remove_prompt(self, name: str) -> None:
        """Stop offering a prompt, and completing its arguments. Clients are told that the list has changed.

        Requests that are running go on.

        Raises:
            KeyError: There is no such prompt.
        """
        super().remove_prompt(name)
        self._forget("ref/prompt", name)

    def remove_resource(self, uri: str) -> None:
        """Stop offering a resource, or a template and completing its variables. Clients are told.

        Reads that are running go on.

        Raises:
            KeyError: There is no such resource.
        """
        super().remove_resource(uri)
        self._forget("ref/resource", uri)

    def _forget(self, kind: str, name: str) -> None:
        for key in list(self._completers):
            if key[:2] == (kind, name):
                self._completers.pop(key, None)

    def _can_complete(self) -> bool:
        if not self._offers_completions and any(prompt.choices for _, prompt in self._prompts.numbered()):
            self._offers_completions = True
        return self._offers_completions or any(_completes(mount.server) for mount in self._mounts)

    async def _complete(self, server: ServerCore, context: Context[Any]) -> dict[str, Any]:
        if not self._can_complete():
            raise McpError(METHOD_NOT_FOUND, f"unknown method {context.method!r}: this server has no completions")
        kind, name, argument, value = _read(context.params)
        settled = _settled(context.params) if context.rules.completion_context else {}
        choices = self._choices(kind, name, argument)
        mounted = self._mounted(kind, name)
        if mounted is not None:
            reference = {**context.params["ref"], **({"name": mounted.name} if kind == "ref/prompt" else {})}
            return await mounted.mount.pass_on(context, ref=reference)
        completer = self._completers.get((kind, name, argument))
        if completer is None:
            return {"completion": _completion(_matching(choices, value))}
        try:
            bound = completer.bind(value, settled, context)
            values = await run(bound, completer.signature.is_async, self)
            return {"completion": _completion(values)}
        except Exception as exc:
            raise failure(
                self, f"the completion of {argument[:100]!r} for {name[:200]!r} failed", exc, PromptOutputError
            ) from None

    def _mounted(self, kind: str, name: str) -> Mounted | None:
        """Who completes what is known by this name here; None if it is this server, or nobody."""
        found = self._prompts.get(name) if kind == "ref/prompt" else self._resource_templates.get(name)
        mounted = None if found is None else found.mounted
        return mounted if mounted is not None and _completes(mounted.mount.server) else None

    def _choices(self, kind: str, name: str, argument: str) -> list[str]:
        """What the argument's type tells of its values.

        Raises:
            McpError: There is no such prompt or template, or it has no such argument (-32602).
        """
        if kind == "ref/prompt":
            prompt = self._prompts.get(name)
            if prompt is None:
                raise McpError(INVALID_PARAMS, f"unknown prompt: {name[:200]!r}")
            if not prompt.takes(argument):
                raise McpError(INVALID_PARAMS, f"the prompt {name!r} has no argument {argument[:100]!r}")
            return prompt.choices.get(argument, [])
        resource = self._resource_templates.get(name)
        if resource is None or resource.template is None:
            raise McpError(INVALID_PARAMS, f"unknown resource template: {name[:200]!r}")
        if argument not in _variables(resource.template):
            raise McpError(INVALID_PARAMS, f"the template {name!r} has no variable {argument[:100]!r}")
        return []


def _completes(server: ServerCore) -> bool:
    return isinstance(server, CompletionMethods) and server._can_complete()


def _variables(template: UriTemplate) -> tuple[str | None, ...]:
    return (*template.variables, *template.query_variables, template.exploded)


def _make_completer(function: Callable[..., Any], what: str) -> Completer:
    signature = read_signature(function, Context, what)
    parameters = tuple(signature.input_schema.get("properties", {}))
    completer = Completer(signature, parameters[:2])
    try:
        completer.bind("", {}, None)
        if parameters:
            return completer
    except ValidationError:
        pass
    raise TypeError(
        f"{what}: the function must take the text so far, a str, and may take a dict of the other arguments"
    )


def _read(params: dict[str, Any]) -> tuple[str, str, str, str]:
    """What is asked for: kind and name of the reference, name of the argument, text so far.

    Raises:
        McpError: The parameters are malformed (-32602).
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
    return (kind, *found)  # type: ignore[return-value]  # all strings: checked above


def _settled(params: dict[str, Any]) -> dict[str, str]:
    """The other arguments that the user has settled already.

    Raises:
        McpError: They are malformed (-32602).
    """
    context = params.get("context")
    arguments = context.get("arguments") if type(context) is dict else context
    if arguments is None:
        return {}
    if type(arguments) is not dict or not all(type(value) is str for value in arguments.values()):
        raise McpError(INVALID_PARAMS, "context.arguments must be an object of strings")
    return arguments


def _matching(choices: list[str], value: str) -> list[str]:
    """Those that begin with the text, then those that contain it, whatever the case."""
    typed = value.casefold()
    beginning = [choice for choice in choices if choice.casefold().startswith(typed)]
    return beginning + [choice for choice in choices if typed in choice.casefold() and choice not in beginning]


def _completion(found: Any) -> dict[str, Any]:
    """The wire form of what a function returned, cut to what may be sent."""
    if isinstance(found, Completion):
        completion = found
    elif isinstance(found, (list, tuple)) and all(isinstance(value, str) for value in found):
        completion = Completion(values=list(found), total=len(found), has_more=False)
    else:
        raise TypeError(f"a completion returns a list of strings, or a Completion, not {found!r:.100}")
    wire = completion.to_wire()
    count = len(completion.values)
    if count > MAX_VALUES:
        # A total that the function knows may be larger still; one that is too small can't be right.
        total = completion.total
        if total is not None or not completion.has_more:
            wire["total"] = max(count, total or 0)
        wire |= {"values": completion.values[:MAX_VALUES], "hasMore": True}
    return wire
