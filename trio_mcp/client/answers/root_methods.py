"""The client's own part in roots: telling that they are others now (`client/roots`)."""

from __future__ import annotations

from trio_mcp.client.answers.roots import Roots
from trio_mcp.client.connection import ClientConnection
from trio_mcp.errors import LocalProtocolError

__all__ = ["RootMethods"]


class RootMethods(ClientConnection):
    """The part of `Client` that changes its roots."""

    async def set_roots(self, roots: Roots) -> None:
        """Have other roots from now on.

        A server of the legacy era is told that they have changed, and may ask for them; one of the modern era asks
        whenever it wants to know.

        Args:
            roots: As the ``roots`` of the `Client`.

        Raises:
            TypeError, ValueError: A root is none; the old ones stay.
            LocalProtocolError: The client was made without ``roots``, so it has not declared any.
            TransportError: The link failed or the session was closed.

        When cancelled, the new roots hold; the server may not have been told.
        """
        if self._inputs.roots is None:
            raise LocalProtocolError("the client has declared no roots: pass roots= to Client, if only an empty list")
        self._inputs.roots.set(roots)
        session = self._session
        if session is not None and not session.modern:
            await session.send_notification("notifications/roots/list_changed")
