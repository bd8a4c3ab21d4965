"""Tools, from the client's side (`server/tools`)."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any

import trio
from pydantic_core import PydanticSerializationError, to_jsonable_python

from trio_mcp.client.answers.input_rounds import INPUT_REQUIRED, InputRounds
from trio_mcp.client.listing import Listing, every, request_meta, validated
from trio_mcp.client.results import ToolResult
from trio_mcp.errors import CapabilityError, McpError
from trio_mcp.session.requests import USE_SESSION, Limit, ProgressCallback
from trio_mcp.types.input_required import InputRequiredResult
from trio_mcp.types.tools import ListToolsResult, Tool

__all__ = ["ToolMethods"]


class ToolMethods(Listing, InputRounds):
    """The part of `Client` that lists and calls tools."""

    async def list_tools(self, cursor: str | None = None, *, timeout: Limit = USE_SESSION) -> ListToolsResult:
        """One page of the server's tools.

        Args:
            cursor: The ``next_cursor`` of the page before; None for the first page.
            timeout: Seconds to wait.

        Raises:
            CapabilityError: The server offers no tools.
            McpError: The server refused, for example an invalid cursor.

        Further errors and cancellation as in `BaseSession.send_request`.
        """
        page = await self._one_page(ListToolsResult, "tools/list", cursor, timeout)
        self._output_schemas.learn(page.tools)
        return page

    def iter_tools(self, *, timeout: Limit = USE_SESSION) -> AsyncIterator[Tool]:
        """Every tool, page after page: ``async for tool in client.iter_tools()``.

        Args:
            timeout: Seconds to wait for each page.

        A server whose pages never end is given up after `MAX_PAGES` with a `RemoteProtocolError`; errors otherwise as
        in `list_tools`.
        """
        return every(lambda cursor: self.list_tools(cursor, timeout=timeout), lambda page: page.tools, "tools")

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        timeout: Limit = USE_SESSION,
        total_timeout: Limit = USE_SESSION,
        reset_on_progress: bool | None = None,
        on_progress: ProgressCallback | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> ToolResult:
        """Call a tool.

        Structured content is validated against the tool's output schema; the list of tools is asked for once if it
        has not been, and again after it has changed. If the server asks for input, the callbacks of the `Client` give
        it, and the call goes on.

        Args:
            name: The tool's name.
            arguments: Its arguments: JSON data, or anything that pydantic turns into it.
            timeout: Seconds without an answer, in each round of input anew. What callbacks take between the rounds
                does not count (modern era).
            total_timeout: Seconds whatever happens.
            reset_on_progress: Whether progress restarts ``timeout``.
            on_progress: Called, sync or async, in this task and in order, for each progress notification.
            meta: More entries for the request's ``_meta``; a key has the form ``com.example/name``.

        Returns:
            The result. ``is_error`` says that the tool itself failed: that is for the model to see, so nothing is
            raised.

        Raises:
            TypeError: The arguments are no mapping, or can't be turned into JSON.
            ValueError: A key of ``meta`` is malformed, or the protocol keeps it for itself.
            McpError: The server refused, for example because there is no such tool.
            InputError: The server asks for input, and the callback gave none (modern era).
            RemoteProtocolError: The result is malformed, breaks the tool's output schema, or asks for input that it
                may not ask for.
            RequestTimeout, TransportError: As in `BaseSession.send_request`.

        When cancelled, the server is told (with the reason) and the call ends at once.
        """
        params = _params(name, arguments)
        if meta is not None:
            params["_meta"] = request_meta(self, meta, f"the call of {name!r}")
        started = trio.current_time()
        result = await self.request(
            "tools/call",
            params,
            timeout=timeout,
            total_timeout=total_timeout,
            reset_on_progress=reset_on_progress,
            on_progress=on_progress,
        )
        if result.get("resultType") == INPUT_REQUIRED:
            result = await self._finish_rounds(
                "tools/call",
                params,
                result,
                started,
                timeout=timeout,
                total_timeout=total_timeout,
                reset_on_progress=reset_on_progress,
                on_progress=on_progress,
            )
        answer = validated(ToolResult, "tools/call", result)
        if "structuredContent" in result and not answer.is_error:
            await self._check_output(name, result["structuredContent"])
        return answer

    async def call_tool_once(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        input_responses: Mapping[str, Any] | None = None,
        request_state: str | None = None,
        timeout: Limit = USE_SESSION,
        total_timeout: Limit = USE_SESSION,
        reset_on_progress: bool | None = None,
        on_progress: ProgressCallback | None = None,
        meta: Mapping[str, Any] | None = None,
    ) -> ToolResult | InputRequiredResult:
        """Call a tool for one round of input, by hand; no callback is called.

        A server of the modern era may answer with an `InputRequiredResult`. To go on, call again with the same name
        and arguments, with a response for each of its ``input_requests`` and with its very ``request_state``. The
        server asks only for what the client has declared: see ``capabilities`` of the `Client`.

        Args:
            name: As in `call_tool`, like all that follow.
            arguments: Its arguments.
            input_responses: The responses to the round before, by the key of the request: `ElicitResult`,
                `CreateMessageResult`, `ListRootsResult`, or plain data.
            request_state: The ``request_state`` of the round before; None if it had none.
            timeout: Seconds without an answer.
            total_timeout: Seconds whatever happens.
            reset_on_progress: Whether progress restarts ``timeout``.
            on_progress: Called for each progress notification.
            meta: More entries for the request's ``_meta``.

        Raises:
            LocalProtocolError: Responses or a state are given in the legacy era.

        Further errors and cancellation as in `call_tool`.
        """
        params = _params(name, arguments)
        if meta is not None:
            params["_meta"] = request_meta(self, meta, f"the call of {name!r}")
        result, answer = await self._once(
            "tools/call",
            ToolResult,
            params,
            input_responses,
            request_state,
            timeout=timeout,
            total_timeout=total_timeout,
            reset_on_progress=reset_on_progress,
            on_progress=on_progress,
        )
        if isinstance(answer, ToolResult) and "structuredContent" in result and not answer.is_error:
            await self._check_output(name, result["structuredContent"])
        return answer

    async def _check_output(self, name: str, value: Any) -> None:
        if not self._output_schemas.knows(name):
            async with self._output_schemas.learning:
                if not self._output_schemas.knows(name):
                    await self._learn_all_tools()
        self._output_schemas.check(name, value)

    async def _learn_all_tools(self) -> None:
        try:
            async for _ in self.iter_tools():
                pass
        except (McpError, CapabilityError):
            pass  # a server that calls tools without listing them: there is nothing to check against
        self._output_schemas.all_known = True


def _params(name: str, arguments: Mapping[str, Any] | None) -> dict[str, Any]:
    if not isinstance(name, str):
        raise TypeError(f"a tool's name must be a string, got {name!r}")
    params: dict[str, Any] = {"name": name}
    if arguments is not None:
        if not isinstance(arguments, Mapping):
            raise TypeError(f"arguments must be a mapping, got {type(arguments).__name__}")
        try:
            params["arguments"] = to_jsonable_python(dict(arguments), by_alias=True)
        except PydanticSerializationError as exc:
            raise TypeError(f"the arguments of {name!r} can't be turned into JSON: {exc}") from None
    return params
