"""The servers of a group: each connected in a task of its own, connected anew when it is lost, and waited for."""

from __future__ import annotations

import contextlib
import difflib
import math
import random
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, TypeAlias

import attrs
import trio

from trio_mcp._log import logger
from trio_mcp._nursery import background_nursery
from trio_mcp.client.client import Client
from trio_mcp.client.targets import Target
from trio_mcp.errors import LocalProtocolError, SessionClosed, TransportError, TrioMcpError
from trio_mcp.jsonrpc.messages import Notification
from trio_mcp.retrying import Backoff

__all__ = ["ConnectedClients", "Member", "Members", "Require", "ServerStatus", "did_you_mean"]

State: TypeAlias = Literal["connecting", "connected", "failed", "closed"]
Require: TypeAlias = Literal["all", "any", "none"]

LONGEST_HINTED = 200
"""Characters of a name for which a similar one is looked for: the search takes quadratic time."""


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
        lists: What it has listed since it was connected, by the kind: the names in the group of its tools and prompts,
            the URIs of its resources, its URI templates. A kind that it has not been asked for is not there.
    """

    def __init__(
        self,
        name: str,
        target: Target,
        options: Mapping[str, Any],
        reconnect: Backoff,
        changed: Callable[[Member], None],
    ) -> None:
        self.name = name
        self.status = ServerStatus("connecting")
        self.tried = False
        self.first_failure: Exception | None = None
        self.ended = trio.Event()
        self.lists: dict[str, dict[str, None]] = {}
        self._target = target
        self._options = {**options, "on_message": self._heard}
        self._on_message = options.get("on_message")
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

    def forget_resources(self) -> None:
        """They may be others now."""
        self.lists.pop("resources", None)
        self.lists.pop("resource_templates", None)

    def _heard(self, notification: Notification) -> object:
        if notification.method == "notifications/resources/list_changed":
            self.forget_resources()
        return None if self._on_message is None else self._on_message(notification)

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
            failures = 0 if trio.current_time() - connected_at >= self._reconnect.longest else failures
            await self._fail(cause, self._reconnect.wait(failures, random.random))
            failures += 1

    async def _serve(self, client: Client) -> None:
        with trio.CancelScope() as self._serving:
            self._client = client
            self.forget_resources()  # a server that was started anew may be another one
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


class Members:
    """All servers of a group.

    Args:
        require: As of the `ClientGroup`, like all but the last.
        max_wait: Seconds that a call waits for its server.
        reconnect: When servers are tried again.
        on_status: Called with each new status.
        on_removed: Called with the name of each server that leaves.

    Attributes:
        by_name: The servers.
    """

    def __init__(
        self,
        *,
        require: Require,
        max_wait: float,
        reconnect: Backoff,
        on_status: Callable[[str, ServerStatus], object] | None,
        on_removed: Callable[[str], None],
    ) -> None:
        self._changed = trio.lowlevel.ParkingLot()
        self._require = require
        self._max_wait = max_wait
        self._reconnect = reconnect
        self._on_status = on_status
        self._on_removed = on_removed
        self.by_name: dict[str, Member] = {}
        self._nursery: trio.Nursery | None = None
        self._closing = False

    def named(self, name: str) -> Member:
        """The server of a name.

        Raises:
            LocalProtocolError: There is none.
        """
        member = self.by_name.get(name)
        if member is None:
            raise LocalProtocolError(f"there is no server {name!r} in the group{did_you_mean(name, self.by_name)}")
        return member

    # --- lifetime ------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """The block in which they are connected."""
        async with background_nursery(self.aclose) as nursery:
            self._nursery = nursery
            members = list(self.by_name.values())
            for member in members:
                nursery.start_soon(member.run, name=_task_name(member))
            await self._first_attempts(members)
            failures = {member.name: member.first_failure for member in members if member.first_failure is not None}
            if self._require == "any" and len(failures) == len(members) > 0:
                raise _none_of(failures)
            yield

    async def _first_attempts(self, members: list[Member]) -> None:
        """Wait as ``require`` says for servers that have just been started.

        Raises:
            Exception: What connecting has failed with, if ``require`` can't be met.
        """
        await trio.lowlevel.checkpoint()
        while self._require != "none":
            if self._require == "all":
                for member in members:
                    if member.first_failure is not None:
                        raise _raisable(member.name, member.first_failure)
            if all(member.tried for member in members):
                return
            await self._changed.park()

    async def aclose(self) -> None:
        """As `ClientGroup.aclose`."""
        self._closing = self._nursery is not None
        await self._end(list(self.by_name.values()))

    async def _end(self, members: Iterable[Member]) -> None:
        if self._nursery is None:
            members = []  # nobody has connected to them
        for member in members:
            member.ask_to_end()
        try:
            await trio.lowlevel.checkpoint()
            for member in members:
                await member.ended.wait()
        except trio.Cancelled:
            for member in members:
                member.end_now()
            raise

    # --- servers that come and go ----------------------------------------------------------------------------------

    def new(self, name: str, target: Target, options: Mapping[str, Any]) -> Member:
        """Add a server that nothing connects to yet.

        Raises:
            TypeError, ValueError: An argument is not what it should be, or there is a server of that name.
        """
        if not isinstance(name, str) or not name:
            raise ValueError(f"a server's name must be a non-empty string, got {name!r}")
        if name in self.by_name:
            raise ValueError(f"there is a server {name!r} in the group already; remove it first, or use another name")
        member = self.by_name[name] = Member(name, target, options, self._reconnect, self._status_changed)
        return member

    async def add(self, name: str, target: Target, options: Mapping[str, Any]) -> None:
        """As `ClientGroup.add`."""
        if self._nursery is None or self._closing:
            raise LocalProtocolError("servers can be added only inside `async with ClientGroup(...) as group:`")
        member = self.new(name, target, options)
        self._nursery.start_soon(member.run, name=_task_name(member))
        try:
            await self._first_attempts([member])
            if member.status.state == "closed":
                raise member.down()
        except BaseException:
            member.end_now()
            if self.by_name.get(name) is member:
                self._drop(name)
            raise

    async def remove(self, name: str) -> None:
        """As `ClientGroup.remove`."""
        member = self.named(name)
        self._drop(name)
        await self._end([member])

    def _drop(self, name: str) -> None:
        del self.by_name[name]
        self._on_removed(name)

    def _status_changed(self, member: Member) -> None:
        self._changed.unpark_all()
        if self._on_status is not None:
            try:
                self._on_status(member.name, member.status)
            except Exception:
                logger.exception("on_status failed")

    async def client(self, name: str) -> Client:
        """The client of a server, which is waited for if it could be there soon.

        Raises:
            TransportError: It is not connected; the error says why.
        """
        member = self.named(name)
        return member.client or await self._wait_for(member)

    async def _wait_for(self, member: Member) -> Client:
        if self._nursery is None:
            raise LocalProtocolError("the group is not connected: use it as `async with ClientGroup(...) as group:`")
        deadline = trio.current_time() + self._max_wait
        with trio.move_on_at(deadline):
            while not _is_hopeless(member.status, deadline):
                if (client := member.client) is not None:
                    return client
                await self._changed.park()
        raise member.down()


class ConnectedClients(Mapping[str, Client]):
    """The clients of the servers that are connected now, by name."""

    def __init__(self, members: Mapping[str, Member]) -> None:
        self._members = members

    def __getitem__(self, name: str) -> Client:
        member = self._members.get(name)
        if member is None:
            raise KeyError(f"there is no server {name!r} in the group{did_you_mean(name, self._members)}")
        if member.client is None:
            raise KeyError(str(member.down()))
        return member.client

    def __iter__(self) -> Iterator[str]:
        return iter([name for name, member in self._members.items() if member.client is not None])

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _task_name(member: Member) -> str:
    return f"server {member.name!r} of a group"


def _is_hopeless(status: ServerStatus, deadline: float) -> bool:
    """Whether a server will not be there in time."""
    if status.state == "failed":
        return status.retry_at is None or status.retry_at > deadline
    return status.state == "closed"


def _raisable(name: str, failure: Exception) -> Exception:
    if not isinstance(failure, TrioMcpError):
        failure.add_note(f"while connecting to the server {name!r} of a group")
    return failure


def _none_of(failures: Mapping[str, Exception]) -> Exception:
    if len(failures) == 1:
        return _raisable(*next(iter(failures.items())))
    reasons = "".join(f"\n  {name!r}: {_plain_text(failure)}" for name, failure in failures.items())
    return TransportError(f"none of the group's servers could be connected to:{reasons}")


def _because(cause: Exception | None) -> str:
    return "" if cause is None else f": {_plain_text(cause)}"


def _plain_text(cause: Exception) -> str:
    """What an exception says, without the name of the server."""
    if not isinstance(cause, TrioMcpError):
        return f"{type(cause).__name__}: {cause}"
    return str(cause).removeprefix(f"server {cause.server!r}: ")


def did_you_mean(name: object, names: Iterable[str], most: int = 1000) -> str:
    """The end of a message about an unknown name: what may have been meant."""
    known = list(names)
    near = difflib.get_close_matches(name[:LONGEST_HINTED], known[:most], 1) if isinstance(name, str) else []
    return f"; did you mean {near[0]!r}?" if near else ""
