"""One server of a group: connected, and connected anew when it is lost, in a task of its own."""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

import attrs
import trio

from trio_mcp.client.client import Client
from trio_mcp.client.targets import Target
from trio_mcp.errors import SessionClosed, TransportError, TrioMcpError

__all__ = ["Member", "Reconnect", "ServerStatus", "plain_text"]

logger = logging.getLogger("trio_mcp")

State: TypeAlias = Literal["connecting", "connected", "failed", "closed"]


def _positive(instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{attribute.name} must be a number, got {value!r}")
    if not 0 < value < math.inf:
        raise ValueError(f"{attribute.name} must be more than 0 and finite, got {value!r}")


def _attempts(instance: object, attribute: attrs.Attribute[Any], value: Any) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise ValueError(f"{attribute.name} must be an integer of at least 0, or None for no limit; got {value!r}")


@attrs.frozen(kw_only=True)
class Reconnect:
    """When a lost server is tried again: after a delay that grows with each failure in a row.

    A connection that has lasted for ``max_delay`` seconds ends the row.

    Attributes:
        delay: Seconds before the first attempt.
        factor: By how much each further delay is longer.
        max_delay: The longest delay, in seconds.
        jitter: The part of each delay that is left to chance, from 0 to 1, so that servers lost together don't come
            back together.
        attempts: How many failures in a row are followed by another attempt; 0 for no attempt at all, None for no
            limit.
    """

    delay: float = attrs.field(default=0.5, validator=_positive)
    factor: float = attrs.field(default=2.0, validator=[_positive, attrs.validators.ge(1)])
    max_delay: float = attrs.field(default=60.0, validator=_positive)
    jitter: float = attrs.field(default=0.5, validator=[attrs.validators.ge(0), attrs.validators.le(1)])
    attempts: int | None = attrs.field(default=None, validator=_attempts)

    def delay_after(self, failures: int) -> float | None:
        """Seconds to wait after so many failures in a row; None to give up."""
        if self.attempts is not None and failures > self.attempts:
            return None
        try:
            delay = min(self.max_delay, self.delay * float(self.factor) ** (failures - 1))
        except OverflowError:
            delay = self.max_delay
        return delay * (1 - self.jitter * random.random())


@attrs.frozen
class ServerStatus:
    """How a server of a group is.

    Attributes:
        state: ``"connecting"``, ``"connected"``, ``"failed"`` (lost, or never reached; ``cause`` says why) or
            ``"closed"`` (removed from the group, or the group has ended).
        cause: What went wrong last; None while connected.
        retry_at: When a failed server is tried again, on the clock of `trio.current_time`; None for never.
    """

    state: State
    cause: Exception | None = None
    retry_at: float | None = None


class Member:
    """A server of a group. The one who runs `run` owns everything that it starts.

    Attributes:
        name: Its name in the group.
        status: How it is.
        tried: Whether the first attempt to connect is over.
        first_failure: What that attempt has failed with.
        ended: Set when nothing of it runs any more.
    """

    def __init__(
        self,
        name: str,
        target: Target,
        options: Mapping[str, Any],
        reconnect: Reconnect,
        changed: Callable[[Member], None],
    ) -> None:
        self.name = name
        self.status = ServerStatus("connecting")
        self.tried = False
        self.first_failure: Exception | None = None
        self.ended = trio.Event()
        self._target = target
        self._options = options
        self._reconnect = reconnect
        self._changed = changed
        self._client: Client | None = None
        self._scope = trio.CancelScope()
        self._serving: trio.CancelScope | None = None
        self._ending = False
        self._new_client()  # raises now what is wrong with the arguments

    @property
    def client(self) -> Client | None:
        """The client, while calls can be made."""
        client = self._client
        return None if client is None or client.session.closed else client

    def _new_client(self) -> Client:
        try:
            return Client(self._target, **self._options)
        except (TypeError, ValueError) as exc:
            kind = TypeError if isinstance(exc, TypeError) else ValueError
            raise kind(f"server {self.name!r}: {exc}") from None

    async def run(self) -> None:
        """Stay connected until `ask_to_end`, or until cancelled."""
        try:
            with self._scope:
                await self._stay_connected()
        finally:
            self._client = None
            self._become(ServerStatus("closed", self.status.cause))
            self.ended.set()

    def ask_to_end(self) -> None:
        """End the connection in good order, or the attempt to make one; `ended` says when that has happened."""
        self._ending = True
        (self._serving or self._scope).cancel("the server leaves its group")

    def end_now(self) -> None:
        """End it without any waiting."""
        self._ending = True
        self._scope.cancel("the group is left")

    async def _stay_connected(self) -> None:
        failures = 0
        while not self._ending:
            self._become(ServerStatus("connecting", self.status.cause))
            connected_at = math.inf
            try:
                async with self._new_client() as client:
                    connected_at = trio.current_time()
                    await self._serve(client)
                cause = client.session.close_cause or SessionClosed("the client was closed")
            except Exception as exc:  # whatever a transport of somebody's may raise: it costs this server alone
                cause = exc
            finally:
                self._client = self._serving = None
            if self._ending:
                return
            failures = 1 if trio.current_time() - connected_at >= self._reconnect.max_delay else failures + 1
            await self._fail(cause, self._reconnect.delay_after(failures))

    async def _serve(self, client: Client) -> None:
        with trio.CancelScope() as self._serving:
            self._client = client
            self._become(ServerStatus("connected"))
            await client.session.wait_closed()

    async def _fail(self, cause: Exception, delay: float | None) -> None:
        if isinstance(cause, TrioMcpError):
            cause.server = self.name
        retry_at = None if delay is None else trio.current_time() + delay
        logger.debug("server %r failed: %s", self.name, cause)
        self._become(ServerStatus("failed", cause, retry_at))
        await trio.sleep_until(math.inf if retry_at is None else retry_at)

    def _become(self, status: ServerStatus) -> None:
        if status.state != "connecting" and not self.tried:
            self.tried, self.first_failure = True, status.cause
        self.status = status
        self._changed(self)

    def down(self) -> TransportError:
        """What a call raises that can't be made."""
        status = self.status
        if status.state == "closed":
            error: TransportError = SessionClosed("the connection is closed: it was removed, or the group has ended")
        elif status.state == "connecting":
            error = TransportError("is not connected yet" + _because(status.cause))
        elif status.retry_at is None:
            error = TransportError("is not connected, and not tried again" + _because(status.cause))
        else:
            seconds = max(0.0, status.retry_at - trio.current_time())
            error = TransportError(f"is not connected; the next attempt is in {seconds:.1f} s" + _because(status.cause))
        error.server = self.name
        error.__cause__ = status.cause
        return error


def _because(cause: Exception | None) -> str:
    return "" if cause is None else f": {plain_text(cause)}"


def plain_text(cause: Exception) -> str:
    """What an exception says, without the name of the server."""
    return cause._text() if isinstance(cause, TrioMcpError) else f"{type(cause).__name__}: {cause}"
