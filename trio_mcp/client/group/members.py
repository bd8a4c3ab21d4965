"""Keep each server of a group connected with a task of its own, and let calls wait for a server that may come back."""

from __future__ import annotations

import contextlib
import math
import random
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

import trio

from trio_mcp import _attrs as attrs
from trio_mcp._checks import check_text
from trio_mcp._keywords import did_you_mean
from trio_mcp._log import logger
from trio_mcp._nursery import background_nursery
from trio_mcp.client.client import Client
from trio_mcp.client.targets import Target
from trio_mcp.errors import ConfigError, LocalProtocolError, SessionClosed, TransportError, TrioMcpError
from trio_mcp.jsonrpc.messages import Notification
from trio_mcp.retrying import Backoff, asks_anew
from trio_mcp.session.calls import USE_SESSION, CallLimits, Limits
from trio_mcp.session.limits import SessionOptions
from trio_mcp.stdio.parameters import StdioServerParameters

if TYPE_CHECKING:
    from trio_mcp.client.group.pins import Owner, SeenTools

__all__ = ["ConnectedClients", "GroupMember", "Members", "Require", "ServerStatus"]

State: TypeAlias = Literal["connecting", "connected", "failed", "closed"]
Require: TypeAlias = Literal["all", "any", "none"]

LEAST_LEFT = 0.001
"""The minimum time, in seconds, that is left for a call whose server came back at the last moment.

An arbitrary choice.
"""


@attrs.frozen
class ServerStatus:
    """The status of one server of a group.

    Attributes:
        state: ``"connecting"``, ``"connected"``, ``"failed"`` (lost, or never reached; ``cause`` says why) or
            ``"closed"`` (removed from the group, or the group was closed).
        cause: The last failure; None while connected.
        retry_at: When a failed server is tried again, on the clock of `trio.current_time`; None for never.
    """

    state: State
    cause: Exception | None = None
    retry_at: float | None = None


