"""Prompts, from the client's side (`server/prompts`)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import trio

from trio_mcp.client.answers.input_rounds import INPUT_REQUIRED, InputRounds
from trio_mcp.client.listing import Listing, every, request_meta, validated
from trio_mcp.session.requests import USE_SESSION, Limit
from trio_mcp.types.input_required import InputRequiredResult
from trio_mcp.types.prompts import GetPromptResult, ListPromptsResult, Prompt

__all__ = ["PromptMethods", "strings"]


class PromptMethods(Listing, InputRounds):
    """The part of `Client` that lists and fills in prompts."""

    async def list_prompts(self, cursor: str | None = None, *, timeout: Limit = USE_SESSION) -> ListPromptsResult:
        """One page of the server's prompts.

        Args:
            cursor: The ``next_cursor`` of the page before; None for the first page.
            timeout: Seconds to wait.

        Raises:
            CapabilityError: The server offers no prompts.
            McpError: The server refused, for example an invalid cursor.

        Further errors and cancellation as in `BaseSession.send_request`.
        """
        return await self._one_page(ListPromptsResult, "prompts/list", cursor, timeout)

    def iter_prompts(self, *, timeout: Limit = USE_SESSION) -> AsyncIterator[Prompt]:
        """Every prompt, page after page: ``async for prompt in client.iter_prompts()``.

        Args:
            timeout: Seconds to wait for each page.

        A server whose pages never end is given up after `MAX_PAGES` with a `RemoteProtocolError`; errors otherwise as
        in `list_prompts`.
        """
        return every(lambda cursor: self.list_prompts(cursor, timeout=timeout), lambda page: page.prompts, "prompts")

    async def get_prompt(
        self,
        name: str,
        arguments: Mapping[str, str] | None = None,
        *,
        timeout: Limit = USE_SESSION,
        total_timeout: Limit = USE_SESSION,
        meta: Mapping[str, Any] | None = None,
    ) -> GetPromptResult:
        """Fill in a prompt. If the server asks for input, the callbacks of the `Client` give it.

        Args:
            name: The prompt's name.
            arguments: Its arguments. They are strings, in every revision.
            timeout: Seconds without an answer.
            total_timeout: Seconds whatever happens.
            meta: More entries for the request's ``_meta``, as in `call_tool`.

        Returns:
            The ``messages``, and perhaps a ``description``.

        Raises:
            TypeError: The name is no string, or the arguments are no mapping of strings.
            ValueError: A key of ``meta`` is malformed, or the protocol keeps it for itself.
            CapabilityError: The server offers no prompts.
            McpError: The server refused, for example because there is no such prompt or an argument is missing.
            InputError: The server asks for input, and the callback gave none (modern era).
            RemoteProtocolError: The result is malformed, or asks for input that it may not ask for.

        Further errors and cancellation as in `BaseSession.send_request`.
        """
        params = self._prompt_params(name, arguments, meta)
        started = trio.current_time()
        result = await self.request("prompts/get", params, timeout=timeout, total_timeout=total_timeout)
        if result.get("resultType") == INPUT_REQUIRED:
            result = await self._finish_rounds(
                "prompts/get", params, result, started, timeout=timeout, total_timeout=total_timeout
            )
        return validated(GetPromptResult, "prompts/get", result)

    async def get_prompt_once(
        self,
        name: str,
        arguments: Mapping[str, str] | None = None,
        *,
        input_responses: Mapping[str, Any] | None = None,
        request_state: str | None = None,
        timeout: Limit = USE_SESSION,
        total_timeout: Limit = USE_SESSION,
        meta: Mapping[str, Any] | None = None,
    ) -> GetPromptResult | InputRequiredResult:
        """Fill in a prompt for one round of input, by hand: to `get_prompt` as `call_tool_once` is to `call_tool`."""
        limits = {"timeout": timeout, "total_timeout": total_timeout}
        params = self._prompt_params(name, arguments, meta)
        _, answer = await self._once("prompts/get", GetPromptResult, params, input_responses, request_state, **limits)
        return answer

    def _prompt_params(
        self, name: str, arguments: Mapping[str, str] | None, meta: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        if not isinstance(name, str):
            raise TypeError(f"a prompt's name must be a string, got {name!r}")
        params: dict[str, Any] = {"name": name}
        if arguments is not None:
            params["arguments"] = strings(arguments, "arguments")
        if meta is not None:
            params["_meta"] = request_meta(self, meta, f"the request for the prompt {name!r}")
        return params


def strings(given: Mapping[str, str], what: str) -> dict[str, str]:
    """A mapping of strings as it travels.

    Args:
        given: The mapping.
        what: What it is, for the error message.

    Raises:
        TypeError: It is no mapping, or not of strings.
    """
    if not isinstance(given, Mapping):
        raise TypeError(f"{what} must be a mapping of strings, got {type(given).__name__}")
    for key, value in given.items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(f"{what} must be a mapping of strings, got {key!r}: {value!r}")
    return dict(given)
