"""One run of a function that may become a task, or continues one: its lease, its journal, its rounds of input.

Until the task is created, the request that began the run waits for it, and cancels it. From then on, the engine
supervises the run, and renews its lease. When the function asks a question, the run ends, like a round of a call; the
process that claims the task after the answer begins a new run.
"""

from __future__ import annotations

import contextlib
import hashlib
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Protocol

import attrs
import trio
from pydantic_core import PydanticSerializationError, to_json

from trio_mcp._log import logger
from trio_mcp.errors import McpError
from trio_mcp.extensions.tasks.context import TaskContext
from trio_mcp.extensions.tasks.errors import ENDED
from trio_mcp.extensions.tasks.options import TaskOptions
from trio_mcp.extensions.tasks.records import (
    Journal,
    StoredCall,
    entry_size,
    error_bytes,
    key_of,
    new_id,
    once_entry,
    owner_of,
    state_entry,
)
from trio_mcp.server.extensions import ExtensionRun
from trio_mcp.server.functions.function import Call, single
from trio_mcp.server.input.options import Asked, InputRequired
from trio_mcp.server.input.questions import InputRequest, UrlElicitationRequired
from trio_mcp.server.input.request_state import Question, RequestState
from trio_mcp.server.input.rounds import ReplayedRounds, earlier_rounds
from trio_mcp.server.log_messages import CURRENT
from trio_mcp.server.task_policy import TaskPolicy
from trio_mcp.session.handlers import error_for
from trio_mcp.stores.contract import JournalEntry, StaleWriter, StoreBusy, StoredTask, StoreError, StoreFull, Stores
from trio_mcp.types.error_codes import INTERNAL_ERROR, OVERLOADED

__all__ = ["TaskRun"]

QUIET = 0.5
"""Seconds between two changes of a task's message (arbitrary): functions may report progress more often than clients
poll."""

PAUSE = 1.0
"""Seconds between two attempts to use a store that fails (arbitrary)."""

MOMENT = 0.1
"""Seconds for which a look at a task waits for its outcome to be stored (arbitrary): a commit takes far less."""

CANCELLED = "cancelled by the client"

AS_CANCELLED: dict[str, Any] = {"status": "cancelled", "token": "", "message": CANCELLED, "cancelling": False}
"""The changes that end a task as cancelled."""

SUSPENDED: dict[str, Any] = {"resultType": "input_required"}


class EngineOfRun(Protocol):
    """The part of a `TaskEngine` that a run uses."""

    host: ExtensionRun
    stores: Stores
    options: TaskOptions
    running: dict[str, TaskRun]
    ending: bool

    def holds(self, run: TaskRun, before: float) -> None:
        """Renew the lease of a run from now on."""

    def ended(self, run: TaskRun) -> None:
        """Forget a run that has ended."""

    def changed(self, task: StoredTask) -> None:
        """Announce that this process has changed a task."""

    async def confirmed(self, run: TaskRun) -> None:
        """Wait until this process certainly holds the lease of a run."""

    def scopes_of(self, name: object) -> frozenset[str]:
        """Return the scopes that a tool needs."""