class GroupMember:
    """One server of a group. The task that runs `run` owns everything that the member starts.

    Attributes:
        name: The server's name in the group.
        status: The server's current status.
        tried: Whether the first attempt to connect has succeeded or failed.
        first_failure: The exception of that attempt, if it failed.
        ended: An event, set when none of the member's tasks is running any more.
        lists: The items that the server has listed, by kind: the group's names for its tools and prompts, the URIs of
            its resources, its URI templates. A kind that has not been listed is missing.
        usual: The limits for calls that set none themselves.
        seen: The tools that the server has listed, if they are pinned; otherwise None.
        owner: Whose tools they are, in pins.
    """

    def __init__(
        self,
        name: str,
        target: Target,
        options: Mapping[str, Any],
        reconnect: Backoff,
        changed: Callable[[GroupMember], None],
        *,
        pinned: bool = False,
    ) -> None:
        self.name = name
        self.seen: SeenTools | None = None
        self.owner: Owner | None = None
        if pinned:
            from trio_mcp.client.group.pins import Owner, SeenTools

            self.seen, self.owner = SeenTools(), Owner.of(name, target, options.get("principal"))
        self.status = ServerStatus("connecting")
        self.tried = False
        self.first_failure: Exception | None = None
        self.ended = trio.Event()
        self.lists: dict[str, dict[str, None]] = {}
        if isinstance(target, StdioServerParameters) and target.label is None:
            target = attrs.evolve(target, label=name)  # several servers may write to one terminal or log
        self._target = target
        if options.get("request_headers") is not None:
            raise ValueError(
                f"server {name!r}: a group can't have request_headers, because it remembers the names that its servers"
                " have listed for any user; pass headers= with a call, or give each user a group"
            )
        # The client's notifications pass through `_heard`, so that the catalog does not use lists that have changed.
        self._options = {**options, "on_message": self._heard}
        self._on_message = options.get("on_message")
        self._reconnect = reconnect
        self._changed = changed
        self._client: Client | None = None
        self._scope = trio.CancelScope()
        # This scope is set while the client is connected. Cancelling it closes the client gracefully.
        self._serving: trio.CancelScope | None = None
        self._ending = False
        # This client is discarded. It is made so that an invalid argument raises an error now, in the caller's task.
        self._new_client()
        calls, timeout = (options.get("options") or SessionOptions()).calls, options.get("timeout", USE_SESSION)
        self.usual = calls if timeout is USE_SESSION else attrs.evolve(calls, timeout=timeout)

    @property
    def client(self) -> Client | None:
        """The server's client, if calls can be made now; otherwise None."""
        client = self._client
        return None if client is None or client.session.closed else client

    def _new_client(self) -> Client:
        try:
            return Client(self._target, **self._options)
        except (TypeError, ValueError) as exc:
            # A new exception is raised, as its text must name the server. It has a base type, as subclasses may have
            # other constructors.
            kind = TypeError if isinstance(exc, TypeError) else ValueError
            raise kind(f"server {self.name!r}: {exc}") from None

    def forget_resources(self) -> None:
        """Forget the lists of resources and templates, which may have changed."""
        self.lists.pop("resources", None)
        self.lists.pop("resource_templates", None)

    def _heard(self, notification: Notification) -> object:
        if notification.method == "notifications/resources/list_changed":
            self.forget_resources()
        elif notification.method == "notifications/tools/list_changed" and self.seen is not None:
            self.seen.forget()
        return None if self._on_message is None else self._on_message(notification)

    async def run(self) -> None:
        """Stay connected until `ask_to_end` is called or the task is cancelled."""
        try:
            with self._scope:
                await self._stay_connected()
        finally:
            self._client = None
            # The status changes even after a cancellation, because calls that wait for this server must not wait any
            # longer.
            self._become(ServerStatus("closed", self.status.cause))
            self.ended.set()

    def ask_to_end(self) -> None:
        """Close the connection gracefully, or give up connecting; `ended` is set when that is complete."""
        self._ending = True
        # While the client is connected, only the wait inside `async with Client` is cancelled, so that the client is
        # closed gracefully. Otherwise the whole task is cancelled, as there is nothing to close.
        (self._serving or self._scope).cancel("the server is being removed from its group")

    def end_now(self) -> None:
        """Close the connection without waiting."""
        self._ending = True
        self._scope.cancel("the group has ended")

    async def _stay_connected(self) -> None:
        failures = 0
        while not self._ending:
            self._become(ServerStatus("connecting", self.status.cause))
            # The time is infinite until the client is connected, so that a failed attempt never counts as a connection
            # that lasted.
            connected_at = math.inf
            try:
                async with self._new_client() as client:
                    connected_at = trio.current_time()
                    await self._serve(client)
                # A missing cause means that the program has closed the client itself, through `ClientGroup.clients`.
                cause = client.session.close_cause or SessionClosed("the client was closed")
            # A custom transport may raise any exception, which must affect only this server, and not the group.
            except Exception as exc:
                cause = exc
            finally:
                # The block has been left, so `ask_to_end` must not use its scope any more, but has to cancel the whole
                # task.
                self._client = self._serving = None
            # The server was removed while it was connected or connecting, which is not a failure to report.
            if self._ending:
                return
            # Only a connection that lasted resets the delays: a server that crashes right after connecting would
            # otherwise be restarted every half second.
            failures = 0 if trio.current_time() - connected_at >= self._reconnect.longest else failures
            # There is no further attempt after two kinds of failure: an invalid entry of a configuration stays invalid,
            # as it is read only once; and a person must not be asked to sign in again and again. In all other cases
            # there is a delay, with jitter, so that servers that were lost together don't all come back at once.
            final = isinstance(cause, ConfigError) or asks_anew(cause)
            delay = None if final else self._reconnect.wait(failures, random.random)
            await self._fail(cause, delay)
            failures += 1

    async def _serve(self, client: Client) -> None:
        with trio.CancelScope() as self._serving:
            self._client = client
            self.forget_resources()  # a restarted server may offer other resources
            if self.seen is not None:
                self.seen.forget()
            self._become(ServerStatus("connected"))
            # These are the only waits inside the client's block. The loss of the server ends them, and so does
            # `ask_to_end`.
            if self.seen is not None and client.session.modern:
                await self._listen_for_tools(client, self.seen)
            await client.session.wait_closed()

    async def _listen_for_tools(self, client: Client, seen: SeenTools) -> None:
        """Listen for changes of the list of tools, without which a server of the modern era does not announce them."""
        tools = client.capabilities.tools
        if tools is None or not tools.list_changed:
            return  # it says that the list does not change
        seen.sure = False
        try:
            async with client.listen(tools_list_changed=True) as events:
                seen.forget()  # what was listed before may have changed since
                seen.sure = True
                async for _ in events:
                    seen.forget()
        except TrioMcpError as exc:
            logger.debug("server %r can't be listened to: %s", self.name, exc)
        finally:
            # From now on changes may go unnoticed, so the tools are listed before each call.
            seen.sure = False
            seen.forget()

    async def _fail(self, cause: Exception, delay: float | None) -> None:
        if isinstance(cause, TrioMcpError):
            cause.server = self.name
        retry_at = None if delay is None else trio.current_time() + delay
        logger.debug("server %r failed: %s", self.name, cause)
        self._become(ServerStatus("failed", cause, retry_at))
        # If there is no further attempt, the task waits forever: the server stays in the group, with its status, until
        # it is removed.
        await trio.sleep_until(math.inf if retry_at is None else retry_at)

    def _become(self, status: ServerStatus) -> None:
        # Every status except "connecting" ends the first attempt. `first_failure` is None only if that attempt
        # succeeded or was given up.
        if status.state != "connecting" and not self.tried:
            self.tried, self.first_failure = True, status.cause
        self.status = status
        self._changed(self)

    def down(self) -> TransportError:
        """Return the error for a call that can't be made now."""
        status = self.status
        if status.state == "closed":
            error: TransportError = SessionClosed("the connection is closed: the server was removed or the group ended")
        elif status.state == "connecting":
            error = TransportError("is not connected yet" + _because(status.cause))
        elif status.retry_at is None:
            error = TransportError("is not connected, and will not be retried" + _because(status.cause))
        else:
            seconds = max(0.0, status.retry_at - trio.current_time())
            error = TransportError(f"is not connected; the next attempt is in {seconds:.1f} s" + _because(status.cause))
        error.server = self.name
        # Each call gets a new error. The last failure, which the member keeps, is only its cause.
        error.__cause__ = status.cause
        return error


