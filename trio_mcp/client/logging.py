"""Log messages, from the client's side (`server/utilities/logging`)."""

from __future__ import annotations

from trio_mcp.client.connection import ClientConnection, check_log_level
from trio_mcp.session.requests import USE_SESSION, Limit
from trio_mcp.types.notices import LoggingLevel

__all__ = ["LoggingMethods"]


class LoggingMethods(ClientConnection):
    """The part of `Client` that says which log messages it wants."""

    async def set_log_level(self, level: LoggingLevel | None, *, timeout: Limit = USE_SESSION) -> None:
        """Say which log messages the server shall send from now on; ``on_log`` of the `Client` gets them.

        In the legacy era the server is told at once (``logging/setLevel``). In the modern era nothing is sent now:
        every later request asks for the messages that belong to it; None asks for none.

        Args:
            level: The least severe level wanted.
            timeout: Seconds to wait.

        Raises:
            ValueError: There is no such level; or it is None in the legacy era, which has no word for that.
            CapabilityError: A server of the legacy era has not declared that it logs. (In the modern era there are
                servers that log all the same, so they are asked.)
            McpError: The server refused.

        Further errors and cancellation as in `BaseSession.send_request`.
        """
        if level is not None:
            check_log_level(level)
        session = self.session
        if session.modern:
            session.set_log_level(level)
        elif level is None:
            raise ValueError(
                "level must not be None: a server of the handshake era can't be asked for no messages at all"
            )
        else:
            await self.request("logging/setLevel", {"level": level}, timeout=timeout)
