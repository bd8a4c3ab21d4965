"""The servers of a group: added, removed, connected independently of each other, and waited for."""

from __future__ import annotations

import contextlib
import difflib
import logging
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, TypeAlias, get_args

import trio

from trio_mcp._nursery import EnteredOnce, background_nursery
from trio_mcp.client.client import Client
from trio_mcp.client.group.member import Member, Reconnect, ServerStatus, plain_text
from trio_mcp.client.targets import Target
from trio_mcp.errors import LocalProtocolError, TransportError, TrioMcpError

__all__ = ["GroupConnections", "Require", "did_you_mean"]

logger = logging.getLogger("trio_mcp")

Require: TypeAlias = Literal["all", "any", "none"]

LONGEST_HINTED = 200
"""Characters of a name for which a similar one is looked for: the search takes quadratic time."""


class GroupConnections(EnteredOnce):
    """The lifetime of a `ClientGroup` and of its servers. The arguments are those of `ClientGroup`."""

    def __init__(
        self,
        servers: Mapping[str, Target],
        *,
        require: Require = "all",
        max_wait: float = 5.0,
        reconnect: Reconnect | None = None,
        on_status: Callable[[str, ServerStatus], object] | None = None,
        per_server: Mapping[str, Mapping[str, Any]] | None = None,
        **client_options: Any,
    ) -> None:
        if not isinstance(servers, Mapping):
            raise TypeError(f"servers must map names to targets, got {type(servers).__name__}")
        if require not in get_args(Require):
            raise ValueError(f"require must be one of {', '.join(get_args(Require))}; got {require!r}")
        if isinstance(max_wait, bool) or not isinstance(max_wait, (int, float)) or not max_wait >= 0:
            raise ValueError(f"max_wait must be a number of seconds, 0 or more; got {max_wait!r}")
        if reconnect is not None and not isinstance(reconnect, Reconnect):
            raise TypeError(f"reconnect must be a Reconnect, got {type(reconnect).__name__}")
        if on_status is not None and not callable(on_status):
            raise TypeError(f"on_status must be callable, got {type(on_status).__name__}")
        per_server = per_server or {}
        for name in per_server:
            if name not in servers:
                raise ValueError(f"per_server has options for {name!r}, but there is no such server")
        self._require = require
        self._max_wait = max_wait
        self._reconnect = reconnect or Reconnect()
        self._on_status = on_status
        self._client_options = client_options
        self._members: dict[str, Member] = {}
        self._nursery: trio.Nursery | None = None
        self._closing = False
        self._changed = trio.lowlevel.ParkingLot()
        self.clients: Mapping[str, Client] = ConnectedClients(self._members)
        for name, target in servers.items():
            self._members[name] = self._new_member(name, target, per_server.get(name, {}))

    def _new_member(self, name: str, target: Target, options: Mapping[str, Any]) -> Member:
        if not isinstance(name, str) or not name:
            raise ValueError(f"a server's name must be a non-empty string, got {name!r}")
        if name in self._members:
            raise ValueError(f"there is a server {name!r} in the group already; remove it first, or use another name")
        return Member(name, target, {**self._client_options, **options}, self._reconnect, self._status_changed)

    # --- lifetime ------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _lifetime(self) -> AsyncIterator[None]:
        async with background_nursery(self.aclose) as nursery:
            self._nursery = nursery
            members = list(self._members.values())
            for member in members:
                self._start(nursery, member)
            await self._first_attempts(members)
            failures = {member.name: member.first_failure for member in members if member.first_failure is not None}
            if self._require == "any" and len(failures) == len(members) > 0:
                raise _none_of(failures)
            yield

    def _start(self, nursery: trio.Nursery, member: Member) -> None:
        nursery.start_soon(member.run, name=f"server {member.name!r} of a group")

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
        """End all connections, at once and in good order; from any task; again is a no-op.

        Pending calls raise `SessionClosed`. It takes as long as the slowest of the clients. When cancelled, the
        same happens without the waiting.
        """
        if self._nursery is None:
            return
        self._closing = True
        await self._end(list(self._members.values()))

    async def _end(self, members: Iterable[Member]) -> None:
        for member in members:
            member.ask_to_end()
        try:
            for member in members:
                await member.ended.wait()
        except trio.Cancelled:
            for member in members:
                member.end_now()
            raise

    # --- servers that come and go ----------------------------------------------------------------------------------

    async def add(self, name: str, target: Target, **client_options: Any) -> None:
        """Add a server while the group is in use.

        With ``require="all"``, this raises what connecting raises, and the server is not added. Otherwise a server
        that can't be connected to is added all the same, and tried again; ``"none"`` does not even wait.

        Args:
            name: Its name, new to the group.
            target: As for a `Client`.
            client_options: Arguments of the `Client`, which count more than those for all servers.

        Raises:
            TypeError, ValueError: An argument is not what it should be, or there is a server of that name.
            LocalProtocolError: The group has not been entered, or is closed.

        When cancelled, the server is not added.
        """
        if self._nursery is None or self._closing:
            raise LocalProtocolError("servers can be added only inside `async with ClientGroup(...) as group:`")
        member = self._members[name] = self._new_member(name, target, client_options)
        self._start(self._nursery, member)
        try:
            await self._first_attempts([member])
            if member.status.state == "closed":
                raise member.down()
        except BaseException:
            member.end_now()
            if self._members.get(name) is member:
                self._forget(name)
            raise

    async def remove(self, name: str) -> None:
        """Take a server out of the group and close its connection.

        Calls that wait for it raise `SessionClosed`. The name is free at once. When cancelled, the connection is
        closed without the waiting.

        Raises:
            LocalProtocolError: There is no such server.
        """
        member = self._member(name)
        self._forget(name)
        if self._nursery is not None:
            await self._end([member])

    def _forget(self, name: str) -> None:
        del self._members[name]

    @property
    def status(self) -> dict[str, ServerStatus]:
        """How each server is now."""
        return {name: member.status for name, member in self._members.items()}

    def _status_changed(self, member: Member) -> None:
        self._changed.unpark_all()
        if self._on_status is not None:
            try:
                self._on_status(member.name, member.status)
            except Exception:
                logger.exception("on_status failed")

    # --- using them ------------------------------------------------------------------------------------------------

    def _member(self, name: str) -> Member:
        member = self._members.get(name)
        if member is None:
            raise LocalProtocolError(f"there is no server {name!r} in the group{did_you_mean(name, self._members)}")
        return member

    async def _client(self, name: str) -> Client:
        """The client of a server, which is waited for if it could be there soon.

        Raises:
            TransportError: It is not connected; the error says why.
        """
        member = self._member(name)
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
    reasons = "".join(f"\n  {name!r}: {plain_text(failure)}" for name, failure in failures.items())
    return TransportError(f"none of the group's servers could be connected to:{reasons}")


def did_you_mean(name: object, names: Iterable[str], most: int = 1000) -> str:
    """The end of a message about an unknown name: what may have been meant."""
    known = list(names)
    near = difflib.get_close_matches(name[:LONGEST_HINTED], known[:most], 1) if isinstance(name, str) else []
    return f"; did you mean {near[0]!r}?" if near else ""