class TaskRun:
    """A run of a tool's function that is, or may become, a task.

    Args:
        engine: The engine of the server's run.
        policy: The policy of the tool.
        task: The task; None if it has not been created yet.
        journal: The answers and ``once`` values of earlier runs.

    Attributes:
        task: The task as it was last read or written.
        id: The id of a task that this run creates; empty in a run that continues one.
        settled: Set when the run has created its task, or has ended without one.
        outcome: The result or the exception of a run that has ended without a task.
        scope: The scope of the function.
    """

    def __init__(
        self, engine: EngineOfRun, policy: TaskPolicy, task: StoredTask | None = None, journal: Journal | None = None
    ) -> None:
        self.engine = engine
        self.policy = policy
        self.task = task
        self.journal = Journal() if journal is None else journal
        self.id = new_id() if task is None else ""
        self.key = (key_of(self.id) or "") if task is None else task.key
        self.context: TaskContext
        self.settled = trio.Event()
        self.outcome: dict[str, Any] | Exception | None = None
        self.scope = trio.CancelScope()
        self._token = "" if task is None else task.token
        self._why: str | None = None
        self._lock = trio.Lock()  # held while the journal and the task are written
        self._questions: dict[str, InputRequest[Any]] | None = None
        self._rounds: TaskRounds | None = None
        self._unread = set(self.journal.answers)
        self._ahead = set(self.journal.memory)  # the steps of earlier runs that this one has not come to yet
        self._said: str | None = None
        self._speaking = False  # whether a message waits for its turn
        self._saying = -math.inf
        self._over = False
        self._stored = trio.Event()
        self._refusal: McpError | None = None

    @property
    def name(self) -> str:
        """The name of the tool."""
        name: str = self.context.params["name"]
        return name

    @property
    def asks_as_task(self) -> bool:
        """Whether a question ends this run, and becomes a question of the task."""
        return self.task is not None or self.policy.mode != "manual"

    def step_key(self, name: str) -> str:
        """Return the key of a step; see `Context.step_key`."""
        if not isinstance(name, str):
            raise TypeError(f"name must be a string, got {type(name).__name__}")
        return hashlib.sha256(f"{self.key}\0{name}".encode("utf-8", "backslashreplace")).hexdigest()[:32]

    # --- the life of the run -------------------------------------------------------------------------------------

    async def serve(self) -> None:
        """Run the function to its end, and store the outcome; called in a task of the server's run."""
        result: dict[str, Any] | Exception = SUSPENDED
        if self.context.elsewhere:  # otherwise, the Trio task of the request has set it
            CURRENT.set((self.context, trio.lowlevel.current_trio_token()))
        try:
            with self.scope:
                # A function that returns its questions may act on any answer at once, so it begins immediately.
                if self.journal.explicit:
                    self._unread.clear()
                if self.task is not None and not self._unread:
                    await self.begin()
                result = await self.engine.host.call(self.context)
        except Exception as exc:
            result = single(exc)
        except BaseExceptionGroup as group:
            cancelled, failures = group.split(trio.Cancelled)
            if cancelled is None or not isinstance(failures, ExceptionGroup):
                raise
            logger.error("the tool %r failed when its task was cancelled", self.name, exc_info=failures)
        finally:
            # This also runs when the server ends, so that no lease is left in the store.
            with trio.CancelScope(shield=True):
                try:
                    await self._end(result)
                finally:
                    self.engine.ended(self)
                    self._stored.set()

    async def _end(self, result: dict[str, Any] | Exception) -> None:
        if self._refusal is not None:
            result, self._questions = self._refusal, None
        async with self._lock:
            self._over = True
            if self._why is None:
                self._why = self._interruption(result)
            try:
                if self.task is None and self._questions is None:
                    self.outcome = result
                elif self.task is None:
                    await self._add(status="input_required", questions=self._questions)
                else:
                    await self._store(result)
            except StaleWriter:
                logger.warning("another process has claimed a task of the tool %r", self.name)
            except McpError as exc:
                self.outcome = exc
            except Exception as exc:
                self.outcome = McpError(INTERNAL_ERROR, "the server could not store the task; try again later")
                logger.error("a task of the tool %r could not be stored", self.name, exc_info=exc)
            self.settled.set()

    def _interruption(self, result: dict[str, Any] | Exception) -> str | None:
        """Return why the function was interrupted; None if it has returned, raised or asked."""
        if self.scope.cancelled_caught:
            return "late"
        if result is SUSPENDED:
            return None if self._questions is not None else "ended"
        # The error of a function that was cancelled is not the outcome of its work.
        failed = isinstance(result, Exception) or result.get("isError") is True
        return "late" if failed and self.scope.cancel_called else None

    async def _store(self, result: dict[str, Any] | Exception) -> None:
        """Store the outcome of a task; if the store can't be used, try again for the duration of a lease."""
        # Meanwhile the engine tries to renew the lease. If it was lost, writing raises `StaleWriter`.
        end = trio.current_time() + self.engine.options.lease
        while True:
            try:
                await self._finish(result)
                return
            except StaleWriter:
                raise
            except StoreError as exc:
                if self.engine.ending or trio.current_time() >= end:
                    raise
                logger.warning("the outcome of a task of the tool %r could not be stored yet: %s", self.name, exc)
                await trio.sleep(PAUSE)

    async def _finish(self, result: dict[str, Any] | Exception) -> None:
        assert self.task is not None
        if self._why == "lost":
            return  # another process holds the task
        if self._questions is not None and self._why is None:
            await self._suspend(self._questions)
        elif self._why == "cancelled":
            await self.change(**AS_CANCELLED)
        elif self._why is not None:
            if self._reruns:  # the task becomes ready, and this does not count as a takeover
                await self.change(token="", begun=False)
            else:
                await self._fail(unknown_outcome(INTERRUPTED[self._why]))
        elif isinstance(result, Exception):
            error = result if isinstance(result, McpError) else error_for(result, "tools/call")
            await self._fail(error)
        else:
            await self._complete(result)

    @property
    def _reruns(self) -> bool:
        return self.policy.on_loss == "rerun" or (self.task is not None and not self.task.begun)

    async def _complete(self, result: dict[str, Any]) -> None:
        try:
            # This is the result that the call would have returned; in the modern era, each result has a type.
            data = to_json({"result": {"resultType": "complete", **result}})
        except (PydanticSerializationError, ValueError) as exc:
            logger.error("the result of the tool %r can't be stored: %s", self.name, exc)
            await self._fail(McpError(INTERNAL_ERROR, "the result of the tool can't be turned into JSON"))
            return
        if len(data) > self.engine.options.max_size:
            await self._fail(self._too_large("the result of the tool takes", len(data)))
            return
        await self.change(status="completed", token="", result=data, message=None, cancelling=False)

    async def _fail(self, error: Any) -> None:
        await self.change(status="failed", token="", result=error_bytes(error), message=error.message, cancelling=False)

    def _too_large(self, what: str, size: int) -> McpError:
        return McpError(INTERNAL_ERROR, f"{what} {size} bytes; the limit is {self.engine.options.max_size}")

    async def _suspend(self, questions: dict[str, InputRequest[Any]]) -> None:
        entries, asked = self._asked(questions)
        if len(asked) > self.engine.options.max_size:
            await self._fail(self._too_large("the questions take", len(asked)))
            return
        await self.change(status="input_required", token="", asked=asked, entries=entries, message=None, begun=False)

    def _asked(self, questions: dict[str, InputRequest[Any]]) -> tuple[list[JournalEntry], bytes]:
        rounds = self._rounds
        assert rounds is not None
        revision = self.context.protocol_version
        keyed = rounds.described(questions)
        names = self.journal.wire_keys(questions)
        asked = {names[key]: [key, request.wire(revision), list(keyed[key])] for key, request in questions.items()}
        explicit = rounds.returned or self.journal.explicit
        entries = [state_entry(len(self.journal.used), rounds.state)] if explicit else []
        return entries, to_json(asked)

    def cancel(self, why: str) -> None:
        """Cancel the function.

        Args:
            why: ``"cancelled"`` by the client, ``"lost"`` because another process has the task, or ``"late"`` because
                the lease could not be renewed.
        """
        if self._why is None:
            self._why = why
            self.scope.cancel(f"the task was {why}" if why != "late" else INTERRUPTED[why])

    def lose(self) -> None:
        """Cancel the function, because this process no longer holds the lease."""
        self.cancel("lost")

    def hold(self, until: float) -> None:
        """Let the function run until a time on Trio's clock, at which the lease must have been renewed."""
        self.scope.deadline = until

    # --- the task ------------------------------------------------------------------------------------------------

    async def create(self) -> None:
        """Create the task, unless there is one, or the run has ended.

        Raises:
            McpError: If there is no room for another task, or the store can't be used.
        """
        async with self._lock:
            if self.task is None and not self._over:
                if len(self.engine.running) >= self.engine.options.max_running:
                    most = self.engine.options.max_running
                    raise McpError(OVERLOADED, f"{most} tasks are running here, the limit; try again later")
                await self._add()

    async def _add(self, status: str = "working", questions: dict[str, InputRequest[Any]] | None = None) -> None:
        stores, context, options = self.engine.stores, self.context, self.engine.options
        entries = self.journal.entries()
        asked = b""
        if questions is not None:
            more, asked = self._asked(questions)
            entries += more
        client = context.client
        assert client is not None
        now, before = stores.now(), stores.clock()
        body = StoredCall(
            context.params.get("arguments"),
            client.revision,
            client.client_info,
            client.capabilities,
            tuple(sorted(self.engine.scopes_of(context.params.get("name")))),
        ).to_bytes()
        working = status == "working"
        task = StoredTask(
            key=self.key,
            owner=owner_of(context.principal),
            tool=self.name,
            status=status,
            created=now,
            updated=now,
            expires=now + self.policy.ttl,
            begun=working,
            message=self._said,
            body=body,
            asked=asked,
        )
        # The answers and values from earlier rounds of the call count, too.
        self.journal.size = sum(map(entry_size, entries))
        if len(body) + len(asked) + self.journal.size > options.max_size:
            raise McpError(INTERNAL_ERROR, f"the call is too large for a task; the limit is {options.max_size} bytes")
        with refusing_clearly():
            self.task = await stores.add_task(
                task, entries, lease=options.lease if working else None, limit=options.max_tasks
            )
        self._token = self.task.token
        if working:
            self.engine.holds(self, before)
        self.settled.set()

    async def wait_stored(self) -> bool:
        """Wait a moment if the function has ended and its outcome is being stored; return whether it has."""
        await trio.lowlevel.checkpoint()
        if self._over:
            with trio.move_on_after(MOMENT):
                await self._stored.wait()
        return self._over

    async def begin(self) -> None:
        """Store that the run has begun: from here on, the function does work that no earlier run has done."""
        async with self._lock:
            if self.task is not None and not self.task.begun and not self._over:
                await self._fenced(self.change, begun=True)

    async def change(self, entries: tuple[JournalEntry, ...] | list[JournalEntry] = (), **changes: Any) -> None:
        """Change the task under the lease, and repeat this if another process has changed the task meanwhile.

        Raises:
            StaleWriter: If this process no longer holds the lease, or the task is gone.
        """
        stores = self.engine.stores
        while True:
            assert self.task is not None
            if self.task.cancelling and changes.get("token") == "" and changes.get("status") not in ENDED:
                # This ends the lease. No process would notice the client's cancellation after that, so it happens now.
                entries, changes = (), AS_CANCELLED
            task = attrs.evolve(self.task, **{"updated": stores.now(), "version": self.task.version + 1, **changes})
            if await stores.put_task(task, entries, token=self._token):
                self.task = task
                self.engine.changed(task)
                return
            fresh = await stores.task(self.key)
            if fresh is None or fresh.token != self._token or fresh.status in ENDED:
                raise StaleWriter("the task has ended, or another process has claimed it")
            self.task = fresh

    async def say(self, message: str) -> None:
        """Change the task's message, at most every `QUIET` seconds."""
        self._said = message = message[:1000]
        # An earlier run has already reported the messages of a replay.
        if self.task is None or self._unread or self._ahead or self._over or self._speaking:
            return
        if (wait := self._saying + QUIET - trio.current_time()) > 0:
            self._speaking = True
            self.engine.host.nursery.start_soon(self._say_after, wait)
        else:
            await self._tell()

    async def _say_after(self, wait: float) -> None:
        """Store the newest message after a pause."""
        await trio.sleep(wait)
        self._speaking = False
        await self._tell()

    async def _tell(self) -> None:
        self._saying = trio.current_time()
        async with self._lock:
            if self._over or self.task is None or self.task.message == self._said:
                return
            try:
                await self.change(message=self._said)
            except StaleWriter:
                self.lose()
            except StoreError as exc:
                logger.warning("the message of a task of the tool %r could not be stored: %s", self.name, exc)

    async def remember(self, key: str, value: Any) -> None:
        """Add a ``once`` value to the journal, in the store first if there is a task.

        Raises:
            ValueError: If the journal would be too large.
            StaleWriter: If this process no longer holds the lease, and the caller can't be cancelled.
        """
        entry = once_entry(key, value)
        async with self._lock:
            size = self.journal.size + entry_size(entry)
            if size > self.engine.options.max_size:
                raise ValueError(
                    f"the journal of a task with the value of once({key!r}) has {size} bytes; the limit is"
                    f" {self.engine.options.max_size}"
                )
            if self.task is not None:
                await self._fenced(self.engine.stores.note, self.key, self._token, entry)
            self.journal.memory[key] = value
            self.journal.size = size

    async def _fenced(self, write: Callable[..., Any], *arguments: Any, **more: Any) -> None:
        while True:
            try:
                await write(*arguments, **more)
                return
            except StoreError as exc:
                failure = exc
            if isinstance(failure, StaleWriter):
                self.lose()
                await trio.lowlevel.checkpoint_if_cancelled()  # raises, except in a thread or a shielded scope
                raise failure
            if self.scope.cancel_called:
                raise failure
            logger.warning("a task of the tool %r waits for the store: %s", self.name, failure)
            await trio.sleep(PAUSE)  # the wait is bounded: the run is cancelled if its lease can't be renewed, either

    async def allowed(self) -> None:
        """Wait, before a step, until this process certainly holds the lease: it may have been suspended meanwhile."""
        self._ahead.clear()
        await self.begin()
        if self.task is not None:
            await self.engine.confirmed(self)

    def passed(self, key: str) -> None:
        """Record that the function has come to a step."""
        self._ahead.discard(key)

    def refuse(self, error: McpError) -> McpError:
        """Make the task fail with an error, even if the function catches it."""
        self._refusal = error
        return error

    # --- the function --------------------------------------------------------------------------------------------

    async def interact(self, context: TaskContext, bind: Callable[[], Call], *, park: bool) -> Any:
        """Call the tool's function, in place of `run_interactive`."""
        call = bind()
        earlier: RequestState | None = None
        responses: Mapping[str, Any] = {}
        params = context.request.params or {}
        if self.task is None and ("requestState" in params or "inputResponses" in params):
            earlier, responses = earlier_rounds(context)
        if self.task is not None:
            earlier = RequestState(answers=self.journal.answers, memory=self.journal.memory, state=self.journal.state)
        rounds = self._rounds = TaskRounds(context, earlier, responses, self)
        # The journal and the rounds share these dicts, so values that arrive while the task is created are in both.
        self.journal.answers, self.journal.memory = rounds.answers, rounds.memory
        try:
            value = await rounds.serve(call)
        except Exception as exc:
            pages = single(exc)
            if not isinstance(pages, UrlElicitationRequired):
                raise
            value = pages
        if isinstance(value, (InputRequired, UrlElicitationRequired)):
            rounds.returned = True
            return self.ask(rounds, rounds.explicit(value))
        return value

    def ask(self, rounds: TaskRounds, questions: dict[str, InputRequest[Any]]) -> Any:
        """End the run with questions: those of a round of the call, or of the task."""
        if not self.asks_as_task:
            return rounds.asked_in_round(questions)
        self._questions = questions
        return Asked(SUSPENDED)

    def read(self, keys: set[str]) -> bool:
        """Record that the function has read answers; return whether it has now read all that were stored."""
        before = bool(self._unread)
        self._unread -= keys
        return before and not self._unread


