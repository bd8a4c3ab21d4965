"""Open, negotiate and close a client's connection as one block, and send requests over it."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any

import trio
from pydantic import BaseModel, ValidationError

from trio_mcp import _attrs as attrs
from trio_mcp._log import logger
from trio_mcp._nursery import background_nursery, start
from trio_mcp.client.answers.sources import InputSources
from trio_mcp.client.failover.link import FailoverConnector
from trio_mcp.client.failover.parameters import TransportStatus, WayStatus
from trio_mcp.client.failover.router import WriteEnd
from trio_mcp.client.options import ClientOptions
from trio_mcp.client.subscriptions import NOTICES, Subscriptions
from trio_mcp.client.targets import HttpConnector, Target, auths_of, is_over_http, link_factory, target_name
from trio_mcp.convert import as_object, brief, call_back
from trio_mcp.eras.capabilities import checked_extensions, declares
from trio_mcp.errors import LocalProtocolError, NegotiationError, ProcessExited, RemoteProtocolError, TransportError
from trio_mcp.http.client.auth import extensions_of, guard_of
from trio_mcp.jsonrpc.messages import Notification
from trio_mcp.link import HeaderLink, Link
from trio_mcp.session.calls import CallLimits
from trio_mcp.session.client import ClientSession
from trio_mcp.session.limits import CallOptions, SessionOptions
from trio_mcp.session.middleware import NO_LAYERS, CallNext, Layers, OutgoingCall, Surround, surround
from trio_mcp.stdio.probing import PROBING, Probing
from trio_mcp.stopwatch import STOPWATCH, Stopwatch
from trio_mcp.types.notices import LoggingMessageNotificationParams
from trio_mcp.types.versions import LEGACY_REVISIONS

if TYPE_CHECKING:  # most clients have no extensions, so the module is loaded late
    from trio_mcp.client.extension import ClientExtensions

__all__ = ["ClientConnection", "merged"]

CONNECT_TIMEOUT = 30.0
"""Seconds that connecting may take by default. It is generous, as a server's first start may install packages."""


