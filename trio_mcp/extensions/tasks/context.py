"""The context of a tool's function that runs as a task, or may become one."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

import trio

from trio_mcp.errors import LocalProtocolError
from trio_mcp.jsonrpc.events import IncomingRequest
from trio_mcp.jsonrpc.messages import RequestId, SessionMessage
from trio_mcp.server.changes import Audience
from trio_mcp.server.context import ServedContext
from trio_mcp.server.functions.function import Call
from trio_mcp.session.handlers import incoming_of
from trio_mcp.session.sink import Sink

if TYPE_CHECKING:
    from trio_mcp.server.served_session import SharedByClients

__all__ = ["NoClient", "TaskContext"]


class NoClient:
    """The connection and the sink of a run without a request: messages that are sent to the client are dropped."""

    has_room = True
    permit = None

    def __init__(self, run: SharedByClients) -> None:
        self.served = run.served
        self.states = run.states
        self.input = run.input
        self.trio_token = trio.lowlevel.current_trio_token()
        self.audience = Audience(run.changes)

    async def room(self, related: RequestId | None = None, urgent: bool = False) -> None:
        """Return at once: there is always room."""

    def put(self, message: SessionMessage, owner: Any = None) -> None:
        """Drop a message."""

    def put_control(self, message: SessionMessage) -> bool:
        """Drop a message, and return that it was not sent."""
        return False

    def release(self, request_id: RequestId) -> None:
        """Do nothing."""

    def close_stream(self, related: RequestId | None, retry: float | None) -> bool:
        """Return that there is no stream."""
        return False


class RunOfTask(Protocol):
    """The run of a function, as its context sees it."""

    @property
    def asks_as_task(self) -> bool:
        """Whether a question ends the run, and becomes a question of the task."""

    async def interact(self, context: Any, bind: Callable[[], Call], *, park: bool) -> Any:
        """Call the function in the rounds of input of the task."""

    async def create(self) -> None:
        """Create the task, unless there is one."""

    async def say(self, message: str) -> None:
        """Change the task's message."""

    def step_key(self, name: str) -> str:
        """Return the key of a step."""


class TaskContext(ServedContext[Any]):
    """The context of a function that runs as a task, or may become one.

    Attributes:
        run: The run of the function.
        elsewhere: Whether the function runs without the request that created the task.
    """

    __slots__ = ("elsewhere", "run")

    def __init__(
        self, incoming: IncomingRequest, sink: Sink, connection: Any, state: Any, run: RunOfTask, elsewhere: bool
    ) -> None:
        super().__init__(incoming, sink, connection, state)
        self.run = run
        self.elsewhere = elsewhere

    @classmethod
    def of_call(cls, context: ServedContext[Any], run: RunOfTask) -> TaskContext:
        """Return the context for the run that begins with a request."""
        no_sink: Any = None
        own = cls(incoming_of(context), no_sink, context.connection, context.state, run, elsewhere=False)
        own.go_on_as(context)  # takes the sink, the client and the principal
        own.params, own.settings = context.params, context.settings
        return own

    @property
    def interactive(self) -> Any:
        """Calls the function in the rounds of input of the task."""
        return self.run.interact

    def of_same_request(self, settings: Any, params: dict[str, Any]) -> TaskContext:
        context = TaskContext(
            self._incoming, self._sink, self.connection, self.connection.states.get(settings), self.run, self.elsewhere
        )
        context.client, context.params, context.principal = self.client, params, self.principal
        context.settings = settings
        return context

    def _refuse(self, what: str) -> NoReturn:
        raise LocalProtocolError(
            f"{what}: this run of {self.params.get('name')!r} continues a task without the request that created "
            "it; it has the arguments, the answers, the values of `once` and the principal"
        )

    # --- available only in the request ---------------------------------------------------------------------------

    @property
    def headers(self) -> Mapping[str, str]:
        if self.elsewhere:
            self._refuse("there are no headers")
        return super().headers

    def sample(self, *arguments: Any, **details: Any) -> Any:
        if self.elsewhere or self.run.asks_as_task:
            raise LocalProtocolError(
                "a task can't ask the client's model: in a tool with task='manual', ask it before detach()"
            )
        return super().sample(*arguments, **details)

    async def log(self, level: Any, data: Any, logger: str | None = None) -> None:
        if self.elsewhere:
            self._refuse("there is no client to log to")
        await super().log(level, data, logger)

    async def notify(self, method: str, params: Any = None, *, urgent: bool = False) -> None:
        if self.elsewhere:
            self._refuse("there is no client to notify")
        await super().notify(method, params, urgent=urgent)

    async def token_for(self, audience: str, *, scopes: Collection[str] | None = None) -> str:
        if self.elsewhere:
            from trio_mcp.server.caller import NoCallerToken

            raise NoCallerToken(audience, "this run continues a task without the request that created it")
        return await super().token_for(audience, scopes=scopes)

    # --- different in a task -------------------------------------------------------------------------------------

    async def report_progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        await super().report_progress(progress, total, message)
        done = f"{progress:g}" if total is None else f"{progress:g} of {total:g}"
        await self.run.say(done if message is None else f"{message} ({done})")

    async def detach(self) -> bool:
        await trio.lowlevel.checkpoint()
        await self.run.create()
        return True

    def step_key(self, name: str) -> str:
        return self.run.step_key(name)
