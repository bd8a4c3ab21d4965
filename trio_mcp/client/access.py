"""`ClientAccess`: the parts of a client that its extensions use."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any, Unpack

import trio

from trio_mcp._keywords import refuse_unknown
from trio_mcp.client.connection import ClientConnection
from trio_mcp.client.input_rounds import InputRounds
from trio_mcp.client.listen import Listening
from trio_mcp.client.subscriptions import Subscription
from trio_mcp.client.tool_results import OutputSchemas, ToolResult, tool_params, typed
from trio_mcp.convert import as_result
from trio_mcp.errors import McpError
from trio_mcp.session.calls import USE_SESSION, CallLimits, Limit
from trio_mcp.types.common import INPUT_REQUIRED
from trio_mcp.types.meta import checked_meta
from trio_mcp.types.subscriptions import SubscriptionFilter

if TYPE_CHECKING:
    from pydantic import TypeAdapter

__all__ = ["ClientAccess"]


class ClientAccess:
    """The parts of a client that its extensions use, beside the public methods: see `ClientExtension.attach`."""

    def __init__(
        self, connection: ClientConnection, rounds: InputRounds, schemas: OutputSchemas, listening: Listening
    ) -> None:
        self._connection = connection
        self._rounds = rounds
        self._schemas = schemas
        self._listening = listening

    def is_apart(self, limits: CallLimits) -> bool:
        """Return whether a call may have HTTP headers of its own, so that its result may not be for other calls."""
        return self._connection.is_apart(limits)

    async def call_tool(
        self,
        name: str,
        arguments: Mapping[str, Any] | None = None,
        *,
        meta: Mapping[str, Any] | None = None,
        **limits: Unpack[CallLimits],
    ) -> dict[str, Any]:
        """Call a tool as `Client.call_tool` does, but return the first result that is not ``input_required``.

        Args:
            name: The tool's name.
            arguments: Its arguments, as in `Client.call_tool`.
            meta: Further entries for the request's ``_meta``.
            limits: As in `Client.call_tool`.

        Returns:
            The result as received. Its ``resultType`` may be one that an extension has added; if it is not, pass the
            result to `read_tool_result`.

        Errors and cancellation as in `Client.call_tool`.
        """
        refuse_unknown(ClientAccess.call_tool, limits, CallLimits)
        params = tool_params(name, arguments)
        if meta is not None:
            revisions = (self._connection.session.server.revision,)
            params["_meta"] = checked_meta(meta, f"the call of {name!r}", of_request=True, revisions=revisions)
        started, refused = trio.current_time(), None
        try:
            result = await self._connection.request("tools/call", params, limits)
        except McpError as exc:
            refused = exc
        if refused is not None:
            raise await self._schemas.of(limits).refusal(name, refused)
        if result.get("resultType") == INPUT_REQUIRED:
            result = await self._rounds.finish("tools/call", params, result, started, limits, whole=False)
        return result

    async def read_tool_result(
        self,
        result: dict[str, Any],
        name: str | None = None,
        adapter: TypeAdapter[Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> ToolResult[Any]:
        """Check a result of a tool that an extension has received, as `Client.call_tool` checks results.

        Args:
            result: The result, as plain data.
            name: The tool's name; None if it is unknown, which skips the check against the output schema.
            adapter: The adapter for the value that the tool returned; None for plain data.
            headers: The HTTP headers that the call had for itself, as in `CallLimits`.

        Raises:
            UnknownTool, RemoteProtocolError: As in `Client.call_tool`.

        The tools may be listed for the output schema. If the call is cancelled, that request is cancelled.
        """
        await trio.lowlevel.checkpoint()
        answer = as_result(result, ToolResult, "tools/call")
        schemas = self._schemas.of({"headers": headers})
        if name is not None and answer.is_error:
            await schemas.check_failure(name, answer.text)
        elif name is not None and "structuredContent" in result:
            await schemas.check(name, result["structuredContent"])
        return answer if adapter is None else typed(result, name or "(unknown)", adapter)

    async def answer(self, method: str, requests: Mapping[str, Any], *, rounds: int = 1) -> dict[str, Any]:
        """Get the answers to questions of the server from the client's callbacks, which run concurrently.

        Args:
            method: The method of the request during which the server asks, for error messages.
            requests: The questions, by key: an ``inputRequests`` object (2026-07-28 `basic/patterns/mrtr`).
            rounds: How many times the server has asked for the same call, including this time.

        Returns:
            The answers, by key: an ``inputResponses`` object.

        Raises:
            InputError: If a callback provides no answer; the other callbacks are then cancelled.
            RemoteProtocolError: If a question is malformed or not allowed, there are more than `MAX_INPUT_REQUESTS`, or
                ``rounds`` is more than `Answers.max_input_rounds`.

        If the call is cancelled, the callbacks are cancelled.
        """
        await trio.lowlevel.checkpoint()
        return await self._rounds.answer(method, requests, rounds)

    def listen(
        self, filters: Mapping[str, Any], timeout: Limit = USE_SESSION
    ) -> AbstractAsyncContextManager[Subscription]:
        """Listen with fields that an extension has added to the filter of ``subscriptions/listen``.

        The block is used like that of `Client.listen`. `Subscription.honored` has the part of the filter that the
        server has acknowledged. Notifications of the extension go to its own functions, so iterating over the
        subscription yields nothing, and ends when the subscription ends.

        Args:
            filters: The values of the fields, as plain data.
            timeout: Seconds to wait for the acknowledgement, as in `Client.listen`.

        Raises:
            LocalProtocolError: If the client is not connected, or the server is one of the legacy era.

        Entering the block raises exceptions as `Client.listen` does.
        """
        return self._listening.block(SubscriptionFilter.from_wire(dict(filters)), {"timeout": timeout})
