"""The client's side of a session: opening it in either era, and what may be asked of the server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import trio

from trio_mcp._version import __version__
from trio_mcp.eras.capabilities import declares, is_spec_method
from trio_mcp.eras.client_negotiation import (
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
from trio_mcp.jsonrpc.messages import SessionMessage
from trio_mcp.session.calls import USE_SESSION, Limit
from trio_mcp.session.limits import SessionOptions
from trio_mcp.session.session import BaseSession
from trio_mcp.types.common import Implementation
from trio_mcp.types.methods import facts_of, method_spec
from trio_mcp.types.versions import LATEST_LEGACY, LATEST_MODERN, LEGACY_REVISIONS, MODERN_REVISIONS

__all__ = ["ClientSession"]


class ClientSession(BaseSession):
    """One link to a server. Open it with `initialize`, `discover` or `negotiate` before anything else.

    Args:
        read: Where messages come from.
        write: Where messages go.
        client_info: What the client says of itself.
        capabilities: The client capabilities to declare, as plain JSON data; or a function that gives those of a
            revision.
        options: Limits, timeouts and hooks.
        on_error: As in `BaseSession`.
    """

    def __init__(
        self,
        read: trio.abc.ReceiveChannel[SessionMessage],
        write: trio.abc.SendChannel[SessionMessage],
        *,
        client_info: Implementation | None = None,
        capabilities: dict[str, Any] | Callable[[str], dict[str, Any]] | None = None,
        options: SessionOptions | None = None,
        on_error: Callable[[RemoteProtocolError], object] | None = None,
    ) -> None:
        super().__init__(read, write, options=options, on_error=on_error)
        info = client_info or Implementation(name="trio_mcp", version=__version__)
        self._client_info = info.to_wire()
        fixed = {} if capabilities is None or callable(capabilities) else capabilities
        self._capabilities_in = capabilities if callable(capabilities) else lambda revision: fixed
        self._server: ServerDeclaration | None = None
        self._allowed: set[str] = set()  # methods of the specification that have been found in order

    @property
    def server(self) -> ServerDeclaration:
        """What the server has said of itself.

        Raises:
            LocalProtocolError: The session is not open yet.
        """
        if self._server is None:
            raise LocalProtocolError("the session is not open yet: call initialize(), discover() or negotiate() first")
        return self._server

    async def initialize(self, revision: str = LATEST_LEGACY, *, timeout: Limit = USE_SESSION) -> ServerDeclaration:
        """Open the session with the handshake of the legacy era.

        Args:
            revision: The revision to offer; the server may answer with another.
            timeout: Seconds to wait for the answer.

        Raises:
            NegotiationError: The server speaks no revision that this client speaks.
            McpError: The server refused.
        """
        if revision not in LEGACY_REVISIONS:
            raise ValueError(f"revision must be one of {', '.join(LEGACY_REVISIONS)}, got {revision!r}")
        self._not_open()
        declared = self._capabilities_in(revision)
        params = {"protocolVersion": revision, "capabilities": declared, "clientInfo": self._client_info}
        server = read_initialize_result(await self.send_request("initialize", params, timeout=timeout))
        self._open(None, server)
        try:
            await self.send_notification("notifications/initialized")
        except BaseException:
            self._server = None  # the server does not know that it is open
            raise
        return server

    async def discover(self, revision: str = LATEST_MODERN, *, timeout: Limit = USE_SESSION) -> ServerDeclaration:
        """Open the session in the modern era: ask what the server supports and settle for a revision.

        Args:
            revision: The revision to ask with.
            timeout: Seconds to wait for the answer.

        Raises:
            NegotiationError: The server serves no modern revision that this client speaks.
            McpError: The server refused, for example because it knows no ``server/discover``.
        """
        if revision not in MODERN_REVISIONS:
            raise ValueError(f"revision must be one of {', '.join(MODERN_REVISIONS)}, got {revision!r}")
        self._not_open()
        supported, server = await self._probe(revision, timeout)
        chosen = modern_choice(supported)
        if server is None or chosen is None:
            raise NegotiationError("the server serves no modern revision that this client speaks", tuple(supported))
        return self._open(self._modern_era(chosen), attrs.evolve(server, revision=chosen))

    async def negotiate(
        self, *, probe_timeout: float = 10.0, handshake_first: bool = False, timeout: Limit = USE_SESSION
    ) -> ServerDeclaration:
        """Open the session in the newest era that the server speaks (`basic/transports/stdio`, Backward Compatibility).

        Asks ``server/discover`` first; anything but a modern answer within ``probe_timeout`` seconds means a legacy
        server, which gets the handshake. Over HTTP, a status that says nothing of eras (401, 429, 500) is an error.

        Args:
            probe_timeout: Seconds to wait for the answer to ``server/discover``, or the session's ``timeout`` if that
                is less.
            handshake_first: The server is known to speak the legacy era, so it is not asked.
            timeout: Seconds to wait for the answer to the handshake.

        Raises:
            NegotiationError: There is no revision that both sides speak.
            McpError: The server refused the handshake.
            HttpError: The server's answer was no MCP.
        """
        self._not_open()
        limit = self.options.calls.timeout
        patience = probe_timeout if limit is None else min(probe_timeout, limit)
        revision = LATEST_MODERN
        supported = list(LEGACY_REVISIONS)
        for _ in range(0 if handshake_first else 2):
            try:
                supported, server = await self._probe(revision, patience)
            except RequestTimeout:
                supported, server = list(LEGACY_REVISIONS), None
            except HttpError as exc:
                if exc.trouble != "not_modern":
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
            revision = chosen  # even the one that was refused: it is named as supported, so try once more
        if not any(candidate in LEGACY_REVISIONS for candidate in supported):
            served = ", ".join(each[:100] for each in supported[:20]) or "none that it names"
            text = ", and refuses it" if modern_choice(supported) else "; this client speaks none of them"
            raise NegotiationError(f"the server serves {served}{text}", tuple(supported))
        try:
            return await self.initialize(timeout=timeout)
        except McpError as exc:
            # The probe may have been too slow for us, not for the server: it is modern after all.
            if (named := supported_by(exc)) is None or modern_choice(named) is None:
                raise
        return await self.discover(timeout=timeout)

    async def _probe(self, revision: str, timeout: Limit) -> tuple[list[str], ServerDeclaration | None]:
        params = self._modern_era(revision).request_params(None)
        answer = read_discover_result(await self.send_request("server/discover", params, timeout=timeout))
        return (list(LEGACY_REVISIONS), None) if answer is None else answer

    def _modern_era(self, revision: str) -> ModernClientEra:
        return ModernClientEra(revision, self._client_info, self._capabilities_in(revision))

    def _not_open(self) -> None:
        if self._server is not None:
            raise LocalProtocolError(f"the session is open already, with revision {self._server.revision}")

    def _open(self, era: ModernClientEra | None, server: ServerDeclaration) -> ServerDeclaration:
        self._era, self._server = era, server
        self._peer.revision = server.revision
        return server

    async def ping(self, *, timeout: Limit = USE_SESSION) -> None:
        """Ask the server for a sign of life (legacy era only; the modern era has no ping).

        Raises:
            LocalProtocolError: The revision has no ping.
        """
        await self.send_request("ping", timeout=timeout)

    def _check_outgoing(self, method: str) -> None:
        if method in self._allowed:
            return
        if self._server is None:
            if not facts_of(method).opening:
                raise LocalProtocolError(f"{method!r} can't be sent before initialize(), discover() or negotiate()")
            return
        spec = method_spec(self._server.revision, method)
        if spec is None or "client" not in spec.senders:
            if is_spec_method(method):
                text = f"{method!r} is not a method of revision {self._server.revision} that a client may send"
                raise LocalProtocolError(text)
            return
        if (
            spec.is_request
            and spec.server_capability
            and not declares(self._server.capabilities, spec.server_capability)
        ):
            raise CapabilityError(method, spec.server_capability, "server")
        declared = self._capabilities_in(self._server.revision)
        if not spec.is_request and spec.client_capability and not declares(declared, spec.client_capability):
            raise CapabilityError(method, spec.client_capability, "client")
        self._allowed.add(method)
