"""Parked handlers: they stay where they asked, and the request that brings the answer resumes them (modern era)."""

from __future__ import annotations

import logging
import math
import secrets
from typing import TYPE_CHECKING, Any

import trio

from trio_mcp.errors import McpError
from trio_mcp.server.functions.handling import run
from trio_mcp.server.input.rounds import RoundEnded, Rounds, connection_of
from trio_mcp.types.error_codes import INTERNAL_ERROR, INVALID_PARAMS, OVERLOADED

if TYPE_CHECKING:
    from trio_mcp.server.context import Context
    from trio_mcp.server.core import ServerCore
    from trio_mcp.server.functions.signature import Bound
    from trio_mcp.server.input.asking import InputRequest
    from trio_mcp.server.input.request_state import Question, RequestState

__all__ = ["ParkedRounds", "resume"]

logger = logging.getLogger("trio_mcp")


class ParkedRounds(Rounds):
    """The rounds of a function that runs once: in the nursery of the server's run, under one request at a time.

    The request that it serves waits for it, and cancels it when cancelled. Between two requests it is cancelled at a
    deadline only, or when the run ends.
    """

    def __init__(
        self, server: ServerCore, context: Context[Any], earlier: RequestState | None, bound: Bound, is_async: bool
    ) -> None:
        super().__init__(server, context, earlier)
        self._bound = bound
        self._is_async = is_async
        self._scope = trio.CancelScope()
        self._serving = connection_of(context).serving
        self._id: str | None = None
        self._live = True  # there is a request that waits for it
        self._waiting: dict[str, tuple[InputRequest[Any], Question]] = {}
        self._answered = trio.lowlevel.ParkingLot()
        self._changed = trio.Event()
        self._done = False
        self._value: Any = None
        self._error: Exception | None = None
        self._taken = trio.Event()
        self._ended = trio.Event()

    # --- in the function's tasks ---------------------------------------------------------------------------------

    async def _obtain(self, missing: dict[str, InputRequest[Any]], questions: dict[str, Question]) -> None:
        self.check_round()
        if self._id is None:
            self._check_room()
            self._enter()
        self._waiting.update({key: (request, questions[key]) for key, request in missing.items()})
        self._changed.set()

        async def answered() -> None:
            while any(key in self._waiting for key in missing):
                await self._answered.park()

        try:
            await self._wait(answered)
        finally:
            for key in missing:
                self._waiting.pop(key, None)  # no longer wanted, if it has not been answered
            if not self._waiting and self._live:
                self._leave()

    async def _run(self) -> None:
        """The function's task: nothing that the function raises may leave it, for the nursery is everybody's."""
        try:
            with self._scope:
                try:
                    self._value = await run(self._bound, self._is_async, self.server)
                except RoundEnded:
                    self._error = _unanswered()
                except BaseExceptionGroup as group:
                    rest = group.split(RoundEnded)[1]
                    if rest is not None and not isinstance(rest, Exception):
                        raise rest from None
                    self._error = rest or _unanswered()
                except Exception as exc:
                    self._error = exc
                finally:
                    self.close()
                self._done = True
                self._changed.set()
                await self._taken.wait()
        except Exception as exc:
            logger.error("a parked handler of %r failed when cancelled", self.context.method, exc_info=exc)
        except BaseExceptionGroup as group:
            cancelled, failures = group.split(trio.Cancelled)
            if cancelled is None or not isinstance(failures, ExceptionGroup):
                raise
            logger.error("a parked handler of %r failed when cancelled", self.context.method, exc_info=failures)
            raise cancelled from None
        finally:
            self._leave()
            self._changed.set()
            self._ended.set()

    # --- in the request's task -----------------------------------------------------------------------------------

    def start(self) -> None:
        """Start the function.

        Raises:
            McpError: There are too many parked ones: -31429.
        """
        self._check_room()
        self.context._rounds = self
        self._serving.nursery.start_soon(self._run, name=f"parked {self.context.method}")

    async def serve(self) -> Any:
        """Wait for what the function returns or raises, or asks. When cancelled, so is the function, to its end."""
        parked = False
        try:
            while not self._done and not self._waiting:
                if self._ended.is_set():
                    raise McpError(INTERNAL_ERROR, "the server ends, and the handler with it")
                await self._changed.wait()
                self._changed = trio.Event()
            if self._done:
                if self._error is not None:
                    raise self._error
                return self._value
            requests = {key: request for key, (request, _) in self._waiting.items()}
            asked = self.asked(requests, self._id)
            self._scope.deadline = trio.current_time() + self.seconds(requests)
            parked, self._live = True, False
            return asked
        except trio.Cancelled as exc:
            self._scope.cancel(exc.reason)
            raise
        finally:
            if not parked:
                self._taken.set()
                if not self._done:
                    self._scope.cancel("its request has ended")
                # As any function, it ends before its request does.
                with trio.CancelScope(shield=True):
                    await self._ended.wait()

    def resume(self, context: Context[Any], responses: dict[str, Any]) -> None:
        """Go on under another request.

        Raises:
            McpError: A response is malformed: -32602, and nothing has happened.
        """
        for key, data in responses.items():
            if key in self._waiting:
                self._take(key, self._waiting[key][1], data)
        self._leave()  # once only
        self.context.go_on_as(context)
        self._live = True
        self._scope.deadline = math.inf
        for key in responses:
            self._waiting.pop(key, None)
        if self._waiting:
            self._enter()  # some responses are missing, and are asked for again
        self._answered.unpark_all()

    # --- the run's table -----------------------------------------------------------------------------------------

    def _check_room(self) -> None:
        most = self.host.max_parked
        if len(self._serving.parked) >= most:
            raise McpError(OVERLOADED, f"{most} handlers are waiting for input, which is the limit; try again later")

    def _enter(self) -> None:
        self._id = secrets.token_urlsafe(16)
        self._serving.parked[self._id] = self

    def _leave(self) -> None:
        if self._id is not None:
            self._serving.parked.pop(self._id, None)
            self._id = None


def _unanswered() -> McpError:
    return McpError(INTERNAL_ERROR, "the handler waited for input that nobody can give any more")


def resume(context: Context[Any], parked: str, responses: dict[str, Any]) -> ParkedRounds:
    """Hand a request to the parked function that it belongs to. `ParkedRounds.serve` it then.

    Raises:
        McpError: It is not there: -32602.
    """
    rounds = connection_of(context).serving.parked.get(parked)
    if rounds is None or rounds._scope.cancel_called:
        raise McpError(
            INVALID_PARAMS,
            "nothing waits for this requestState any more: it was used before, its time was up, or it is another "
            "process's; make the request again without it",
        )
    rounds.resume(context, responses)
    return rounds
