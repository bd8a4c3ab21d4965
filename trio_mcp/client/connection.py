"""The connection of a client: opened, negotiated and closed as one async context manager."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar, get_args, overload

import trio
from pydantic import BaseModel, ValidationError

from trio_mcp._nursery import EnteredOnce, background_nursery
from trio_mcp.client.answers.callbacks import call_back
from trio_mcp.client.answers.elicitation import MODES as ELICITATION_MODES
from trio_mcp.client.answers.elicitation import ElicitationCallback, ElicitationMode
from trio_mcp.client.answers.input_sources import InputSources
from trio_mcp.client.answers.roots import Roots
from trio_mcp.client.answers.sampling import SamplingCallback, SamplingFeature
from trio_mcp.client.cache import ResponseCache
from trio_mcp.client.capabilities import merged
from trio_mcp.client.connected_session import ConnectedSession
from trio_mcp.client.extensions import known_result_types
from trio_mcp.client.middleware import Middleware, OutgoingCall, through
from trio_mcp.client.output_schemas import OutputSchemas
from trio_mcp.client.subscriptions import Subscriptions
from trio_mcp.client.targets import HttpConnector, Target, link_factory
from trio_mcp.convert import as_object, as_result, brief
from trio_mcp.eras.capabilities import checked_extensions, declared_extensions, declares
from trio_mcp.eras.client_negotiation import ServerDeclaration
from trio_mcp.errors import LocalProtocolError, NegotiationError, RemoteProtocolError, TransportError
from trio_mcp.jsonrpc.messages import Notification
from trio_mcp.session.options import SessionOptions
from trio_mcp.session.requests import USE_SESSION, Limit, ProgressCallback
from trio_mcp.types.capabilities import ClientCapabilities, ServerCapabilities
from trio_mcp.types.common import Implementation
from trio_mcp.types.notices import LoggingLevel, LoggingMessageNotificationParams
from trio_mcp.types.versions import LEGACY_REVISIONS, REVISIONS

__all__ = ["ClientConnection"]

ResultT = TypeVar("ResultT", bound=BaseModel)

MODES = ("auto", "legacy", *REVISIONS)

ChangeHook = Callable[[str, str | None], None]
"""``(kind, uri)``, as in `Subscriptions`. It is called by the session's reader: it must neither block nor raise."""


