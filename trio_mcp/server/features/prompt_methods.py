"""The part of `Server` that offers prompts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeVar, overload

from trio_mcp.errors import McpError
from trio_mcp.server.changes import PROMPTS_CHANGED
from trio_mcp.server.connection import Handler
from trio_mcp.server.context import Context
from trio_mcp.server.core import ServerCore
from trio_mcp.server.features.prompts import PromptOutputError, make_prompt, prompt_result
from trio_mcp.server.functions.arguments import InvalidArguments
from trio_mcp.server.functions.handling import failure, list_page, run
from trio_mcp.server.input.interactive import run_interactive
from trio_mcp.server.input.rounds import Asked
from trio_mcp.types.common import Icon
from trio_mcp.types.error_codes import INVALID_PARAMS, METHOD_NOT_FOUND

__all__ = ["PromptMethods"]

FunctionT = TypeVar("FunctionT", bound=Callable[..., Any])


class PromptMethods(ServerCore):
    """Registering, listing and getting prompts."""

    # A capability can't be taken back from those who have seen it, so the last prompt to go does not end it.
    _offers_prompts = False

    def _capabilities(self, revision: str) -> dict[str, Any]:
        capabilities = super()._capabilities(revision)
        if self._offers_prompts:
            capabilities["prompts"] = {"listChanged": True}
        return capabilities

    def _handlers(self) -> dict[str, Handler]:
        return {**super()._handlers(), "prompts/list": self._list_prompts, "prompts/get": self._get_prompt}

    @overload
    def prompt(self, function: FunctionT, /) -> FunctionT: ...

    @overload
    def prompt(
        self,
        *,
        name: str | None = ...,
        title: str | None = ...,
        description: str | None = ...,
        icons: Iterable[Icon] | None = ...,
        meta: Mapping[str, Any] | None = ...,
        park_input: bool = ...,
    ) -> Callable[[FunctionT], FunctionT]: ...

    def prompt(self, function: Any = None, /, **details: Any) -> Any:  # type: ignore[misc]
        """Offer a function as a prompt; the function itself stays as it is.

        ``@server.prompt`` or ``@server.prompt(title=…)``; the arguments are those of `add_prompt`.
        """
        if function is None:
            return lambda given: self.prompt(given, **details)
        if isinstance(function, str):
            raise TypeError(f"write @server.prompt(name={function!r})")
        self.add_prompt(function, **details)
        return function

    def add_prompt(
        self,
        function: Callable[..., Any],
        *,
        name: str | None = None,
        title: str | None = None,
        description: str | None = None,
        icons: Iterable[Icon] | None = None,
        meta: Mapping[str, Any] | None = None,
        park_input: bool = False,
    ) -> None:
        """Offer a function as a prompt, at any time and from any thread. Clients are told that the list has changed.

        Its parameters become the prompt's arguments, required unless they have a default; its docstring describes both.
        Clients send strings. Each is validated against the parameter's type hint in pydantic's lax mode (``"5"`` is
        an int, ``"true"`` a bool); one that does not fit as it is is read as JSON, if the hint asks for what
        that gives. Extra arguments are refused. An async function runs in the event loop, any other in a thread, which
        counts among ``max_sync_tools``. When a request is cancelled, the former is, too, but a thread is left to
        finish.

        The function returns a string or a content block (one message of the user's), a `types.PromptMessage`, a list
        of these, or a `types.GetPromptResult`. What else it raises than `McpError` is logged, and the client gets
        -32603.

        Args:
            function: The function, sync or async. A parameter annotated with `Context` is filled by the server.
            name: The prompt's name; the function's own by default.
            title: Its name for people.
            description: What it is for; the docstring by default.
            icons: Pictures of it, by https: or data: URI.
            meta: Its ``_meta``; a key has the form ``com.example/name``.

        Raises:
            TypeError: The signature can't be offered: a hint has no JSON form, for example.
            ValueError: The name is invalid or taken.
        """
        made = make_prompt(
            function, name=name, title=title, description=description, icons=icons, meta=meta, park_input=park_input
        )
        self._prompts.add(made)
        self._offers_prompts = True
        self._announce(PROMPTS_CHANGED)

    def remove_prompt(self, name: str) -> None:
        """Stop offering a prompt. Clients are told that the list has changed; requests that are running go on.

        Raises:
            KeyError: There is no such prompt.
        """
        self._prompts.remove(name)
        self._announce(PROMPTS_CHANGED)

    def notify_prompts_changed(self) -> None:
        """Tell the clients that the list of prompts has changed; as `notify_tools_changed`."""
        self._announce(PROMPTS_CHANGED)

    async def _list_prompts(self, server: ServerCore, context: Context[Any]) -> dict[str, Any]:
        self._require_prompts(context)
        return list_page(server, self._prompts, "prompts", context)

    async def _get_prompt(self, server: ServerCore, context: Context[Any]) -> dict[str, Any]:
        self._require_prompts(context)
        name, arguments = context.params.get("name"), context.params.get("arguments")
        if type(name) is not str:
            raise McpError(INVALID_PARAMS, "prompts/get needs a name, which must be a string")
        prompt = self._prompts.get(name)
        if prompt is None:
            raise McpError(INVALID_PARAMS, f"unknown prompt: {name[:200]!r}")
        if prompt.mounted is not None:
            return await prompt.mounted.mount.pass_on(context, name=prompt.mounted.name)
        if arguments is None:
            arguments = {}
        elif type(arguments) is not dict:
            raise McpError(INVALID_PARAMS, "the arguments of prompts/get must be an object")
        for argument, value in arguments.items():
            if type(value) is not str:
                raise McpError(
                    INVALID_PARAMS, f"invalid arguments for the prompt {name!r}: {argument[:100]}: must be a string"
                )
        try:
            if prompt.signature.may_ask:
                value = await run_interactive(self, context, lambda: prompt.bind(arguments, context), prompt.signature)
                if type(value) is Asked:
                    return value.result
            else:
                value = await run(prompt.bind(arguments, context), prompt.signature.is_async, self)
            return prompt_result(value, prompt.definition.description, context.protocol_version)
        except InvalidArguments as exc:
            raise McpError(INVALID_PARAMS, f"invalid arguments for the prompt {name!r}: {exc}") from None
        except Exception as exc:
            raise failure(self, f"the prompt {name!r} failed", exc, PromptOutputError) from None

    def _require_prompts(self, context: Context[Any]) -> None:
        if not self._offers_prompts:
            raise McpError(METHOD_NOT_FOUND, f"unknown method {context.method!r}: this server has no prompts")