class ClientConnection:
    """The connection of a `Client` to its server, from opening to closing.

    Args:
        target: The client's target.
        settings: All other arguments of the client.
        options: The options of the client's session.
        inputs: The callbacks that answer the server's questions.
        subscriptions: Where the server's notifications of changes go.

    Attributes:
        inputs: The callbacks that answer the server's questions.
        extensions: The client's extensions; None if it has none.
        is_for_one_request: Whether its ``auth=`` signs only for the request of a server in which it was made.
        stopwatch: The clock for all time limits of the connection.
    """

    def __init__(
        self,
        target: Target,
        settings: ClientOptions,
        *,
        options: SessionOptions,
        inputs: InputSources,
        subscriptions: Subscriptions,
    ) -> None:
        self.inputs = inputs
        self.stopwatch = Stopwatch()
        self._subscriptions = subscriptions
        # All arguments are checked in the constructor, so that entering the client fails only for reasons outside the
        # program.
        given = settings["capabilities"]
        self._capabilities = {} if given is None else dict(as_object(given, "capabilities"))
        if "extensions" in self._capabilities:
            self._capabilities["extensions"] = checked_extensions(self._capabilities["extensions"], "client")
        self.extensions = _extensions_of(settings, self._capabilities, options)
        if options.calls.result_types and self.extensions is None and not self._capabilities.get("extensions"):
            raise ValueError(
                'result_types are only for extensions that the client declares: pass capabilities={"extensions": …} too'
            )
        self._open_link = link_factory(target)
        self._of_auth: dict[str, Any] = {}
        guards = []
        for auth in auths_of(target):
            self._of_auth |= extensions_of(auth)
            if (guard := guard_of(auth)) is not None:
                guards.append(guard())
        self.is_for_one_request = bool(guards)
        self._mode = settings["mode"]
        self._client_info = settings["client_info"]
        self._limit, self._patience = _limit_of_connecting(
            options.calls, several=isinstance(self._open_link, FailoverConnector)
        )
        # The probe may take at most half of the time for connecting. If a server ignores it, as some legacy servers do,
        # the other half is left for the handshake.
        probing = min(options.calls.probe_timeout, self._patience / 2)
        self._options = attrs.evolve(options, calls=attrs.evolve(options.calls, probe_timeout=probing))
        self._log_level = settings["log_level"]
        self._on_log, self._on_message = settings["on_log"], settings["on_message"]
        middleware = (
            settings["middleware"] if self.extensions is None else self.extensions.around(settings["middleware"])
        )
        self._middleware = (*guards, *Layers.with_functions(middleware, "send_request"))
        self._layers = Layers.of(middleware)
        self._request_headers = settings["request_headers"]
        if self._request_headers is not None and settings["cache"] is not None:
            raise ValueError("request_headers and cache exclude each other: a result may be for its own headers only")
        self._handlers: Mapping[str, Callable[[Notification], Any]] = {}
        self._filters_for: Mapping[str, set[str]] = {}
        self._running: list[Callable[[], Awaitable[None]]] = []
        self._target_name = target_name(target)
        self._over_http = is_over_http(self._open_link)
        self._ways: Callable[[], TransportStatus] | None = None
        self._session: ClientSession | None = None
        self._scope = trio.CancelScope()
        self._entered = False
        self._stop = trio.Event()
        self._ended = trio.Event()

    # --- lifetime ------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def opened(self) -> AsyncIterator[None]:
        """Stay connected while the block runs."""
        self._entered = True
        async with background_nursery(self.aclose) as nursery:
            # A background task enters the context managers. If the caller's task entered them, only that task could
            # close them, and only in the order of their nesting.
            await start(nursery, self._stay_connected)
            yield

    async def _stay_connected(self, task_status: trio.TaskStatus[None]) -> None:
        """Run the whole connection in one task, so that any other task can close it at any time."""
        session: ClientSession | None = None
        # This task and the tasks that it starts use `self.stopwatch` for all of the client's time limits.
        STOPWATCH.set(self.stopwatch)
        probing = Probing()
        PROBING.set(probing if self._mode == "auto" else None)
        if self.extensions is not None:
            from trio_mcp.http.client.heads import ADDED_NAMES

            ADDED_NAMES.set(self.extensions.header_names)
        try:
            with self._scope:
                # One deadline covers starting the process, connecting and negotiating. It is lifted once the session is
                # negotiated.
                with self.stopwatch.limit(self._patience) as connecting:
                    async with self._open_link() as link:
                        if isinstance(link.write, WriteEnd):
                            self._ways = link.write.status
                        session = self._make_session(link)
                        session.on_notification = self._received
                        session.on_notice = partial(self._noticed, session)
                        session.while_probing = probing.asking
                        if self.extensions is not None:
                            session.additions_in = self.extensions.additions_in
                        if self._over_http or isinstance(link, HeaderLink):
                            session.carry_headers(self._request_headers)
                        elif self._request_headers is not None:
                            raise LocalProtocolError(
                                f"request_headers are only for servers reached over HTTP, not {self._target_name!r}"
                            )
                        if self._ways is not None:
                            session.max_faults = inf  # each way to the server has its own limit, and fails alone
                        # The client's callbacks are attached before the session reads anything: a legacy server may
                        # send requests as soon as it is initialized.
                        self.inputs.attach(session)
                        async with session:
                            try:
                                await self._negotiate(session)
                            except ProcessExited as exc:
                                exc.answered = False
                                raise
                            probing.end(legacy=not session.modern)
                            # Once the session is negotiated, only its own timeouts apply.
                            connecting.deadline = inf
                            # The session is made available to calls only after the negotiation, because calls need the
                            # negotiated revision.
                            self._session = session
                            for run in self._running:
                                session.start_soon(_run_extension, run)
                            task_status.started()
                            await self._stop.wait()
                # At this point the link has been closed, and the process, if there is one, has ended.
                if connecting.cancelled_caught:
                    raise TransportError(self._no_answer(session))
        finally:
            probing.end()
            # The event is set even if connecting failed, because a concurrent `aclose` may be waiting for it.
            self._ended.set()

    def _make_session(self, link: Link) -> ClientSession:
        make: Callable[..., ClientSession] = ClientSession
        if self._layers != NO_LAYERS:
            from trio_mcp.client.layered_session import LayeredSession  # deferred: few clients have such middleware

            make = partial(LayeredSession, self._layers)
        return make(
            *link,
            client_info=self._client_info,
            capabilities=self._declared,
            options=self._options,
            log_level=self._log_level,
        )

    def _declared(self, revision: str) -> dict[str, Any]:
        """Return the capabilities that the client declares in a protocol revision."""
        given = merged(self.inputs.capabilities(revision), self._capabilities)
        own = {} if self.extensions is None else self.extensions.settings_in(revision)
        added = {**self._of_auth, **own}
        return merged({"extensions": added}, given) if added else given

    def attach(self, client: Any, access: Any) -> None:
        """Attach the client's extensions to it."""
        assert self.extensions is not None
        self._handlers = {name: partial(handle, client) for name, handle in self.extensions.handlers.items()}
        self._filters_for = self.extensions.filters_for
        self._running = [partial(run, client) for run in self.extensions.running]
        self.extensions.attach(client, access)

    async def _negotiate(self, session: ClientSession) -> None:
        # The requests of the negotiation have no timeouts of their own, so that a slow server may use all of the time
        # that connecting may take.
        if self._mode == "auto":
            # A server known to be legacy is not probed: the probe would cost a round trip, or a timeout.
            known = isinstance(self._open_link, HttpConnector) and self._open_link.is_legacy
            await session.negotiate(handshake_first=known, timeout=None)
        elif self._mode == "legacy":
            await session.initialize(timeout=None)
        elif self._mode in LEGACY_REVISIONS:
            server = await session.initialize(self._mode, timeout=None)
            # `initialize` only proposes a revision; the server may choose another one.
            if server.revision != self._mode:
                raise NegotiationError(
                    f"mode={self._mode!r} requires that revision, but the server chose {server.revision!r}",
                    (server.revision,),
                )
        else:
            await session.discover(self._mode, timeout=None)
        # In the modern era, `logging/setLevel` is not sent, because each request states the level in its `_meta`.
        if self._log_level is not None and not session.modern and declares(session.server.capabilities, "logging"):
            method, params = "logging/setLevel", {"level": self._log_level}
            await self._send_through(self._layers.send_request, session, method, params, {"timeout": None})

    def _no_answer(self, session: ClientSession | None) -> str:
        text = f"the server did not complete the connection within {self._limit}={self._patience:g} seconds"
        if session is not None and session.last_fault is not None:
            text += f"; what it sent was not MCP: {session.last_fault}"
        return text + "; is it an MCP server, and was it started the right way?"

    async def aclose(self) -> None:
        """Close the connection; see `Client.aclose`."""
        if not self._entered:
            await trio.lowlevel.checkpoint()
            return
        # Any task may close the client, so this method asks the background task to close the connection, and does not
        # cancel the caller's block.
        self._stop.set()
        try:
            await self._ended.wait()
        # The caller has stopped waiting for a graceful close, so the background task is cancelled. It unwinds by
        # itself.
        except trio.Cancelled:
            self._scope.cancel("the client is closed")
            raise

    @property
    def transport(self) -> TransportStatus:
        """The status of the ways to the server, one or several; see `Client.transport`."""
        if self._ways is not None:
            return self._ways()
        session = self._session
        if session is None:
            return TransportStatus((WayStatus(self._target_name, "idle"),))
        cause = session.close_cause
        return TransportStatus((WayStatus(self._target_name, "carrying" if cause is None else "failed", cause),))

    @property
    def is_open(self) -> bool:
        """Whether the session has been opened; it stays True after the session has ended."""
        return self._session is not None

    @property
    def session(self) -> ClientSession:
        """The session that the connection has opened.

        Raises:
            LocalProtocolError: If the client has not been entered.
        """
        if self._session is None:
            raise LocalProtocolError("the client is not connected: use it as `async with Client(...) as client:`")
        return self._session

    # --- requests ------------------------------------------------------------------------------------------------

    async def request(
        self, method: str, params: BaseModel | Mapping[str, Any] | None, limits: CallLimits
    ) -> dict[str, Any]:
        """Send a request of any method through the middleware; see `Client.request`."""
        # The attribute is tried before the property, which saves the property's check on every request.
        session = self._session or self.session
        if not self._middleware:
            # Without middleware, which is the usual case, no other coroutine is needed.
            return await session.send_request(method, params, **limits)
        return await self._send_through(self._middleware, session, method, params, limits)

    async def _send_through(
        self,
        layers: Sequence[Surround],
        session: ClientSession,
        method: str,
        params: BaseModel | Mapping[str, Any] | None,
        limits: CallLimits,
    ) -> dict[str, Any]:
        plain = {} if params is None else dict(as_object(params, "params"))
        # The call gets its own copy of the parameters, because a middleware may change them in place.
        call = OutgoingCall(method, plain, session.server.revision)

        async def send() -> dict[str, Any]:
            # There must be no checkpoint before `send_request` takes the id, or another call could take the same one.
            call.request_id = session.next_request_id
            before = None if self._ways is None else self._ways()
            try:
                return await session.send_request(call.method, call.params, **limits)
            finally:
                if self._ways is not None and before is not None:
                    now = self._ways()
                    call.way, call.switches = now.carrier, now.switches - before.switches

        # A middleware may respond without any checkpoint. So a call in a cancelled scope has to be cancelled before the
        # middleware takes effect.
        await trio.lowlevel.checkpoint_if_cancelled()
        result = await surround(layers, call, send)
        if call.request_id is None:  # a middleware responded itself, perhaps without a checkpoint
            # The checkpoint is shielded, as the middleware has taken effect and its result must not be lost
            # (docs/design.md, rule 11).
            await trio.lowlevel.cancel_shielded_checkpoint()
        return result

    def is_apart(self, limits: CallLimits) -> bool:
        """Return whether a call may have HTTP headers of its own, so that its result may not be for other calls."""
        return self._request_headers is not None or limits.get("headers") is not None

    def through(self, call: OutgoingCall, send: CallNext) -> Awaitable[dict[str, Any]]:
        """Send a call through the middleware, with a function that sends it."""
        return surround(self._middleware, call, send) if self._middleware else send()

    def prepare(self, key: str, method: str, params: Any) -> Callable[[], Awaitable[dict[str, Any]]]:
        """Check a question in a result; return the function that gets the answer, through the middleware.

        Raises:
            RemoteProtocolError: As `InputSources.prepare` raises it.
        """
        session, layers = self.session, self._layers.handle_request
        get_answer = self.inputs.prepare(session.server.revision, method, params)
        if not layers:
            return get_answer
        from trio_mcp.client.layered_session import question_context

        context = question_context(session, key, method, params)

        async def last() -> dict[str, Any]:
            # A middleware may have replaced the parameters, so they are checked again.
            return await self.inputs.prepare(session.server.revision, method, context.params)()

        async def answer() -> dict[str, Any]:
            with context.cancel_scope:
                return await surround(layers, context, last)
            raise LocalProtocolError(f"a middleware cancelled the server's {method!r}")

        return answer

    def _noticed(self, session: ClientSession, notification: Notification) -> None:
        method = notification.method
        if method in NOTICES:
            self._subscriptions.note(notification, modern=session.modern)
        elif method in self._filters_for and session.modern:
            self._subscriptions.note_added(notification, self._filters_for[method])

    async def _received(self, notification: Notification) -> None:
        # The session's notification task runs this method, so a slow callback delays the next notification, and for a
        # while also the calls whose responses came after this notification (docs/explanation/sessions.md).
        if notification.method == "notifications/message" and self._on_log is not None:
            try:
                message = LoggingMessageNotificationParams.from_wire(notification.params or {})
            except ValidationError as exc:
                raise RemoteProtocolError(f"the server sent a malformed log message: {brief(exc)}") from None
            await call_back(self._on_log, message)
        if notification.method in self._handlers:
            await call_back(self._handlers[notification.method], notification)
        if self._on_message is not None:
            await call_back(self._on_message, notification)


