"""Two sessions in one process: what one sends, the other acts on at once, and neither can tell."""

from __future__ import annotations

import contextvars
from typing import Any

import pytest
import trio
import trio.testing

from tests.session.harness import CLIENT_CAPABILITIES, ScriptedServer, session_pair
from trio_mcp import McpError, SessionOptions
from trio_mcp.jsonrpc.messages import Incoming
from trio_mcp.low_level import BaseSession, ClientSession, HandlerOptions, RequestContext, memory_link_pair

both = pytest.mark.parametrize("encode", [False, True], ids=["shared", "encoded"])

OF_CALLER: contextvars.ContextVar[str | None] = contextvars.ContextVar("OF_CALLER", default=None)


class Steps(trio.abc.Instrument):
    """Counts how many times tasks are run, and how many tasks are started."""

    run = started = 0

    def task_spawned(self, task: trio.lowlevel.Task) -> None:
        self.started += 1

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.run += 1


@both
async def test_a_call_takes_a_turn_of_the_handler_and_one_of_the_caller(encode: bool) -> None:
    """No task runs only to pass a message on, but for the end of a burst (`direct_channel.BURST`).

    Nor is a task started for each: see `trio_mcp.session.workers`.
    """
    steps = Steps()
    async with session_pair(encode=encode) as (client, _):
        trio.lowlevel.add_instrument(steps)
        for _ in range(100):
            await client.send_request("tools/call", {"name": "x"})
        trio.lowlevel.remove_instrument(steps)
    assert steps.started == 1
    assert steps.run <= 2 * 100 + 10


@both
@pytest.mark.parametrize("limits", [{}, {"on_progress": print}], ids=["plain", "in a scope"])
async def test_a_call_that_is_answered_on_the_spot_is_a_checkpoint(encode: bool, limits: Any) -> None:
    """Rule 11 of docs/design.md: ``ping`` is answered while it is being sent, before its caller waits."""
    async with session_pair(encode=encode) as (client, _):
        with trio.testing.assert_checkpoints():
            await client.send_request("ping", **limits)
        # After its effect it can't be cancelled any more: the answer is there.
        with trio.CancelScope() as scope:
            trio.lowlevel.current_trio_token().run_sync_soon(scope.cancel)
            assert await client.send_request("ping", **limits) == {}
        assert client.statistics().outgoing == 0


@both
async def test_a_handler_sees_the_context_variables_of_its_session(encode: bool) -> None:
    """Not those of the caller, in whose send its task is started; nor does the caller see the handler's."""

    async def answer(context: RequestContext) -> dict[str, Any]:
        seen.append(OF_CALLER.get())
        OF_CALLER.set("handler")
        return {}

    seen: list[str | None] = []
    async with session_pair(answer, encode=encode) as (client, _):
        OF_CALLER.set("caller")
        await client.send_request("tools/call", {"name": "x"})
        assert OF_CALLER.get() == "caller"
    assert seen == [None]


@both
@pytest.mark.parametrize("hook", ["on_arrival", "intercept", "make_context", "urgent"])
async def test_what_a_program_hooks_in_never_runs_within_a_send_of_the_peer(encode: bool, hook: str) -> None:
    """It runs in a task of its session, so that the sender has nothing to do with what it does or raises."""
    tasks: set[trio.lowlevel.Task] = set()

    def note(*_: Any) -> Any:
        tasks.add(trio.lowlevel.current_task())
        return {}

    class Hooked(ScriptedServer):
        def intercept(self, context: RequestContext) -> dict[str, Any] | None:
            if hook == "intercept":
                note()
            return super().intercept(context)

        def make_context(self, incoming: Any) -> RequestContext:
            note()
            return super().make_context(incoming)

    class Plain(ScriptedServer):
        pass

    limits = HandlerOptions(max_running_requests=1, urgent=note if hook == "urgent" else ())
    async with memory_link_pair(encode=encode) as (ours, theirs):
        kind = Hooked if hook in ("intercept", "make_context") else Plain
        server = kind(theirs, options=SessionOptions(handlers=limits))
        if hook == "on_arrival":
            server.on_arrival = note
        async with server, ClientSession(*ours, capabilities=CLIENT_CAPABILITIES) as client:
            await client.initialize()
            async with trio.open_nursery() as nursery:
                for _ in range(3):
                    nursery.start_soon(client.send_request, "tools/call", {"name": "x"}, name="caller")
    assert tasks
    assert trio.lowlevel.current_task() not in tasks
    assert "caller" not in {task.name for task in tasks}