class TaskRounds(ReplayedRounds):
    """The rounds of input of a function that is, or may become, a task.

    Attributes:
        returned: Whether the function has returned or raised its questions, instead of asking them.
    """

    def __init__(
        self, context: TaskContext, earlier: RequestState | None, responses: Mapping[str, Any], run: TaskRun
    ) -> None:
        super().__init__(context, earlier, responses)
        self._run_of_task = run
        self.returned = False

    @property
    def memory(self) -> dict[str, Any]:
        """The values of ``once``, by key."""
        return self._memory

    def described(self, questions: Mapping[str, InputRequest[Any]]) -> dict[str, Question]:
        """Return what identifies each question, by key."""
        return self._questions_of(questions)

    def asked(self, requests: Mapping[str, InputRequest[Any]], parked: str | None = None) -> Asked:
        asked: Asked = self._run_of_task.ask(self, dict(requests))
        return asked

    def asked_in_round(self, requests: Mapping[str, InputRequest[Any]]) -> Asked:
        """Make the result that asks the client in a round of the call."""
        return super().asked(requests)

    async def ask(self, requests: tuple[InputRequest[Any], ...]) -> list[Any]:
        answers = await super().ask(requests)
        if self._run_of_task.read({prefix + key for prefix, key in self._used}):
            await self._run_of_task.begin()
        return answers

    async def once(self, key: str, function: Callable[..., Any], *arguments: Any) -> Any:
        value = await super().once(key, function, *arguments)
        self._run_of_task.passed(self._prefix() + key)
        return value

    def _another_question(self, key: str) -> McpError:
        if self._run_of_task.task is None:  # in a round of the call
            return super()._another_question(key)
        logger.error(
            "the tool %r asks a different question under the key %r than in an earlier run: it must ask the same "
            "questions in the same order each time it runs, or give them keys",
            self._run_of_task.name,
            key,
        )
        return self._run_of_task.refuse(
            McpError(INTERNAL_ERROR, f"the tool did not repeat the question {key!r}, which has been answered")
        )

    async def _remember(self, key: str, value: Any) -> None:
        await self._run_of_task.remember(key, value)

    async def _before_step(self) -> None:
        await self._run_of_task.allowed()


INTERRUPTED = {
    "ended": "the server shut down while the tool was running",
    "late": "the server could not reach its store while the tool was running",
}


@contextlib.contextmanager
def refusing_clearly() -> Iterator[None]:
    """Turn the errors of a store into error responses that say what to do; the details are only logged.

    Raises:
        McpError: In place of a `StoreError`.
    """
    try:
        yield
    except StoreFull:
        raise McpError(OVERLOADED, "the server already holds the maximum number of tasks; try again later") from None
    except StoreBusy as exc:
        logger.warning("the store of the tasks is busy: %s", exc)
        raise McpError(OVERLOADED, "the server's store of tasks is busy; try again later") from None
    except StoreError as exc:
        logger.error("the store of the tasks can't be used: %s", exc)
        raise McpError(INTERNAL_ERROR, "the server's store of tasks can't be used; try again later") from None


def unknown_outcome(why: str) -> McpError:
    """Return the error of a task whose run was lost."""
    return McpError(INTERNAL_ERROR, f"{why}: the outcome is unknown")