class Members:
    """All servers of a group.

    Args:
        require: As in `GroupOptions`.
        max_wait: Seconds that a call waits for its server to be connected, unless its own time limit is shorter.
        reconnect: The delays between attempts to connect.
        on_status: Called with a server's name and its new status.
        on_removed: Called with the name of each server that is removed.
        pinned: Whether the servers' tools are pinned.

    Attributes:
        by_name: The servers, by name.
    """

    def __init__(
        self,
        *,
        require: Require,
        max_wait: float,
        reconnect: Backoff,
        on_status: Callable[[str, ServerStatus], object] | None,
        on_removed: Callable[[str], None],
        pinned: bool = False,
    ) -> None:
        self._changed = trio.lowlevel.ParkingLot()
        self._require = require
        self._max_wait = max_wait
        self._reconnect = reconnect
        self._on_status = on_status
        self._on_removed = on_removed
        self._pinned = pinned
        self.by_name: dict[str, GroupMember] = {}
        self._nursery: trio.Nursery | None = None
        self._closing = False

    def named(self, name: str) -> GroupMember:
        """Return the server of a name.

        Raises:
            LocalProtocolError: If there is no such server.
        """
        member = self.by_name.get(name)
        if member is None:
            raise LocalProtocolError(f"there is no server {name!r} in the group{did_you_mean(name, self.by_name)}")
        return member

    # --- lifetime ------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Keep the servers connected while the block runs."""
        async with background_nursery(self.aclose) as nursery:
            self._nursery = nursery
            members = list(self.by_name.values())
            for member in members:
                # The name is shown in the program's task tree.
                nursery.start_soon(member.run, name=_task_name(member))
            await self._first_attempts(members)
            failures = {member.name: member.first_failure for member in members if member.first_failure is not None}
            # A group without servers does not fail: servers may be added later.
            if self._require == "any" and len(failures) == len(members) > 0:
                raise _none_of(failures)
            yield

    async def _first_attempts(self, members: list[GroupMember]) -> None:
        """Wait for the first attempts to connect to new servers, as ``require`` says.

        Raises:
            Exception: The failure of an attempt, if ``require`` can't be met because of it.
        """
        await trio.lowlevel.checkpoint()
        # The loop is woken at each change of status. The list of members is fixed, so a server that is added meanwhile
        # does not count.
        while self._require != "none":
            if self._require == "all":
                for member in members:
                    if member.first_failure is not None:
                        raise _raisable(member.name, member.first_failure)
            if all(member.tried for member in members):
                return
            await self._changed.park()

    async def aclose(self) -> None:
        """Close all connections; see `ClientGroup.aclose`."""
        # Closing a group before it is entered changes nothing: it can still be entered.
        self._closing = self._nursery is not None
        await self._end(list(self.by_name.values()))

    async def _end(self, members: Iterable[GroupMember]) -> None:
        if self._nursery is None:
            members = []  # the group was never entered: there are no tasks to end
        # All servers are asked before any is waited for, so that closing takes only as long as the slowest server.
        for member in members:
            member.ask_to_end()
        try:
            await trio.lowlevel.checkpoint()
            for member in members:
                await member.ended.wait()
        except trio.Cancelled:
            # The members' tasks are in the group's nursery, so they are not cancelled along with the task that called
            # `remove`.
            for member in members:
                member.end_now()
            raise

    # --- servers that come and go ----------------------------------------------------------------------------------

    def new(self, name: str, target: Target, options: Mapping[str, Any]) -> GroupMember:
        """Add a server without connecting to it.

        Raises:
            TypeError, ValueError: If an argument is invalid, or there is already a server of that name.
        """
        check_text("a server's name", name)
        if name in self.by_name:
            raise ValueError(f"there is already a server {name!r} in the group; remove it first, or use another name")
        member = self.by_name[name] = GroupMember(
            name, target, options, self._reconnect, self._status_changed, pinned=self._pinned
        )
        return member

    async def add(self, name: str, target: Target, options: Mapping[str, Any]) -> None:
        """Add a server and connect to it; see `ClientGroup.add`."""
        if self._nursery is None or self._closing:
            raise LocalProtocolError("servers can be added only inside `async with ClientGroup(...) as group:`")
        member = self.new(name, target, options)
        self._nursery.start_soon(member.run, name=_task_name(member))
        try:
            # With `require="any"` or `"none"`, `add` does not raise if the attempt fails: the server stays in the group
            # and is tried again.
            await self._first_attempts([member])
            # The state is "closed" if the server was removed, or the group was closed, during the first attempt.
            if member.status.state == "closed":
                raise member.down()
        except BaseException:
            member.end_now()
            # During the wait, the server may have been removed and another one added under its name, which must stay.
            if self.by_name.get(name) is member:
                self._drop(name)
            raise

    async def remove(self, name: str) -> None:
        """Remove a server and close its connection; see `ClientGroup.remove`."""
        member = self.named(name)
        # The name is released before the wait, so that it is free at once.
        self._drop(name)
        await self._end([member])

    def _drop(self, name: str) -> None:
        del self.by_name[name]
        self._on_removed(name)

    def _status_changed(self, member: GroupMember) -> None:
        self._changed.unpark_all()
        if self._on_status is not None:
            try:
                self._on_status(member.name, member.status)
            except Exception:  # the program's callback must not end the task that keeps a server connected
                logger.exception("on_status failed")

    async def client(self, name: str, limits: CallLimits) -> tuple[Client, CallLimits]:
        """Return the client of a server, waiting for it if it could be connected soon.

        Args:
            name: The name of the server.
            limits: The limits of the call that the client is for. The wait is no longer than these allow.

        Returns:
            The client, and the limits that are left for the call.

        Raises:
            TransportError: If the server is not connected in time; the error says why.
        """
        member = self.named(name)
        if (client := member.client) is not None:
            return client, limits
        whole, began = Limits.of(member.usual, limits), trio.current_time()
        client = await self._wait_for(member, min(self._max_wait, whole.patience))
        if whole.total_timeout is None:
            return client, limits
        # The wait does not count towards `timeout`, which is for a single response. On a busy machine, the wait may
        # have used up all of `total_timeout`.
        left = max(began + whole.total_timeout - trio.current_time(), LEAST_LEFT)
        return client, {**limits, "total_timeout": left}

    async def _wait_for(self, member: GroupMember, most: float) -> Client:
        if self._nursery is None:
            raise LocalProtocolError("the group is not connected: use it as `async with ClientGroup(...) as group:`")
        deadline = trio.current_time() + most
        with trio.move_on_at(deadline):
            # The status is checked at each change, because waiting is pointless once the next attempt is after the
            # deadline.
            while not _is_hopeless(member.status, deadline):
                if (client := member.client) is not None:
                    return client
                await self._changed.park()
        # Either the deadline has passed, or waiting until then can't help. The status says why in both cases.
        raise member.down()