async def test_a_hook_may_be_a_function_without_a_module() -> None:
    """As some functions written in C are."""
    options = SessionOptions(handlers=HandlerOptions(urgent=("no message",).__contains__))
    async with memory_link_pair() as (ours, theirs), BaseSession(*theirs, options=options), BaseSession(*ours) as calls:
        assert await calls.send_request("ping") == {}


@both
async def test_what_a_hook_raises_ends_its_session_and_not_the_call_of_the_peer(encode: bool) -> None:
    def fail(message: Incoming, metadata: Any) -> Any:
        raise RuntimeError("a hook failed")

    raised: list[BaseException] = []
    async with memory_link_pair(encode=encode) as (ours, theirs), BaseSession(*ours) as caller:

        async def serve() -> None:
            session = BaseSession(*theirs)
            session.on_arrival = fail
            try:
                async with session:
                    await trio.sleep_forever()
            except* RuntimeError as group:
                raised.append(group)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve)
            with trio.move_on_after(5) as patience:
                with pytest.raises(Exception, match="closed") as caught:
                    await caller.send_request("acme/x")
            nursery.cancel_scope.cancel()
    assert not patience.cancelled_caught
    assert "a hook failed" not in str(caught.value)
    assert raised


@both
async def test_a_burst_of_notices_without_a_checkpoint_is_bounded(encode: bool) -> None:
    """What is sent in one go is acted on up to a burst; then the queues fill, and the sender is told."""

    async def answer(context: RequestContext) -> dict[str, Any]:
        for n in range(10_000):
            if not context.send_notification_nowait("acme/n", {"n": n}):
                return {"accepted": n}
        return {}

    heard: list[int] = []

    class Listener(ClientSession):
        async def received_notification(self, notification: Any) -> None:
            heard.append(notification.params["n"])

    async with memory_link_pair(encode=encode) as (ours, theirs):
        options = SessionOptions(max_outgoing_messages=16)
        async with ScriptedServer(theirs, answer, options=options), Listener(*ours) as client:
            await client.initialize()
            accepted = (await client.send_request("tools/call", {"name": "x"}))["accepted"]
    assert 16 < accepted < 1000
    assert heard == list(range(accepted))


async def test_a_refusal_on_the_spot_reaches_the_call_that_is_being_sent() -> None:
    """The error response comes back before the request counts as sent; it is the outcome all the same."""
    options = SessionOptions(handlers=HandlerOptions(max_running_requests=1, max_queued_requests=1))

    async def answer(context: RequestContext) -> dict[str, Any]:
        await release.wait()
        return {}

    release = trio.Event()
    async with session_pair(answer, server_options=options) as (client, server), trio.open_nursery() as nursery:
        for _ in range(2):
            nursery.start_soon(client.send_request, "tools/call", {"name": "x"})
        await trio.testing.wait_all_tasks_blocked()
        with pytest.raises(McpError, match="too many requests"):
            await client.send_request("tools/call", {"name": "x"})
        assert client.statistics().outgoing == server.statistics().incoming == 2
        release.set()


async def test_many_calls_at_once_are_paced_so_that_none_is_refused() -> None:
    """As over any link, what a burst does not take waits with the sender; the peer's queue does not overflow."""
    defaults = HandlerOptions()
    count = defaults.max_running_requests + defaults.max_queued_requests + 200
    async with session_pair(encode=False) as (client, server):
        async with trio.open_nursery() as nursery:
            for _ in range(count):
                nursery.start_soon(client.send_request, "tools/call", {"name": "x"})
        assert len(server.seen) == count
