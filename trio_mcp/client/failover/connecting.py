"""Use one of several ways to the server: its task connects, opens the session, and watches over the link."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Final

import trio

from trio_mcp._log import logger
from trio_mcp.client.failover.carrier import Carrier
from trio_mcp.client.failover.failures import brief_cause, detail, is_busy, is_ending
from trio_mcp.client.failover.open_link import OpenLink
from trio_mcp.client.failover.parameters import FailoverParameters, WayState, WayStatus
from trio_mcp.client.failover.router import Router
from trio_mcp.client.failover.traffic import INITIALIZED
from trio_mcp.client.failover.ways import MAX_FAILED, Phase
from trio_mcp.errors import McpError, TransportError
from trio_mcp.jsonrpc.messages import (
    ErrorData,
    ErrorResponse,
    Notification,
    Request,
    RequestId,
    Response,
    SessionMessage,
    TransportFailure,
)
from trio_mcp.link import Link
from trio_mcp.retrying import asks_anew
from trio_mcp.stopwatch import Stopwatch, TimeLimit, current_stopwatch

__all__ = ["Way"]

WINDOW: Final = 16
"""How many of the requests that restore a session are under way at once: fewer than a link buffers, so that sending
them does not wait."""

LATE: Final = 1.0
"""Seconds by which a check may overrun its deadline. If the check is even later, this process was delayed, not the
server."""

STEPS: Final = 8
"""How many parts the wait for the very first response is divided into. An arbitrary choice."""

MOST_DOUBLINGS: Final = 4
"""How many times the period in which a way must prove itself is doubled at most. An arbitrary choice.

The number also bounds the exponent in the time limit of an attempt to connect.
"""

MOST_TIME: Final = 4
"""The longest time limit of an attempt to connect, in multiples of `attempt_timeout`.