class ConnectedClients(Mapping[str, Client]):
    """The clients of the servers that are connected now, by name."""

    def __init__(self, members: Mapping[str, GroupMember]) -> None:
        self._members = members

    def __getitem__(self, name: str) -> Client:
        member = self._members.get(name)
        if member is None:
            raise KeyError(f"there is no server {name!r} in the group{did_you_mean(name, self._members)}")
        if member.client is None:
            # A mapping must raise KeyError for a missing key; the text says why the server is missing.
            raise KeyError(str(member.down()))
        return member.client

    def __iter__(self) -> Iterator[str]:
        # The names are put into a list, because servers may come and go while the caller iterates.
        return iter([name for name, member in self._members.items() if member.client is not None])

    def __len__(self) -> int:
        return sum(1 for _ in self)


def _task_name(member: GroupMember) -> str:
    return f"server {member.name!r} of a group"


def _is_hopeless(status: ServerStatus, deadline: float) -> bool:
    """Return whether a server can't be connected to before the deadline."""
    late = status.retry_at is None or status.retry_at > deadline
    return status.state == "closed" or (status.state == "failed" and late)


def _raisable(name: str, failure: Exception) -> Exception:
    if not isinstance(failure, TrioMcpError):
        # Errors of the library have an attribute for the server's name; any other exception gets the name as a note.
        failure.add_note(f"while connecting to the server {name!r} of a group")
    return failure


def _none_of(failures: Mapping[str, Exception]) -> Exception:
    if len(failures) == 1:
        return _raisable(*next(iter(failures.items())))
    reasons = "".join(f"\n  {name!r}: {_plain_text(failure)}" for name, failure in failures.items())
    return TransportError(f"could not connect to any of the group's servers:{reasons}")


def _because(cause: Exception | None) -> str:
    return "" if cause is None else f": {_plain_text(cause)}"


def _plain_text(cause: Exception) -> str:
    """Return an exception's message without the name of the server."""
    if not isinstance(cause, TrioMcpError):
        return f"{type(cause).__name__}: {cause}"
    # The name is removed, because the message that quotes the exception already names the server.
    return str(cause).removeprefix(f"server {cause.server!r}: ")
