"""The client's side of a session: opens the session in either era, and checks what may be sent to the server."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NoReturn

import trio

from trio_mcp import _attrs as attrs
from trio_mcp._checks import check_choice
from trio_mcp._version import __version__
from trio_mcp.eras.capabilities import declares, is_spec_method
from trio_mcp.eras.client_negotiation import (
    NO_ADDITIONS,
    RESULT_TYPES,
    Additions,
    ModernClientEra,
    ServerDeclaration,
    modern_choice,
    read_discover_result,
    read_initialize_result,
    supported_by,
)
from trio_mcp.errors import (
    CapabilityError,
    HttpError,
    LocalProtocolError,
    McpError,
    NegotiationError,
    RemoteProtocolError,
    RequestTimeout,
)
from trio_mcp.jsonrpc.events import OutgoingRequest
from trio_mcp.jsonrpc.messages import Notification, SessionMessage
from trio_mcp.session.calls import UNLIMITED, USE_SESSION, Limit, Limits, lowered
from trio_mcp.session.limits import SessionOptions
from trio_mcp.session.session import BaseSession
from trio_mcp.types.common import Implementation, LoggingLevel
from trio_mcp.types.methods import facts_of, method_spec
from trio_mcp.types.versions import LATEST_LEGACY, LATEST_MODERN, LEGACY_REVISIONS, MODERN_REVISIONS

__all__ = ["ClientSession"]


class ClientSession(BaseSession):
    """A session with a server. Open it with `initialize`, `discover` or `negotiate` before anything else.

    Args:
        read: Where messages come from.
        write: Where messages go.
        client_info: The name and version that the client declares; by default this library's.
        capabilities: The client capabilities to declare, as plain JSON data, or a function that returns them for a
            revision.
        options: Limits, timeouts and hooks.
        log_level: The least severe level of log messages that each request asks for (modern era only).

    Attributes:
        on_notification: Called with each notification, unless `received_notification` is overridden; None to call
            nothing.
        on_notice: Called with each notification before the next message is read, and so before any result that arrived
            after the notification. The function must not wait. A RemoteProtocolError that it raises is reported like
            any other fault of the server.
        additions_in: Returns the methods and result types that extensions add to a revision of the modern era.
        while_probing: Returns a context manager that surrounds each ``server/discover`` sent to find out the era.
        last_fault: The last fault of the server that belongs to no request.
    """

    on_notification: Callable[[Notification], Awaitable[None]] | None = None
    on_notice: Callable[[Notification], object] | None = None
    additions_in: Callable[[str], Additions] = staticmethod(lambda revision: NO_ADDITIONS)
    while_probing: Callable[[], AbstractContextManager[object]] = nullcontext
    last_fault: RemoteProtocolError | None = None
    _is_client = True
    _carries_headers = False

    def __init__(
        self,
        read: trio.abc.ReceiveChannel[SessionMessage],
        write: trio.abc.SendChannel[SessionMessage],
        *,
        client_info: Implementation | None = None,
        capabilities: dict[str, Any] | Callable[[str], dict[str, Any]] | None = None,
        options: SessionOptions | None = None,
        log_level: LoggingLevel | None = None,
    ) -> None:
        super().__init__(read, write, options=options)
        self._client_info = (client_info or Implementation(name="trio_mcp", version=__version__)).to_wire()
        fixed = {} if capabilities is None or callable(capabilities) else capabilities
        self._capabilities_in = capabilities if callable(capabilities) else lambda revision: fixed
        self._log_level = log_level
        self._server: ServerDeclaration | None = None
        # A method that was allowed once is always allowed, because the server's revision and capabilities don't change.
        self._allowed: set[str] = set()

    @property
    def server(self) -> ServerDeclaration:
        """The server's declaration about itself, such as its name and its capabilities.

        Raises:
            LocalProtocolError: If the session is not open yet.
        """
        if self._server is None:
            raise LocalProtocolError("the session is not open yet: call initialize(), discover() or negotiate() first")
        return self._server

    @property
    def modern(self) -> bool:
        """Whether the session has been opened in the modern era."""
        return self._era is not None

    async def initialize(self, revision: str = LATEST_LEGACY, *, timeout: Limit = USE_SESSION) -> ServerDeclaration:
        """Open the session with the handshake of the legacy era.

        Args:
            revision: The revision to offer; the server may choose another.
            timeout: Seconds to wait for the response.

        Raises:
            NegotiationError: If the server chooses a revision that this client does not support.
            McpError: If the server refuses the handshake.
        """
        check_choice("revision", revision, LEGACY_REVISIONS)
        self._not_open()
        params = {
            "protocolVersion": revision,
            "capabilities": self._capabilities_in(revision),
            "clientInfo": self._client_info,
        }
        server = read_initialize_result(await self.send_request("initialize", params, timeout=timeout))
        # The session is opened before the notification is sent, because the server's first request may follow the
        # notification at once.
        self._open(None, server)
        try:
            await self.send_notification("notifications/initialized")
        except BaseException:
            # The notification was not sent, so the server is still waiting for it: the session is not open, and opening
            # it may be retried.
            self._server = None
            raise
        return server

    async def discover(self, revision: str = LATEST_MODERN, *, timeout: Limit = USE_SESSION) -> ServerDeclaration:
        """Open the session in the modern era: ask the server for its revisions and choose one.

        Args:
            revision: The revision of the ``server/discover`` request.
            timeout: Seconds to wait for the response.

        Raises:
            NegotiationError: If the server serves no modern revision that this client supports.
            McpError: If the server refuses, for example because it has no method ``server/discover``.
        """
        check_choice("revision", revision, MODERN_REVISIONS)
        self._not_open()
        # The revision applies even before the response, because a client of the modern era must not respond to any
        # requests.
        self._peer.revision = revision
        try:
            supported, server = await self._probe(revision, timeout)
            chosen = modern_choice(supported)
            if server is None or chosen is None:
                raise NegotiationError("the server serves no modern revision that this client speaks", tuple(supported))
        except BaseException:
            self._peer.revision = None
            raise
        return self._open(self._modern_era(chosen), attrs.evolve(server, revision=chosen))

    async def negotiate(self, *, handshake_first: bool = False, timeout: Limit = USE_SESSION) -> ServerDeclaration:
        """Open the session in the modern era if the server supports it, otherwise in the legacy era.

        This method sends ``server/discover`` first (`basic/transports/stdio`, Backward Compatibility). If there is no
        modern response within the options' ``probe_timeout``, the server is assumed to be a legacy one, and gets the
        handshake. Over HTTP, a status that proves neither era (401, 429, 500) is an error.

        Args:
            handshake_first: Whether to begin with the handshake, for a server that is known to be a legacy one.
            timeout: Seconds to wait for the response to the handshake.

        Raises:
            NegotiationError: If there is no revision that both sides support.
            McpError: If the server refuses the handshake.
            HttpError: If the HTTP response is an error that proves neither era.
        """
        self._not_open()
        revision = LATEST_MODERN
        supported = list(LEGACY_REVISIONS)
        # There are at most two probes: a server that refuses the first one's revision names those that it supports, and
        # the second probe uses one of these.
        for _ in range(0 if handshake_first else 2):
            try:
                supported, server = await self._probe(revision, self.options.calls.probe_timeout)
            except (RequestTimeout, HttpError) as exc:
                # A timeout counts as a sign of the legacy era, because some legacy servers never respond to a request
                # with an unknown method. Any other trouble with HTTP says nothing about the era, and the handshake
                # would only hide it.
                if isinstance(exc, HttpError) and exc.trouble != "not_modern":
                    raise
                supported, server = list(LEGACY_REVISIONS), None
            except McpError as exc:
                named = supported_by(exc)
                supported, server = list(LEGACY_REVISIONS) if named is None else named, None
            chosen = modern_choice(supported)
            if server is not None and chosen is not None:
                return self._open(self._modern_era(chosen), attrs.evolve(server, revision=chosen))
            if chosen is None:
                break
            # The server may just have refused this very revision. But it lists the revision as supported, so the
            # revision is tried again.
            revision = chosen
        # A modern response may have listed the server's revisions. The handshake is possible only if there is a legacy
        # one among them.
        if not any(candidate in LEGACY_REVISIONS for candidate in supported):
            served = ", ".join(each[:100] for each in supported[:20]) or "no revision that it names"
            text = ", but refuses it" if modern_choice(supported) else "; this client speaks none of these"
            raise NegotiationError(f"the server serves {served}{text}", tuple(supported))
        try:
            return await self.initialize(timeout=timeout)
        except McpError as exc:
            # The probe may have timed out although the server is modern. In that case the error lists a modern
            # revision, and the client sends `server/discover` again. A server that was a legacy one may be modern now
            # without saying so.
            refusal, named = exc, supported_by(exc)
        says_modern = named is not None and modern_choice(named) is not None
        if not (says_modern or handshake_first):
            raise refusal
        try:
            return await self.discover(timeout=timeout)
        except (McpError, HttpError):
            if says_modern:
                raise
        raise refusal

    async def _probe(self, revision: str, timeout: Limit) -> tuple[list[str], ServerDeclaration | None]:
        params = self._modern_era(revision).request_params(None)
        with self.while_probing():
            answer = read_discover_result(await self.send_request("server/discover", params, timeout=timeout))
        # A legacy server may give any response to an unknown method, so only a valid result proves that the server is
        # modern.
        return (list(LEGACY_REVISIONS), None) if answer is None else answer

    def _modern_era(self, revision: str) -> ModernClientEra:
        return ModernClientEra(
            revision,
            self._client_info,
            self._capabilities_in(revision),
            log_level=self._log_level,
            result_types=RESULT_TYPES | self.options.calls.result_types,
            added_types=self.additions_in(revision).result_types,
        )

    def _not_open(self) -> None:
        if self._server is not None:
            raise LocalProtocolError(f"the session is already open, with revision {self._server.revision}")

    def _open(self, era: ModernClientEra | None, server: ServerDeclaration) -> ServerDeclaration:
        # The peer needs to know the revision, because batches and requests from the server exist in some revisions
        # only.
        self._era, self._server = era, server
        if era is not None:
            self._allowed |= self.additions_in(era.revision).methods
        self._peer.revision = server.revision
        return server

    async def ping(self, *, timeout: Limit = USE_SESSION) -> None:
        """Check that the server responds: with ``ping``, or ``server/discover`` in the modern era, which has no ping.

        Errors and cancellation are as in `send_request`.
        """
        await self.send_request("ping" if self._era is None else "server/discover", timeout=timeout)

    async def ask(
        self,
        method: str,
        params: dict[str, Any],
        opened: Callable[[OutgoingRequest], None],
        limits: Limits = UNLIMITED,
    ) -> dict[str, Any]:
        """Send a request whose id the caller needs to know, and wait for its result.

        Notifications that belong to a ``subscriptions/listen`` request carry its id, and the first of them may arrive
        before `send_request` could return the id.

        Args:
            method: The method.
            params: Its parameters.
            opened: Called with the request once its id is known, before it is sent.
            limits: The limits of the call; by default none, so the request may stay open forever.

        Errors and cancellation are those of `BaseSession.send_request`.
        """
        if limits.headers is not None or self._headers_for is not None:
            limits = self._with_headers(method, limits)
        self._check_outgoing(method)
        return await self._call(method, params, limits, opened=opened)

    def set_log_level(self, level: LoggingLevel | None) -> None:
        """Make every later request ask for log messages at a level; None asks for none (modern era only)."""
        self._log_level = level
        if self._era is not None:
            self._era = attrs.evolve(self._era, log_level=level)  # `_era` adds the log level to each request

    def carry_headers(self, headers_for: Callable[[str], Mapping[str, str] | None] | None = None) -> None:
        """Let requests have HTTP header fields of their own, because the link is one of `streamable_http_client`.

        Args:
            headers_for: Called with the method of each request, in the task that sends it; returns header fields for
                it, or None. Those that a caller gives replace them by name.
        """
        self._carries_headers, self._headers_for = True, headers_for

    # --- the life of the session ----------------------------------------------------------------------------------

    def start_soon(self, function: Callable[..., Awaitable[object]], *arguments: object) -> bool:
        """Run a function in a task that ends with the session; return False if the session has ended.

        This method is for work that outlives the block that starts it, such as telling the server that a subscription
        has ended.
        """
        if self.closed or self._nursery is None:
            return False
        self._nursery.start_soon(function, *arguments)
        return True

    async def raise_loss(self) -> NoReturn:
        """Wait until the session can make no more calls, then raise the exception that every call would raise.

        This method is for a task that depends on the session while no call is under way, such as one that waits for
        notifications: `wait_closed` returns only later, and without the reason.
        """
        await self._calls.wait_lost()
        self._calls.check_open()
        raise AssertionError("a session that is lost has a reason")

    # --- hooks ----------------------------------------------------------------------------------------------------

    async def received_notification(self, notification: Notification) -> None:
        if self.on_notification is not None:
            await self.on_notification(notification)

    async def received_error(self, error: RemoteProtocolError) -> None:
        self.last_fault = error
        await super().received_error(error)

    def _note(self, notification: Notification) -> None:
        if self.on_notice is not None:
            try:
                self.on_notice(notification)
            except RemoteProtocolError as exc:
                # A notification that comes out of order is reported as a fault, and has no other effect.
                self._notices.put(exc)

    def _with_headers(self, method: str, limits: Limits) -> Limits:
        if not self._carries_headers:
            return super()._with_headers(method, limits)
        given = None if self._headers_for is None else self._headers_for(method)
        if given is None:
            return limits
        return attrs.evolve(limits, headers={**(lowered(given) or {}), **(limits.headers or {})} or None)

    def _check_outgoing(self, method: str) -> None:
        if self._server is None:
            if not facts_of(method).opening:
                raise LocalProtocolError(f"{method!r} can't be sent before initialize(), discover() or negotiate()")
            return
        spec = method_spec(self._server.revision, method)
        if spec is None or "client" not in spec.senders:
            # A method that no revision defines is an application's own, and is not checked.
            if is_spec_method(method):
                raise LocalProtocolError(
                    f"{method!r} is not a method of revision {self._server.revision} that a client may send"
                )
            return
        if (
            spec.is_request
            and spec.server_capability
            and not declares(self._server.capabilities, spec.server_capability)
        ):
            raise CapabilityError(method, spec.server_capability, "server")
        if (
            not spec.is_request
            and spec.client_capability
            and not declares(self._capabilities_in(self._server.revision), spec.client_capability)
        ):
            raise CapabilityError(method, spec.client_capability, "client")
        self._allowed.add(method)