An attempt that hangs must not delay the next one for long.
"""


class Way:
    """One of the ways in which the server can be reached.

    Args:
        place: The place of this way in the list; 0 is the best.
        name: The name of this way.
        connect: Opens a link that uses this way.
        router: The I/O of the session.
        settings: The parameters, including all time limits.
        others: All ways of the list, in order.

    Attributes:
        state: What the way is doing; see `WayStatus`.
        cause: The last failure of the way; None if it has not failed yet.
        attempt_since: When the attempt to connect that is under way began; None if there is no attempt.
        retry_at: The time before which the way is not tried again.
        doubted: Whether the session left the way because calls failed on it, and it has not worked since.
    """

    def __init__(
        self,
        place: int,
        name: str,
        connect: Callable[[], AbstractAsyncContextManager[Link]],
        router: Router,
        settings: FailoverParameters,
        others: Sequence[Way],
    ) -> None:
        self.place = place
        self.name = name
        self.state: WayState = "idle"
        self.cause: Exception | None = None
        self.attempt_since: float | None = None
        self.retry_at = -math.inf
        self.doubted = False
        self._connect = connect
        self._watch = current_stopwatch()
        self._router = router
        self._settings = settings
        self._others = others
        self._failures = 0
        # How many times in a row this way has failed soon after the session had returned to it.
        self._relapses = 0
        self._reported = ""
        self._use: _Use | None = None

    @property
    def status(self) -> WayStatus:
        return WayStatus(self.name, self.state, self.cause)

    # --- when it is tried ------------------------------------------------------------------------------------------

    def _start_at(self) -> float:
        """Return the time at which to connect, according to the current state of all ways."""
        carrier = self._router.ways.carrier
        if carrier is not None:
            return self.retry_at if self.place < carrier.place else math.inf
        now, at = self._watch.time(), self.retry_at
        for better in self._others[: self.place]:
            if better.attempt_since is not None:
                at = max(at, better.attempt_since + self._settings.head_start)
            elif better.state in ("idle", "failed") and better.retry_at <= now:
                at = max(at, now + self._settings.head_start)  # the better way is about to be tried
        return at

    async def run(self) -> None:
        """Connect whenever this way is needed, until the session ends."""
        router = self._router
        while router.ways.phase < Phase.FAILED:
            if (start := self._start_at()) > self._watch.time():
                with TimeLimit(self._watch, start):
                    await router.changed.wait()
                continue
            await self._attempt()
            router.notify()

    def stop(self) -> None:
        """Give up an attempt to connect, or gracefully close a link that carries or has carried the session."""
        if self._use is not None:
            # The scope `work` is inside the link's block. If only `work` is cancelled, the link's block ends normally,
            # so that the transport can close gracefully and send the last messages.
            scope = self._use.work if self.state in ("carrying", "draining") else self._use.scope
            scope.cancel("the block has ended")

    async def _attempt(self) -> None:
        """Connect once, and stay connected as long as this way is needed."""
        began = self.attempt_since = self._watch.time()
        self.state = "connecting"
        self._router.notify()
        # The exponent is bounded as well: after thousands of failures the power would have thousands of bits.
        limit = self._settings.attempt_timeout * min(2 ** min(self._failures, MOST_DOUBLINGS), MOST_TIME)
        use = self._use = _Use(self, self._router, self._settings, limit, self._watch)
        cause: Exception | None = None
        try:
            use.scope.deadline = began + limit
            with use.scope:
                async with self._connect() as link:
                    await use.run(link)
        # A transport that the application provides may raise any exception, and must make only this way fail.
        except Exception as exc:
            cause = exc
        finally:
            self.state, self.attempt_since, self._use = "idle", None, None
        carrier = use.carrier
        # If the link was lost or left, that cause takes precedence: leaving the block of a broken link may raise an
        # error that says less.
        if carrier is not None and carrier.lost is not None:
            cause = carrier.lost
        elif carrier is not None and carrier.left is not None:
            cause = carrier.left
        # The link was neither lost nor left. So either the scope has reached its deadline, or the whole block has
        # ended; in the second case, the cause doesn't matter.
        elif use.scope.cancelled_caught:
            cause = TransportError(f"the attempt to connect got no response within {limit:g} seconds")
        if carrier is not None:
            self.doubted = carrier.failing or (self.doubted and (carrier.failed > 0 or not use.proven))
            self._router.ways.end_draining(carrier)
            self._router.ways.lose(carrier, cause or TransportError("the session has left the link"))
        if cause is None:
            self._failures = 0  # the way has not failed: it was no longer needed
        else:
            self._note_failure(cause, use)

    def _note_failure(self, cause: Exception, use: _Use) -> None:
        self.state, self.cause = "failed", cause
        now, lasted = self._watch.time(), use.carried_for()
        # If calls have failed on this way, having carried the session for a long time does not prove that it works.
        if lasted >= self._settings.settle and not self.doubted:
            self._failures = self._relapses = 0
        # A failure is a relapse only if the session had returned to this way while another one worked, not if this way
        # carried the session because no other could.
        elif use.proven:
            self._relapses = min(self._relapses + 1, MOST_DOUBLINGS)
        wait = self._settings.backoff.wait(self._failures, random.random)
        self._failures += 1
        self.retry_at = math.inf if wait is None or asks_anew(cause) else now + wait
        text = f"{self.name} can't carry the session: {brief_cause(cause)}"
        logger.debug("%s", text)
        # A refusal is reported once, and not again at each attempt.
        if use.refused and text != self._reported:
            self._reported = text
            self._router.report(text)

    @property
    def settle(self) -> float:
        """Seconds for which the way must work before the session returns to it, doubled for each relapse."""
        return float(self._settings.settle * 2**self._relapses)


class _Use:
    """One connection that uses one of the ways to the server, from its opening to its end.

    Args:
        way: The way that the connection uses.
        router: The I/O of the session.
        settings: The parameters, including all time limits.
        limit: Seconds that the server has for its first response.
        watch: The clock for all time limits.

    Attributes:
        work: The scope in which the link carries the session and then drains; cancelled to close the link gracefully.
        scope: The scope of the whole connection. Its deadline limits the opening; it is lifted when the link can carry.
        carrier: The state of the link; None before the link is open.
        refused: Whether the server refused the session, or is not the one that the session was opened with.
        proven: Whether the link proved itself before it carried the session.
    """

    def __init__(self, way: Way, router: Router, settings: FailoverParameters, limit: float, watch: Stopwatch) -> None:
        self._way = way
        self._router = router
        self._ways = router.ways
        self._traffic = router.traffic
        self._settings = settings
        self._limit = limit
        self._watch = watch
        self.carrier: Carrier | None = None
        self.scope = TimeLimit(watch)
        self.work = trio.CancelScope()
        self.refused = self.proven = False
        self._since = math.inf
        self._until: float | None = None

    def carried_for(self) -> float:
        """Return for how many seconds the link has carried the session."""
        return max(0.0, (self._watch.time() if self._until is None else self._until) - self._since)

    async def run(self, link: Link) -> None:
        """Use the link as long as it is needed."""
        ways, way = self._ways, self._way
        carrier = self.carrier = Carrier(way.place, way.name, OpenLink(link, self.scope))
        # The link is added to `ways.open` before it can carry the session. From now on, the session's reader waits in
        # such a manner that another link can wake it.
        ways.open[carrier] = None
        if not await self._prepare(carrier):
            return
        # The session returns to this way although another one works, so one more failed call is enough to leave it
        # again.
        if way.doubted and self.proven:
            carrier.failed = MAX_FAILED - 1
        # The state is set before `activate`, which calls `on_switch`: the hook may look at `client.transport`.
        way.state, way.attempt_since = "carrying", None
        self._since = self._watch.time()
        ways.activate(carrier)
        with self.work:
            await self._carry(carrier)
            self._until = self._watch.time()
            if carrier is ways.draining:
                way.state = "draining"
                await self._drain(carrier)

    # --- before it carries -----------------------------------------------------------------------------------------

    async def _prepare(self, carrier: Carrier) -> bool:
        """Open the session on the link, and wait until the link may carry it; return False if the link is not
        needed."""
        ways, router, remembered = self._ways, self._router, self._traffic.remembered
        began = self._watch.time()
        if router.bound and ways.carrier is not None:
            router.free_reader()
            await self._read_while(carrier, lambda: router.bound and not ways.closing)

        def negotiating() -> bool:
            return ways.carrier is not None and remembered.server is None and not ways.closing

        if negotiating():
            # The way has connected, but can't open the session before the session has been negotiated on another link.
            self.scope.deadline = math.inf
            await self._read_while(carrier, negotiating)
        if remembered.server is not None:
            self.scope.deadline = self._watch.time() + self._limit
            await self._open_session(carrier)
        while True:  # noqa: ASYNC913 - a pass that does not return waits for proof or restores
            if ways.carrier is not None:
                self.scope.deadline = math.inf
                if not await self._prove(carrier, began):
                    return False
            if carrier.opened_here:
                # Subscriptions are restored as late as possible, because the session may have added some in the
                # meantime.
                self.scope.deadline = self._watch.time() + self._limit
                await self._restore(carrier)
            # While `_prove` and `_restore` were waiting, another link may have taken over, or begun to drain.
            current = ways.carrier
            if current is None or (self.proven and current.place > carrier.place and ways.draining is None):
                self.scope.deadline = math.inf
                return not ways.closing

    async def _prove(self, carrier: Carrier, began: float) -> bool:
        """Wait until the link has worked for a while, or no link carries the session.

        Returns:
            False if the link is not needed any more.
        """
        ways, settings = self._ways, self._settings
        self._way.state, self._way.attempt_since = "proving", None
        while not ways.closing:
            current = ways.carrier
            if current is None:
                return True
            if current.place <= carrier.place:
                return False
            ready = began + self._way.settle
            # Only one link drains at a time, so that calls are never in flight on more than two links.
            if self._watch.time() >= ready and ways.draining is None:
                self.proven = True
                return True
            # While another link drains, `ready` may already be in the past, and waiting until `ready` would not wait at
            # all.
            pause = settings.check_after if ways.draining is not None else ready - self._watch.time()

            def unchanged(current: Carrier = current) -> bool:
                return ways.carrier is current and not ways.closing

            await self._read_while(carrier, unchanged, self._watch.time() + min(settings.check_after, pause))
            # The link is asked for a sign of life even at the end of the proving time, because silence alone does not
            # prove that it works.
            if ways.carrier is current:
                await self._ask_for_life(carrier)
        return False

    async def _ask_for_life(self, carrier: Carrier) -> None:
        """Ask a link that does not carry the session for a sign of life.

        Raises:
            TransportError: If the link gives no sign of life, or its server says that it is shutting down.
        """
        with self._watch.limit(self._settings.check_timeout) as limit:
            try:
                await self._ask(carrier, *self._sign_of_life())
            except McpError as exc:
                # Any error response is a sign of life as well, unless it says that the server is shutting down.
                if _says_ending(exc):
                    # The cause, an `McpError`, tells `_drain` that the server still responds.
                    raise TransportError(exc.message) from exc
        if limit.cancelled_caught:
            raise TransportError(f"the link gave no sign of life within {self._settings.check_timeout:g} seconds")

    def _sign_of_life(self) -> tuple[str, dict[str, Any] | None]:
        """Return the method and parameters of the request for a sign of life, which costs the server little."""
        remembered = self._traffic.remembered
        # The modern era has no `ping` request.
        return remembered.opening() if remembered.modern else ("ping", None)

    async def _open_session(self, carrier: Carrier) -> None:
        remembered = self._traffic.remembered
        method, params = remembered.opening()
        try:
            result = await self._ask(carrier, method, params)
        except McpError as exc:
            # A server that refuses because it is shutting down may be the right one, so its refusal is not reported to
            # the application.
            self.refused = not _says_ending(exc)
            raise TransportError(f"the server refused the session: {exc}") from exc
        try:
            remembered.check_same(result)
        except Exception:
            self.refused = True
            raise
        if not remembered.modern:
            # The session has sent `notifications/initialized` only on its first link, but the server expects it after
            # each `initialize` (`basic/lifecycle`).
            await self._router.hand_over(carrier, SessionMessage(Notification(INITIALIZED)))
        carrier.opened_here = True

    async def _restore(self, carrier: Carrier) -> None:
        remembered = self._traffic.remembered
        if remembered.modern:
            return
        requests = remembered.restoring()
        for first in range(0, len(requests), WINDOW):
            window = requests[first : first + WINDOW]
            for (method, params), response in zip(window, await self._ask_all(carrier, window), strict=True):
                if isinstance(response, ErrorResponse):
                    what = params.get("uri", params.get("level"))
                    why = response.error.message[:500]
                    self._router.report(f"{self._way.name} refused to restore {what!r} ({method}): {why}")

    async def _ask(self, carrier: Carrier, method: str, params: dict[str, Any] | None) -> dict[str, Any]:
        """Send one of the failover's own requests on a link that does not carry the session, and return its result."""
        (response,) = await self._ask_all(carrier, [(method, params)])
        if isinstance(response, ErrorResponse):
            raise McpError(response.error.code, response.error.message, response.error.data)
        return response.result

    async def _ask_all(
        self, carrier: Carrier, requests: Sequence[tuple[str, dict[str, Any] | None]]
    ) -> list[Response | ErrorResponse]:
        ids = [self._traffic.own_id() for _ in requests]
        for request_id, (method, params) in zip(ids, requests, strict=True):
            await self._send_own(carrier, request_id, method, params)
        await self._read_while(carrier, lambda: any(carrier.own[each] is None for each in ids))
        outcomes = [carrier.own.pop(each) for each in ids]
        for outcome in outcomes:
            if isinstance(outcome, TransportFailure):
                raise outcome.error
        return outcomes  # type: ignore[return-value]

    async def _send_own(
        self, carrier: Carrier, request_id: RequestId, method: str, params: dict[str, Any] | None
    ) -> None:
        """Send one of the failover's own requests, whose responses the session never sees."""
        # The entry in `own` is made before the request is sent: it distinguishes our own requests from the session's.
        carrier.own[request_id] = None
        await self._router.hand_over(carrier, SessionMessage(Request(request_id, method, params)))

    async def _read_while(self, carrier: Carrier, wanted: Callable[[], bool], until: float = math.inf) -> None:
        """Read the messages of a link that does not carry the session, while ``wanted()`` is true."""
        link = carrier.link
        while wanted() and self._watch.time() < until:
            with TimeLimit(self._watch, until) as link.pause:
                try:
                    item = await link.read.receive()
                except (trio.EndOfChannel, trio.BrokenResourceError, trio.ClosedResourceError) as exc:
                    self._ways.lose(carrier, TransportError(f"the server closed the link{detail(exc)}"))
                    await trio.lowlevel.checkpoint()  # raises `Cancelled`, as `lose` has cancelled the link's scope
            pause, link.pause = link.pause, None
            # `cancel_called` would be the wrong test: it is also true if the wait was cancelled just after a message
            # had been received, and that message would be lost.
            if not pause.cancelled_caught:
                await self._router.pass_on(carrier, item)
                del item  # otherwise a long message would stay in memory until the next one arrives

    # --- while it carries ------------------------------------------------------------------------------------------

    async def _carry(self, carrier: Carrier) -> None:
        """Watch over the link while it carries the session, which reads the messages itself."""
        ways, settings = self._ways, self._settings
        if not carrier.opened_here:
            await self._first_response(carrier)
        seen, check_at = carrier.received, self._watch.time() + settings.check_after
        while ways.carrier is carrier and not ways.closing:
            silent = carrier.received == seen
            due = carrier.suspected or (silent and self._watch.time() >= check_at)
            if due:
                await self._check(carrier)
            # The check comes before the repetition: a link in doubt has to give a sign of life before anything is tried
            # on it again.
            if due or carrier.flushing:
                until = self._watch.time() + self._traffic.pause
                while ways.carrier is carrier and self._watch.time() < until:
                    await self._pause(carrier, until)
            if carrier.flushing:
                await self._router.flush(carrier)
            if not silent or self._watch.time() >= check_at:
                seen, check_at = carrier.received, self._watch.time() + settings.check_after
            await self._pause(carrier, check_at)
        if ways.closing:
            await trio.sleep_forever()  # the session may still read the server's last messages

    async def _first_response(self, carrier: Carrier) -> None:
        """Wait for the first response on a link on which the session itself sends the opening requests."""
        ways, asked_at = self._ways, math.inf
        while ways.carrier is carrier and not (carrier.received or ways.closing):
            if carrier.flushing:
                await self._router.flush(carrier)
            now = self._watch.time()
            # The server owes no response until it has a request, so the time limit starts with the first request.
            asked_at = min(asked_at, now) if carrier.in_flight else math.inf
            if now >= asked_at + self._limit:
                ways.lose(carrier, TransportError(f"the link gave no response within {self._limit:g} seconds"))
            # The wait is divided into short ones, because the first request may be sent at any time.
            await self._pause(carrier, now + self._limit / STEPS)

    async def _check(self, carrier: Carrier) -> None:
        """Ask for a sign of life, and give up the link if it gives none."""
        ways, patience = self._ways, self._settings.check_timeout
        seen, probe = carrier.received, self._traffic.own_id()
        # `suspected` is reset before the request is sent, because a doubt that arises afterwards requires another
        # request.
        carrier.suspected = False
        with self._watch.limit(patience) as limit:
            try:
                # If the link's buffer is full, `_send_own` waits, which counts towards the time limit, too.
                await self._send_own(carrier, probe, *self._sign_of_life())
            except (trio.BrokenResourceError, trio.ClosedResourceError) as exc:
                ways.lose(carrier, TransportError(f"the link takes no more messages: {exc}"))
            while carrier.own.get(probe, carrier) is None and ways.carrier is carrier:
                await self._pause(carrier, math.inf)
        carrier.own.pop(probe, None)
        if ways.carrier is not carrier:
            return  # the session has left the link in the meantime, and `_drain` checks it now
        # A message about a call is a sign of life, too: a busy server may be late with its response to the check, and
        # still report progress.
        if carrier.received == seen and self._watch.time() <= limit.deadline + LATE:
            ways.lose(
                carrier, TransportError(f"the link gave no sign of life for {patience:g} seconds when asked for one")
            )
        elif carrier.received == seen or carrier.in_doubt:
            carrier.suspected = True  # the link has to be asked again

    # --- after it has carried ----------------------------------------------------------------------------------------

    async def _drain(self, carrier: Carrier) -> None:
        """Let the calls on a link finish there, after another link has taken over."""
        ways, traffic = self._ways, self._traffic
        # The session's reader may still be in `receive` on this link: its wait has been cancelled, but ends only after
        # a checkpoint.
        await trio.lowlevel.checkpoint()
        while not traffic.drained(carrier) and not ways.closing:
            seen = carrier.received
            await self._read_while(
                carrier,
                lambda: not (traffic.drained(carrier) or carrier.suspected or ways.closing),
                self._watch.time() + self._settings.check_after,
            )
            if carrier.suspected or (carrier.received == seen and not traffic.drained(carrier)):
                carrier.suspected = False
                try:
                    await self._ask_for_life(carrier)
                except TransportError as exc:
                    # A server that accepts no new requests may still finish those that it has begun.
                    if carrier.left is None or not (is_busy(exc) or isinstance(exc.__cause__, McpError)):
                        raise

    async def _pause(self, carrier: Carrier, until: float) -> None:
        """Wait until a time, or until something has changed."""
        with TimeLimit(self._watch, until) as carrier.link.pause:
            await trio.sleep_forever()
        carrier.link.pause = None


def _says_ending(exc: McpError) -> bool:
    return is_ending(ErrorData(exc.code, exc.message, exc.data))