def _extensions_of(
    settings: ClientOptions, capabilities: Mapping[str, Any], options: SessionOptions
) -> ClientExtensions | None:
    given = settings["extensions"]
    if isinstance(given, (tuple, list, Mapping)) and not given:
        return None
    from trio_mcp.client.extension import ClientExtensions

    return ClientExtensions(given, capabilities.get("extensions", {}), options.calls.result_types)


async def _run_extension(run: Callable[[], Awaitable[None]]) -> None:
    try:
        await run()
    except Exception:
        # The failure of an extension must not end the session, which all other calls depend on.
        logger.exception("the task of an extension failed")


def _limit_of_connecting(calls: CallOptions, *, several: bool) -> tuple[str, float]:
    """Return the name and value, in seconds, of the option that limits the time to connect.

    Args:
        calls: The options of the client's calls.
        several: Whether there are several ways to reach the server.
    """
    if calls.connect_timeout is not None:
        return "connect_timeout", calls.connect_timeout
    # A caller with a short `timeout` for a response does not want to wait longer than that for a server that never
    # starts. A long `timeout` says that a tool is slow, and nothing about the start. A client with several ways to its
    # server needs time to give up on the first one, and each way has its own limits, so `timeout` does not apply to it.
    if calls.timeout is not None and calls.timeout < CONNECT_TIMEOUT and not several:
        return "timeout", calls.timeout
    return "connect_timeout", CONNECT_TIMEOUT


def merged(*parts: Mapping[str, Any]) -> dict[str, Any]:
    """Merge capabilities: objects are merged recursively; if any other value is given twice, the later one is kept."""
    whole: dict[str, Any] = {}
    for part in parts:
        for name, value in part.items():
            known = whole.get(name)
            both = isinstance(value, Mapping) and isinstance(known, Mapping)
            # For example, `{"elicitation": {"form": {}}}` and `{"elicitation": {"url": {}}}` together declare both
            # modes.
            whole[name] = merged(known, value) if both else value  # type: ignore[arg-type]
    return whole
