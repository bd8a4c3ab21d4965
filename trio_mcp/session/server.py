"""The server's side of a session: serves both eras on one link, and checks what may be sent to the client."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

import trio

from trio_mcp.eras.capabilities import declares, is_spec_method
from trio_mcp.eras.server_negotiation import ClientDeclaration, LegacyServerEra, ServerIdentity, ServerNegotiation
from trio_mcp.errors import CapabilityError, LocalProtocolError
from trio_mcp.jsonrpc.events import IncomingRequest, RequestStarted
from trio_mcp.jsonrpc.messages import ErrorData, ErrorResponse, Notification, Request, Response, SessionMessage
from trio_mcp.session.handlers import RequestContext, incoming_of, run_handler
from trio_mcp.session.limits import SessionOptions
from trio_mcp.session.session import BaseSession
from trio_mcp.session.sink import SessionSink
from trio_mcp.types.error_codes import OVERLOADED
from trio_mcp.types.methods import method_spec

__all__ = ["INITIALIZED", "WATCHED", "ServerSession"]

INITIALIZED: Final = "initialized"
LOG_LEVEL: Final = "log level"
WATCHED: Final = "watched "
"""The fields of a session that several processes serve: see `ServerSession.fields`. The last one is a prefix, which the
topic of a watched resource follows."""


class ServerSession(BaseSession):
    """A session with a client. It responds to ``initialize``, ``server/discover`` and ``ping`` itself.

    Args:
        read: Where messages come from.
        write: Where messages go.
        identity: What the server declares about itself.
        options: Limits, timeouts and hooks.
        lasting: Whether messages can still reach the client after the response to its request.
    """

    def __init__(
        self,
        read: trio.abc.ReceiveChannel[SessionMessage] | None,
        write: trio.abc.SendChannel[SessionMessage] | SessionSink,
        identity: ServerIdentity,
        *,
        options: SessionOptions | None = None,
        lasting: bool = True,
    ) -> None:
        super().__init__(read, write, options=options)
        self.identity = identity
        self._negotiation = ServerNegotiation(identity)
        self._negotiation.lasting = lasting

    @property
    def client(self) -> ClientDeclaration | None:
        """The client's declaration in the handshake; None in the modern era, where each request has its own."""
        return self._negotiation.session

    @property
    def initialized(self) -> bool:
        """Whether the client has confirmed the handshake, so that requests may be sent to it."""
        return self._negotiation.initialized

    @property
    def lasting(self) -> bool:
        """Whether messages can still reach the client after a response; they can't over HTTP without sessions."""
        return self._negotiation.lasting

    def presume(self, revision: str) -> None:
        """Assume that the handshake has taken place, with a client that declared nothing."""
        # Over HTTP without sessions, legacy requests come without a handshake.
        self._negotiation.session = ClientDeclaration(LegacyServerEra(revision), None, {})
        self._negotiation.initialized = True
        self._peer.revision = revision

    # --- a session that several processes serve ------------------------------------------------------------------

    def declaration(self) -> dict[str, Any]:
        """Return what was agreed in the handshake, for `resume` in another process; it is plain JSON data."""
        client = self._negotiation.session
        assert client is not None
        return {
            "revision": client.revision,
            "clientInfo": client.client_info,
            "capabilities": client.capabilities,
            "declared": self._negotiation.declared,
        }

    def resume(self, declaration: Mapping[str, Any], first_id: int) -> None:
        """Go on with a session that another process has begun; called before `begin`.

        Args:
            declaration: What that process's `declaration` returned.
            first_id: The id of the first request to the client; no process may have used it, or a higher one.
        """
        negotiation = self._negotiation
        era = LegacyServerEra(declaration["revision"])
        negotiation.session = ClientDeclaration(era, declaration["clientInfo"], declaration["capabilities"])
        negotiation.declared = declaration["declared"]
        self._peer.revision = era.revision
        self.first_request_id(first_id)
        self._opened()

    def first_request_id(self, first_id: int) -> None:
        """Set the id of the first request to the client."""
        self._peer.next_id = first_id

    def roam(self) -> None:
        """Prepare for a session that several processes serve; called before the handshake or `resume`."""

    def fields(self) -> dict[str, bytes]:
        """Return what may change during the session, by name, for `take_fields` in other processes."""
        client, fields = self._negotiation.session, dict[str, bytes]()
        if self._negotiation.initialized:
            fields[INITIALIZED] = b""
        if client is not None and client.log_level is not None:
            fields[LOG_LEVEL] = client.log_level.encode()
        return fields

    def take_fields(self, fields: Mapping[str, bytes]) -> Collection[str]:
        """Replace what may change during the session by what another process has stored.

        Returns:
            The topics, as `Stores.announce` gets them, of which the client is notified only from now on.
        """
        negotiation = self._negotiation
        negotiation.initialized = INITIALIZED in fields
        if negotiation.session is not None:
            negotiation.session.log_level = fields[LOG_LEVEL].decode() if LOG_LEVEL in fields else None
        return ()

    def hear(self) -> Collection[str]:
        """Notify the client of changes from now on, as this process carries the session's messages.

        Returns:
            The topics of which it is notified.
        """
        return ()

    def tell(self, topics: Collection[str]) -> None:
        """Notify the client of changes that happened before `hear`."""

    def stop_hearing(self) -> bool:
        """Leave it to another process to notify the client; return whether the client knows of all changes so far."""
        return True

    # -------------------------------------------------------------------------------------------------------------

    async def initialize(self, request: Request, metadata: Mapping[str, Any]) -> Response | ErrorResponse:
        """Return the response to ``initialize``, the first request of a session without a link, without sending it."""
        await trio.lowlevel.checkpoint()
        # The caller sends the response, because over HTTP the response decides whether the session is kept, and carries
        # the session's id in a header.
        (started,) = self._peer.receive(request, metadata)
        assert isinstance(started, RequestStarted)
        answers: list[Any] = []
        context = self._handlers.begin(started.incoming, answers.append)
        if context is not None:  # the result first passes through middleware

            async def keep(incoming: IncomingRequest, outcome: dict[str, Any] | ErrorData) -> None:
                message = self._peer.answer(incoming, outcome)
                if message is not None:
                    answers.append(SessionMessage(message))

            started.incoming.scope = trio.CancelScope()
            with started.incoming.scope:
                await run_handler(context, self, self.options, keep)
        self._peer.finished(started.incoming)
        # There is no response if the session was closed in the meantime.
        if not answers:
            return ErrorResponse(request.id, ErrorData(OVERLOADED, f"the session was closed: {self._calls.lost}"))
        answer = answers[0].message
        assert isinstance(answer, (Response, ErrorResponse))
        return answer

    def intercept(self, context: RequestContext) -> dict[str, Any] | None:
        """Respond to ``initialize``, ``server/discover`` and ``ping`` at once; read the client's declaration in others.

        Raises:
            McpError: To refuse the request.
        """
        # This is not left to the handler's task, because the next request must already see the effect of initialize.
        negotiation, request = self._negotiation, incoming_of(context).request
        if request.method == "initialize":
            result = negotiation.initialize(request)
            assert negotiation.session is not None
            self._peer.revision = negotiation.session.revision
            self._opened()
            context.client = negotiation.session
            return result
        if request.method == "ping" and not context.meta and negotiation.session is None:
            return {}  # a legacy client may ping before the handshake is complete (`basic/lifecycle`)
        if context.client is None:  # otherwise this is a modern request over HTTP, whose declaration has been read
            context.client = negotiation.declaration(request)
        if request.method == "server/discover":
            return self.identity.discover(context.client)
        return {} if request.method == "ping" else None

    def _opened(self) -> None:
        """React to the handshake: a hook, called when ``initialize`` has its result, before the client confirms it."""

    def _note(self, notification: Notification) -> None:
        # Before ``initialize`` there is nothing for this notification to confirm, so it is ignored.
        if notification.method == "notifications/initialized" and self._negotiation.session is not None:
            self._negotiation.initialized = True

    def _check_outgoing(self, method: str) -> None:
        client = self.client
        # A modern client accepts only messages that belong to one of its requests, and these are sent through
        # `RequestContext`.
        if client is None:
            if not is_spec_method(method):
                return
            raise LocalProtocolError(
                f"{method!r} can't be sent outside a request: a client accepts that only if it opened the session with "
                "the handshake"
            )
        spec = method_spec(client.revision, method)
        if spec is None or "server" not in spec.senders:
            # A method that no revision defines is an application's own, and is not checked.
            if is_spec_method(method):
                raise LocalProtocolError(
                    f"{method!r} is not a method of revision {client.revision} that a server may send"
                )
            return
        # Before the client has confirmed the handshake, only pings and log messages should be sent (2025-11-25
        # `basic/lifecycle`, Initialization).
        if spec.is_request and method != "ping" and not self.initialized:
            raise LocalProtocolError(f"{method!r} can't be sent before the client has confirmed the handshake")
        if spec.is_request and spec.client_capability and not declares(client.capabilities, spec.client_capability):
            raise CapabilityError(method, spec.client_capability, "client")
        # The client relies on the capabilities that were declared in the handshake. The server may have others now, for
        # example because tools have been added.
        if (
            not spec.is_request
            and spec.server_capability
            and not declares(self._negotiation.declared, spec.server_capability)
        ):
            raise CapabilityError(method, spec.server_capability, "server")