class ClientConnection(EnteredOnce):
    """The lifetime of a `Client`, and its requests of any method. The arguments are those of `Client`."""

    def __init__(
        self,
        target: Target,
        *,
        mode: str = "auto",
        client_info: Implementation | None = None,
        extensions: Mapping[str, Mapping[str, Any]] | None = None,
        result_types: Collection[str] = (),
        capabilities: ClientCapabilities | Mapping[str, Any] | None = None,
        elicitation: ElicitationCallback | None = None,
        elicitation_modes: Collection[ElicitationMode] = ELICITATION_MODES,
        sampling: SamplingCallback | None = None,
        sampling_features: Collection[SamplingFeature] = (),
        roots: Roots | None = None,
        max_input_rounds: int = 10,
        options: SessionOptions | None = None,
        connect_timeout: float = 30.0,
        probe_timeout: float = 5.0,
        log_level: LoggingLevel | None = None,
        on_log: Callable[[LoggingMessageNotificationParams], Awaitable[object] | object] | None = None,
        on_error: Callable[[RemoteProtocolError], Awaitable[object] | object] | None = None,
        on_message: Callable[[Notification], Awaitable[object] | object] | None = None,
        middleware: Sequence[Middleware] = (),
        cache: ResponseCache | None = None,
        principal: str | None = None,
    ) -> None:
        if mode not in MODES:
            raise ValueError(f"mode must be one of {', '.join(MODES)}; got {mode!r}")
        for name, seconds in (("connect_timeout", connect_timeout), ("probe_timeout", probe_timeout)):
            if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds > 0:
                raise ValueError(f"{name} must be a number of seconds above 0, got {seconds!r}")
        if isinstance(max_input_rounds, bool) or not isinstance(max_input_rounds, int) or max_input_rounds < 1:
            raise ValueError(f"max_input_rounds must be a whole number of at least 1, got {max_input_rounds!r}")
        if log_level is not None:
            check_log_level(log_level)
        self._extensions = checked_extensions(extensions, "client")
        self._result_types = known_result_types(result_types, self._extensions)
        self._inputs = InputSources(
            elicitation=elicitation,
            elicitation_modes=elicitation_modes,
            sampling=sampling,
            sampling_features=sampling_features,
            roots=roots,
        )
        self._more_capabilities = {} if capabilities is None else as_object(capabilities, "capabilities")
        self._max_input_rounds = max_input_rounds
        if cache is not None and not isinstance(cache, ResponseCache):
            raise TypeError(f"cache must be a ResponseCache, got {type(cache).__name__}")
        if client_info is not None and not isinstance(client_info, Implementation):
            raise TypeError(f"client_info must be an Implementation, got {type(client_info).__name__}")
        if principal is not None and not isinstance(principal, str):
            raise TypeError(f"principal must be a string, got {type(principal).__name__}")
        self._open_link = link_factory(target)
        self._mode = mode
        self._client_info = client_info
        self._options = options
        self._connect_timeout = connect_timeout
        self._probe_timeout = probe_timeout
        self._log_level = log_level
        self._on_log, self._on_error, self._on_message = on_log, on_error, on_message
        self._middleware = tuple(middleware)
        self._output_schemas = OutputSchemas()
        self._subscriptions = Subscriptions(self._changed)
        self._change_hooks: list[ChangeHook] = []
        self._cache, self._principal = cache, principal
        if cache is not None:
            cache.attach(target)
            self._change_hooks.append(cache.changed)
        self._session: ConnectedSession | None = None
        self._scope = trio.CancelScope()
        self._stop = trio.Event()
        self._ended = trio.Event()

    # --- lifetime ------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _lifetime(self) -> AsyncIterator[None]:
        async with background_nursery(self.aclose) as nursery:
            await nursery.start(self._stay_connected)
            yield

    async def _stay_connected(self, task_status: trio.TaskStatus[None]) -> None:
        """Everything that the connection is made of, in a task of its own, so that anybody may end it at any time."""
        session: ConnectedSession | None = None
        try:
            with self._scope:
                with trio.CancelScope(deadline=trio.current_time() + self._connect_timeout) as connecting:
                    async with self._open_link() as link:
                        session = ConnectedSession(
                            link,
                            client_info=self._client_info,
                            capabilities=self._declared,
                            result_types=self._result_types,
                            options=self._options,
                            on_error=self._on_error,
                            log_level=self._log_level,
                            on_notification=self._received,
                            subscriptions=self._subscriptions,
                        )
                        self._inputs.attach(session)
                        async with session:
                            await self._negotiate(session)
                            connecting.deadline = float("inf")
                            self._session = session
                            task_status.started()
                            await self._stop.wait()
                if connecting.cancelled_caught:
                    raise TransportError(self._no_answer(session))
        finally:
            self._ended.set()

    def _declared(self, revision: str) -> dict[str, Any]:
        """The one place where what the client declares is put together."""
        extensions = {"extensions": self._extensions} if self._extensions else {}
        return merged(self._inputs.capabilities(revision), extensions, self._more_capabilities)

    async def _negotiate(self, session: ConnectedSession) -> None:
        if self._mode == "auto":
            known = isinstance(self._open_link, HttpConnector) and self._open_link.is_legacy
            await session.negotiate(probe_timeout=self._probe_timeout, handshake_first=known)
        elif self._mode == "legacy":
            await session.initialize()
        elif self._mode in LEGACY_REVISIONS:
            server = await session.initialize(self._mode)
            if server.revision != self._mode:
                text = f"the server speaks {server.revision}, not {self._mode!r} as mode={self._mode!r} asks for"
                raise NegotiationError(text, (server.revision,))
        else:
            await session.discover(self._mode)
        if self._log_level is not None and not session.modern and declares(session.server.capabilities, "logging"):
            await session.send_request("logging/setLevel", {"level": self._log_level})

    def _no_answer(self, session: ConnectedSession | None) -> str:
        text = f"the server did not complete the connection within connect_timeout={self._connect_timeout:g} seconds"
        if session is not None and session.last_fault is not None:
            text += f"; what it sent was no MCP: {session.last_fault}"
        return text + "; is it an MCP server, and the right way to start it?"

    async def aclose(self) -> None:
        """End the connection: early, in any order with other clients, from any task; again is a no-op.

        Pending calls raise `SessionClosed`; the server process, if there is one, is asked to exit and then made to.
        When cancelled, the same happens at once, without the asking.
        """
        if self._lifetime_manager is None:
            return
        self._stop.set()
        try:
            await self._ended.wait()
        except trio.Cancelled:
            self._scope.cancel("the client is closed")
            raise

    @property
    def session(self) -> ConnectedSession:
        """The session underneath, for whatever the client has no method for.

        Raises:
            LocalProtocolError: The client has not been entered.
        """
        if self._session is None:
            raise LocalProtocolError("the client is not connected: use it as `async with Client(...) as client:`")
        return self._session

    @property
    def _server(self) -> ServerDeclaration:
        return self.session.server

    @property
    def server_info(self) -> Implementation | None:
        """What the server says of itself, which nothing checks; None if it says nothing readable."""
        try:
            return Implementation.from_wire(self._server.info)
        except ValidationError:
            return None

    @property
    def capabilities(self) -> ServerCapabilities:
        """What the server has declared.

        Raises:
            RemoteProtocolError: It is malformed.
        """
        try:
            return ServerCapabilities.from_wire(self._server.capabilities)
        except ValidationError as exc:
            raise RemoteProtocolError(f"the server's capabilities are malformed: {brief(exc)}") from None

    @property
    def extensions(self) -> dict[str, dict[str, Any]]:
        """The settings of each extension that the server has declared, by its identifier."""
        return declared_extensions(self._server.capabilities)

    @property
    def instructions(self) -> str | None:
        """The server's guidance for the model, or None."""
        return self._server.instructions

    @property
    def protocol_version(self) -> str:
        """The revision that is spoken."""
        return self._server.revision

    # --- requests ------------------------------------------------------------------------------------------------

    @overload
    async def request(
        self,
        method: str,
        params: BaseModel | Mapping[str, Any] | None = ...,
        result_type: None = ...,
        *,
        timeout: Limit = ...,
        total_timeout: Limit = ...,
        reset_on_progress: bool | None = ...,
        on_progress: ProgressCallback | None = ...,
    ) -> dict[str, Any]: ...

    @overload
    async def request(
        self,
        method: str,
        params: BaseModel | Mapping[str, Any] | None,
        result_type: type[ResultT],
        *,
        timeout: Limit = ...,
        total_timeout: Limit = ...,
        reset_on_progress: bool | None = ...,
        on_progress: ProgressCallback | None = ...,
    ) -> ResultT: ...

    async def request(
        self,
        method: str,
        params: BaseModel | Mapping[str, Any] | None = None,
        result_type: type[BaseModel] | None = None,
        *,
        timeout: Limit = USE_SESSION,
        total_timeout: Limit = USE_SESSION,
        reset_on_progress: bool | None = None,
        on_progress: ProgressCallback | None = None,
    ) -> Any:
        """Send any request, through the middleware.

        Arguments, errors and cancellation are those of `BaseSession.send_request`.

        Returns:
            The result: a ``result_type``, or plain data.
        """
        session = self.session
        if not self._middleware:
            return await session.send_request(
                method,
                params,
                result_type,
                timeout=timeout,
                total_timeout=total_timeout,
                reset_on_progress=reset_on_progress,
                on_progress=on_progress,
            )
        plain = {} if params is None else dict(as_object(params, "params"))
        call = OutgoingCall(method, plain, self.protocol_version)

        async def send() -> dict[str, Any]:
            call.request_id = session.next_request_id  # nothing waits between here and the taking of an id
            return await session.send_request(
                call.method,
                call.params,
                timeout=timeout,
                total_timeout=total_timeout,
                reset_on_progress=reset_on_progress,
                on_progress=on_progress,
            )

        result = await through(self._middleware, 0, call, send)
        return result if result_type is None else as_result(result, result_type, method)

    async def ping(self, *, timeout: Limit = USE_SESSION) -> None:
        """Ask the server for a sign of life (legacy era only).

        Raises:
            LocalProtocolError: The revision has no ping.
        """
        await self.request("ping", timeout=timeout)

    async def notify(self, method: str, params: BaseModel | Mapping[str, Any] | None = None) -> None:
        """Send the server a notification of your own. Over Streamable HTTP the modern era has none.

        Arguments, errors and cancellation are those of `BaseSession.send_notification`.
        """
        await self.session.send_notification(method, params)

    # --- notifications -------------------------------------------------------------------------------------------

    def _changed(self, kind: str, uri: str | None) -> None:
        """The server says that a list, or the resource of this URI, is another now."""
        if kind == "tools":
            self._output_schemas.forget()
        for hook in self._change_hooks:
            hook(kind, uri)

    async def _received(self, notification: Notification) -> None:
        if notification.method == "notifications/message" and self._on_log is not None:
            try:
                message = LoggingMessageNotificationParams.from_wire(notification.params or {})
            except ValidationError as exc:
                raise RemoteProtocolError(f"a malformed log message: {brief(exc)}") from None
            await call_back(self._on_log, message)
        if self._on_message is not None:
            await call_back(self._on_message, notification)


def check_log_level(level: object) -> None:
    """Refuse what is no level of `LoggingLevel`.

    Raises:
        ValueError: It is none.
    """
    levels = get_args(LoggingLevel)
    if level not in levels:
        raise ValueError(f"a log level must be one of {', '.join(levels)}; got {level!r}")
