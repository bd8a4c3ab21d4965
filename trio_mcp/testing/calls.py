"""Records the requests that a server gets, for tests of the code that sends them."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Awaitable, Callable, Iterator
from typing import Any, Self

import attrs

from trio_mcp.server.base_server import BaseServer, core_of
from trio_mcp.server.context import Context
from trio_mcp.types.common import INPUT_REQUIRED

__all__ = ["CallRecorder", "RecordedCall", "record_calls"]

_ROUND = frozenset({"inputResponses", "requestState"})
"""The parameters that a client adds when it sends a request again with input."""


@attrs.define
class RecordedCall:
    """A request that a server got, and its outcome.

    Attributes:
        method: The method of the request, such as ``"tools/call"``.
        params: The parameters as the server first got them, without ``_meta``.
        result: The result as plain data; None until there is one. While the request waits for input, this is the result
            that asks for the input.
        error: The exception with which the request ended instead, such as an `McpError` or `trio.Cancelled`.
        rounds: How often the request was sent. In the modern era a client sends a request again with the input that was
            asked for (2026-07-28, `basic/patterns/mrtr`); in the legacy era it sends the request once, whatever the
            server asks.
    """

    method: str
    params: dict[str, Any]
    result: dict[str, Any] | None = None
    error: BaseException | None = None
    rounds: int = 1

    @property
    def name(self) -> str | None:
        """The name of the tool or prompt, or the URI of the resource; None for other requests."""
        found: str | None = self.params.get("name", self.params.get("uri"))
        return found

    @property
    def arguments(self) -> dict[str, Any]:
        """The arguments for the tool or prompt; empty if there are none."""
        return self.params.get("arguments") or {}

    @property
    def text(self) -> str:
        """The text of all text blocks in a tool's result, joined by newlines."""
        blocks = (self.result or {}).get("content", ())
        return "\n".join(block["text"] for block in blocks if block["type"] == "text")


class CallRecorder:
    """Middleware that keeps the requests that a server gets, in the order of their arrival.

    Attributes:
        calls: The requests that the server's handlers respond to: calls, lists, reads, prompts, completions. A request
            for which the handler asks for input appears once, however often it is sent.
    """

    def __init__(self) -> None:
        self.calls: list[RecordedCall] = []

    async def __call__(
        self, context: Context[Any], call_next: Callable[[], Awaitable[dict[str, Any]]]
    ) -> dict[str, Any]:
        # The recorder keeps copies, because functions and other middleware may change what they get.
        params = {key: copy.deepcopy(value) for key, value in context.params.items() if key != "_meta"}
        call = self._resumed(context.method, params)
        if call is None:
            call = RecordedCall(context.method, params)
            self.calls.append(call)
        else:
            call.rounds += 1
        try:
            result = await call_next()
        except BaseException as exc:
            # A result from an earlier attempt, which asked for input, is not the outcome of the request.
            call.error, call.result = exc, None
            raise
        call.result = copy.deepcopy(result)
        return result

    def _resumed(self, method: str, params: dict[str, Any]) -> RecordedCall | None:
        """Return the recorded call that a request with these parameters continues, or None if it is a new call."""
        if not _ROUND & params.keys():
            return None
        first = {key: value for key, value in params.items() if key not in _ROUND}
        for call in reversed(self.calls):
            result = call.result or {}
            # The server makes the state, so it distinguishes two calls that are otherwise equal.
            if result.get("resultType") == INPUT_REQUIRED and result.get("requestState") == params.get("requestState"):
                before = {key: value for key, value in call.params.items() if key not in _ROUND}
                if (call.method, before) == (method, first):
                    return call
        return None

    @property
    def tools(self) -> list[tuple[str | None, dict[str, Any]]]:
        """The tool calls, each as the tool's name and the arguments: ``[("price", {"item": "pear"})]``."""
        return [(call.name, call.arguments) for call in self.calls if call.method == "tools/call"]

    def of(self, name: str) -> list[RecordedCall]:
        """Return the requests for a tool, prompt or resource, or with a method, as in ``recorder.of("tools/list")``."""
        return [call for call in self.calls if name in (call.name, call.method)]

    @contextlib.contextmanager
    def on(self, server: BaseServer) -> Iterator[Self]:
        """Record the requests that a server gets while the block runs, before any other middleware sees them."""
        settings = core_of(server).settings
        settings.middleware = (self, *settings.middleware)
        try:
            yield self
        finally:
            # The recorder is found by its identity, since other middleware may have been added meanwhile.
            settings.middleware = tuple(each for each in settings.middleware if each is not self)


def record_calls(server: BaseServer) -> contextlib.AbstractContextManager[CallRecorder]:
    """Record the requests that a server gets while a block runs: ``with record_calls(server) as recorder: ...``.

    It does not matter which client sends them over which transport. Requests to mounted servers are included.

    Args:
        server: A `Server` or `ProxyServer` in this process.

    Raises:
        TypeError: If ``server`` is not such a server.
    """
    if not isinstance(server, BaseServer):
        raise TypeError(f"only a Server in this process can be recorded, got {type(server).__name__}")
    return CallRecorder().on(server)
