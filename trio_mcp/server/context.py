"""What a handler knows of the request it serves, and what it can do beside returning a value."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Generic

from pydantic import BaseModel, ValidationError
from typing_extensions import TypeVar

from trio_mcp.errors import McpError
from trio_mcp.protocol.trace_context import TraceContext
from trio_mcp.server.logging import send_log
from trio_mcp.session.capabilities import declares, is_spec_method
from trio_mcp.session.convert import as_object
from trio_mcp.types.common import Implementation
from trio_mcp.types.error_codes import MISSING_REQUIRED_CLIENT_CAPABILITY
from trio_mcp.types.extensions import declared_extensions

if TYPE_CHECKING:
    from trio_mcp.protocol.messages import RequestId
    from trio_mcp.protocol.server_negotiation import ClientDeclaration
    from trio_mcp.session.responder import Responder
    from trio_mcp.types.logging import LoggingLevel

__all__ = ["Context"]

StateT = TypeVar("StateT", default=Any)


class Context(Generic[StateT]):
    """One request, as its handler sees it. Declare a parameter of this type and the server fills it.

    The type argument is that of the lifespan's state: ``ctx: Context[Database]``.

    Attributes:
        method: The request's method.
        params: The request's parameters, as plain data. A middleware may replace them.
        state: What the server's lifespan yielded; None without a lifespan.
    """

    __slots__ = ("_responder", "method", "params", "state")

    def __init__(self, responder: Responder, state: StateT) -> None:
        self._responder = responder
        self.method = responder.method
        self.params: dict[str, Any] = responder.params
        self.state = state

    @property
    def _client(self) -> ClientDeclaration:
        client = self._responder.client
        assert client is not None
        return client

    @property
    def request_id(self) -> RequestId:
        """The id of the request."""
        return self._responder.id

    @property
    def meta(self) -> dict[str, Any]:
        """The request's ``_meta``; empty if it has none."""
        return self._responder.meta

    @property
    def trace_context(self) -> TraceContext | None:
        """The trace that the request belongs to, by its ``_meta``; None if that names none in a valid form.

        Requests that the handler makes carry it, too, if they are made with this library.
        """
        return TraceContext.from_meta(self._responder.meta)

    @property
    def transport_metadata(self) -> Mapping[str, Any]:
        """What the transport knows of the request (HTTP headers, for example); may be empty."""
        return self._responder.metadata

    @property
    def protocol_version(self) -> str:
        """The revision that the request speaks."""
        return self._client.revision

    @property
    def client_info(self) -> Implementation | None:
        """What the client says of itself; nothing that a decision may rest on. None if it says nothing readable."""
        try:
            return Implementation.from_wire(self._client.client_info)
        except ValidationError:
            return None

    @property
    def client_capabilities(self) -> dict[str, Any]:
        """What the client has declared, as plain data."""
        return self._client.capabilities

    @property
    def client_extensions(self) -> dict[str, dict[str, Any]]:
        """The settings of each extension that the client has declared, by its identifier."""
        return declared_extensions(self._client.capabilities)

    def require_client_extension(self, identifier: str) -> None:
        """Refuse the request unless the client has declared an extension.

        Raises:
            McpError: It has not: -32021, which names it (2026-07-28 `basic/index`, Per-request protocol fields).
        """
        if identifier not in self.client_extensions:
            raise McpError(
                MISSING_REQUIRED_CLIENT_CAPABILITY,
                f"this request needs the extension {identifier!r}, which the client has not declared",
                {"requiredCapabilities": {"extensions": {identifier: {}}}},
            )

    def require_client_capability(self, capability: str) -> None:
        """Refuse the request unless the client has declared a capability.

        Args:
            capability: A dotted path, for example ``"sampling.tools"``.

        Raises:
            McpError: It has not: -32021, which names it (2026-07-28 `basic/index`, Per-request protocol fields).
        """
        if declares(self.client_capabilities, capability):
            return
        required: dict[str, Any] = {}
        inner = required
        for name in capability.split("."):
            inner[name] = inner = {}
        raise McpError(
            MISSING_REQUIRED_CLIENT_CAPABILITY,
            f"this request needs the client capability {capability!r}, which the client has not declared",
            {"requiredCapabilities": required},
        )

    async def report_progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Tell the client how far the work is; does nothing if the client did not ask (`basic/patterns/progress`).

        From a sync tool: ``trio.from_thread.run(ctx.report_progress, 1, 3)``.

        Args:
            progress: How much is done; it must grow from call to call.
            total: How much there is, if known.
            message: A word for people.

        Waits while the client is slow to read. When cancelled before that, nothing is sent.
        """
        await self._responder.report_progress(progress, total, message)

    async def notify(self, method: str, params: BaseModel | Mapping[str, Any] | None = None) -> None:
        """Send the client a notification of your own, which belongs to this request. After the answer nothing is sent.

        A `Client` gives it to its ``on_message``. From a sync tool: ``trio.from_thread.run(ctx.notify, "…", {…})``.

        Args:
            method: The notification's. Those of an extension begin with its prefix, as a rule.
            params: Its parameters: a model, or plain JSON data.

        Raises:
            ValueError: The protocol defines it: then it has a method of its own, or none.
            TypeError: The parameters are neither a model nor a mapping.

        Waits while the client is slow to read. When cancelled before that, nothing is sent.
        """
        if is_spec_method(method):
            raise ValueError(f"the protocol defines {method!r}; a notification of your own needs a name of your own")
        await self._responder.notify(method, None if params is None else as_object(params, "params"))

    async def log(self, level: LoggingLevel, data: Any, logger: str | None = None) -> None:
        """Send the client a log message, if it wants messages of this level (`server/utilities/logging`).

        A client of the handshake era gets what is at or above the level that it has set; ``"info"`` and above if it has
        set none. In the modern era the request itself has to ask. After the answer nothing is sent.

        From a sync tool: ``trio.from_thread.run(ctx.log, "info", "half done")``.

        Args:
            level: ``"debug"``, ``"info"``, ``"notice"``, ``"warning"``, ``"error"``, ``"critical"``, ``"alert"`` or
                ``"emergency"``.
            data: What to say: a string, or anything else that pydantic turns into JSON. No secrets: clients show it.
            logger: The name of what says it.

        Raises:
            ValueError: There is no such level.
            TypeError: The data can't be turned into JSON, or ``logger`` is no string.

        Waits while the client is slow to read. When cancelled before that, nothing is sent.
        """
        await send_log(self._responder, level, data, logger)
