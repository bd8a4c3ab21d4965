"""The session of the handshake era as the transport knows it, so that it can open another when the server forgets it.

2025-11-25 `basic/transports`, section Session Management.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Awaitable, Callable
from typing import Any, Final

import attrs
import trio

from trio_mcp.errors import RemoteProtocolError, TransportError, TrioMcpError
from trio_mcp.http.client.wire import HttpResponse
from trio_mcp.http.headers import SESSION_ID

__all__ = ["LegacySession", "Renewals"]

RENEWAL_TIMEOUT: Final = 30.0
"""Seconds for a server to open another session."""

_SESSION_ID = re.compile(r"[\x21-\x7e]{1,4096}")


@attrs.frozen(eq=False)
class LegacySession:
    """What a handshake has settled.

    Attributes:
        params: What the client said in ``initialize``.
        revision: What the server answered.
        id: The session id, if the server gave one.
        scope: Around what listens to the server; cancelled when there is another session.
    """

    params: dict[str, Any] | None
    revision: str
    id: str | None
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)

    @classmethod
    def opened(cls, params: dict[str, Any] | None, result: dict[str, Any], response: HttpResponse) -> LegacySession:
        """The session that the answer to ``initialize`` opens.

        Raises:
            RemoteProtocolError: The session id can't be one.
        """
        given = response.headers.get(SESSION_ID)
        if given is not None and not _SESSION_ID.fullmatch(given):
            raise RemoteProtocolError("the server gave a session id that is too long or not visible ASCII")
        revision = result.get("protocolVersion")
        # What is no revision is for the session above to complain about.
        return cls(params, revision if isinstance(revision, str) and revision.isascii() else "", given)


class _Renewal:
    def __init__(self) -> None:
        self.done = trio.Event()
        self.error: TrioMcpError | None = None


class Renewals:
    """Opens another session when one is lost: once, however many calls find out.

    Args:
        spawn: Runs something in a task of the link.
        renew: Opens another session in the place of this one.
    """

    def __init__(
        self,
        spawn: Callable[[Callable[[], Awaitable[None]]], None],
        renew: Callable[[LegacySession], Awaitable[None]],
    ) -> None:
        self._spawn = spawn
        self._renew = renew
        self._running: _Renewal | None = None

    async def renew(self, lost: LegacySession) -> None:
        """Wait for another session. When cancelled, it is opened all the same, for those who wait with us.

        Raises:
            TrioMcpError: There is none to be had.
        """
        renewal = self._running
        if renewal is None:
            renewal = self._running = _Renewal()

            async def run() -> None:
                await self._run(lost, renewal)

            self._spawn(run)
        await renewal.done.wait()
        if renewal.error is not None:
            raise copy.copy(renewal.error)  # one for each call: they would share a traceback

    async def _run(self, lost: LegacySession, renewal: _Renewal) -> None:
        try:
            with trio.CancelScope(deadline=trio.current_time() + RENEWAL_TIMEOUT) as scope:
                await self._renew(lost)
            if scope.cancelled_caught:
                text = f"the server has forgotten the session, and opened no other within {RENEWAL_TIMEOUT:g} seconds"
                renewal.error = TransportError(text)
        except TrioMcpError as exc:
            renewal.error = exc
        finally:
            self._running = None
            renewal.done.set()
