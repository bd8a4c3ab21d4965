"""The process that runs a task, and the effects when it dies, is suspended and resumed, or can't reach the store."""

from __future__ import annotations

import hashlib
import threading
from typing import Any

import attrs
import pytest
import trio
from pydantic import BaseModel
from trio.testing import MockClock

from tests.extensions.tasks.processes import LEASE, Door, answer, client_of, done, get, processes, shared, start
from tests.peer import settle
from tests.waiting import eventually
from trio_mcp import Context, InputRequired, Server
from trio_mcp.extensions import TaskOptions, TaskPolicy, Tasks


class Name(BaseModel):
    name: str


class Works:
    """Tools, and a record of the steps that they have begun and ended."""

    def __init__(self, **policy: Any) -> None:
        self.policy = TaskPolicy(after=0, **policy)
        self.began: list[str] = []
        self.ended: list[str] = []

    async def step(self, name: str, seconds: float = 2.0) -> str:
        self.began.append(name)
        await trio.sleep(seconds)
        self.ended.append(name)
        return name

    def define(self, server: Server) -> None:
        @server.tool(task=self.policy)
        async def film(ctx: Context, shots: int = 5) -> str:
            for number in range(shots):
                await ctx.once(f"shot-{number}", self.step, f"shot-{number}")
                await ctx.report_progress(number + 1, shots)
            return "film"

        @server.tool(task=self.policy)
        async def ask(ctx: Context) -> str:
            self.began.append("run")
            found = await ctx.elicit("Who?", Name, key="who")
            await self.step("after")
            return str(found.data and found.data.name)

        @server.tool(task=self.policy)
        async def returns(ctx: Context) -> str | InputRequired:
            self.began.append("run")
            if "who" not in ctx.input_responses:
                return InputRequired({"who": ctx.elicit("Who?", Name)})
            await self.step("after", 30)
            return "returned"


async def test_a_lost_task_goes_on_elsewhere_within_a_lease_and_a_second(autojump_clock: MockClock) -> None:
    works = Works(on_loss="rerun")
    async with processes(works.define, shared()) as (one, two):
        task_id = await start(one.client, "film")
        await trio.sleep(5)  # in the middle of the third shot; the lease was renewed at 5 s at the latest
        lost = trio.current_time()
        one.crash()
        await eventually(lambda: works.began.count("shot-2") == 2)
        assert trio.current_time() - lost <= LEASE + 1
        state = await done(two.client, task_id)
        assert state["result"]["content"][0]["text"] == "film"
    assert works.began == ["shot-0", "shot-1", "shot-2", "shot-2", "shot-3", "shot-4"]


async def test_a_lost_task_that_must_not_run_again_fails_with_an_unknown_outcome(autojump_clock: MockClock) -> None:
    works = Works(on_loss="fail")
    async with processes(works.define, shared()) as (one, two):
        task_id = await start(one.client, "film")
        await trio.sleep(3)
        one.crash()
        state = await done(two.client, task_id)
        assert state["status"] == "failed"
        assert "outcome is unknown" in state["error"]["message"]
        assert state["statusMessage"] == state["error"]["message"]
    assert works.began == ["shot-0", "shot-1"]


async def test_an_answer_not_yet_taken_up_is_taken_up_whatever_on_loss_says(
    autojump_clock: MockClock,
) -> None:
    works = Works(on_loss="fail")
    async with processes(works.define, shared()) as (one, two):
        task_id = await start(one.client, "ask")
        await done(two.client, task_id, "input_required")
        two.door.shut.add("claim_tasks")
        one.door.shut |= {"put_task"}  # it claims the task, and can't note that it has begun
        await answer(two.client, task_id, who={"name": "Ann"})
        await trio.sleep(3)
        assert (await get(two.client, task_id))["status"] == "working"
        one.crash()
        two.door.shut.clear()
        state = await done(two.client, task_id)
        assert state["result"]["content"][0]["text"] == "Ann", state
    assert works.began == ["run", "run", "run", "after"]


async def test_a_function_that_returns_questions_begins_when_it_runs_again(
    autojump_clock: MockClock,
) -> None:
    """It may act on any answer at once, so a tool that must not run twice does not run again."""
    works = Works(on_loss="fail")
    async with processes(works.define, shared()) as (one, two):
        task_id = await start(one.client, "returns")
        await done(two.client, task_id, "input_required")
        two.door.shut.add("claim_tasks")
        await answer(two.client, task_id, who={"name": "Ann"})
        await trio.sleep(3)
        assert works.began == ["run", "run", "after"]
        one.crash()
        two.door.shut.clear()
        assert (await done(two.client, task_id))["status"] == "failed"
    assert works.began == ["run", "run", "after"]


async def test_a_task_is_taken_over_at_most_so_many_times(autojump_clock: MockClock) -> None:
    works = Works(on_loss="rerun", max_takeovers=2)
    async with processes(works.define, shared(), 4) as running:
        last = running[-1]
        task_id = await start(running[0].client, "film", shots=100)
        for number, each in enumerate(running):
            if each is not last:
                for other in running[number + 2 :]:
                    other.door.shut.add("claim_tasks")
                await trio.sleep(1)
                each.crash()
                for other in running[number + 1 : number + 2]:
                    other.door.shut.clear()
                await trio.sleep(LEASE + 2)
        state = await done(last.client, task_id)
        assert state["status"] == "failed", state


@pytest.mark.parametrize(("on_loss", "status"), [("rerun", "completed"), ("fail", "failed")])
async def test_a_server_that_ends_releases_its_tasks_at_once(
    on_loss: Any, status: str, autojump_clock: MockClock
) -> None:
    works = Works(on_loss=on_loss)
    async with processes(works.define, shared()) as (one, two):
        task_id = await start(one.client, "film")
        await trio.sleep(3)
        one.end()
        ended = trio.current_time()
        await settle()
        state = await done(two.client, task_id)
        assert state["status"] == status
        assert trio.current_time() - ended < 10
    assert works.began.count("shot-0") == 1


async def test_releasing_a_task_is_no_loss(autojump_clock: MockClock) -> None:
    """A rolling restart of servers does not count as takeovers."""
    works = Works(on_loss="rerun", max_takeovers=1)
    async with processes(works.define, shared(), 5) as running:
        task_id = await start(running[0].client, "film", shots=8)
        for each in running[:-1]:
            await trio.sleep(3)
            each.end()
        assert (await done(running[-1].client, task_id))["status"] == "completed"


@pytest.mark.parametrize(("seconds", "status"), [(0.05, "completed"), (1.0, "working")])
async def test_a_poll_waits_a_moment_for_an_outcome_that_is_being_stored(
    seconds: float, status: str, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """A client that is quicker than the store need not poll again; nor does it wait for a store that is slow."""

    async def none() -> str:
        return "nothing"

    put = Door.put_task

    async def put_slowly(door: Door, *arguments: Any, **more: Any) -> Any:
        await trio.sleep(seconds)
        return await put(door, *arguments, **more)

    def define(server: Server) -> None:
        server.add_tool(none, task=TaskPolicy(after=0))

    async with processes(define, shared(), 1) as (one,):
        monkeypatch.setattr(Door, "put_task", put_slowly)
        task_id = await start(one.client, "none")
        assert (await get(one.client, task_id))["status"] == status


@pytest.mark.parametrize("seconds", [3, 9])
async def test_an_outcome_is_stored_once_the_store_is_back(seconds: float, autojump_clock: MockClock) -> None:
    works = Works(on_loss="fail")
    async with processes(works.define, shared()) as (one, two):
        task_id = await start(one.client, "film", shots=1)
        await trio.sleep(1)
        one.door.shut = {"put_task"}
        await trio.sleep(seconds)
        one.door.shut.clear()
        assert (await done(two.client, task_id))["status"] == "completed"
        assert one.door.failed
    assert works.began == ["shot-0"]


@pytest.mark.parametrize("call", ["note", "put_task"])
async def test_a_step_waits_for_a_store_that_is_away(call: str, autojump_clock: MockClock) -> None:
    works = Works(on_loss="fail")
    async with processes(works.define, shared()) as (one, two):
        task_id = await start(one.client, "film")
        await trio.sleep(1)
        one.door.shut = {call}
        await trio.sleep(5)
        one.door.shut.clear()
        assert (await done(two.client, task_id))["status"] == "completed"
    assert works.began == [f"shot-{number}" for number in range(5)]


async def test_a_failed_renewal_is_tried_again_before_the_run_must_stop(autojump_clock: MockClock) -> None:
    works = Works(on_loss="fail")
    async with processes(works.define, shared(), options=TaskOptions(lease=LEASE)) as (one, two):
        task_id = await start(one.client, "film", shots=20)
        await trio.sleep(4.5)
        one.door.shut = {"renew"}
        await trio.sleep(4.5)
        one.door.shut.clear()
        assert (await done(two.client, task_id))["status"] == "completed"


async def test_a_run_that_can_not_renew_its_lease_stops_itself_at_two_thirds(autojump_clock: MockClock) -> None:
    works = Works(on_loss="rerun")
    async with processes(works.define, shared()) as (one, two):
        task_id = await start(one.client, "film", shots=20)
        one.door.shut = {"*"}
        await trio.sleep(LEASE * 2 / 3 + 0.01)
        count = len(works.began)
        await trio.sleep(LEASE / 3 - 0.1)  # until the lease has run out
        assert len(works.began) == count
        assert (await done(two.client, task_id))["status"] == "completed"
    # The first shot was done when the store was away, so it never came into the journal.
    assert works.ended.count("shot-0") == 2
    assert len(works.ended) == len(set(works.ended)) + 1 == 21


async def test_nothing_runs_after_a_thaw_before_a_renewal_is_confirmed(autojump_clock: MockClock) -> None:
    stepped: list[float] = []
    confirmed: list[float] = []

    def define(server: Server) -> None:
        @server.tool(task=TaskPolicy(after=0, on_loss="rerun"))
        async def freeze(ctx: Context) -> str:
            await trio.sleep(0.1)
            if not stepped and not confirmed:
                confirmed.append(0)
                autojump_clock.jump(LEASE * 0.8)  # the process stands still
                one.door.shut = {"renew"}
            await ctx.once("step", stepped.append, trio.current_time())
            return "done"

    async with processes(define, shared()) as (one, two):
        task_id = await start(one.client, "freeze")
        await trio.sleep(1)
        assert stepped == []
        assert (await done(two.client, task_id))["status"] == "completed"
        assert len(stepped) == 1


async def test_a_thread_whose_run_was_lost_can_neither_step_nor_write(autojump_clock: MockClock) -> None:
    release, ended = threading.Event(), trio.Event()
    log: list[str] = []
    token = trio.lowlevel.current_trio_token()

    def define(server: Server) -> None:
        @server.tool(task=TaskPolicy(after=0, on_loss="fail"))
        def slow(ctx: Context) -> str:
            try:
                release.wait(20)
                trio.from_thread.run(ctx.report_progress, 1, trio_token=token)
                trio.from_thread.run(ctx.once, "step", log.append, "step", trio_token=token)
            except BaseException as exc:
                log.append(type(exc).__name__)
                raise
            finally:
                token.run_sync_soon(ended.set)
            return "done"

    async with processes(define, shared()) as (one, two):
        task_id = await start(one.client, "slow")
        await one.client.request("tasks/cancel", {"taskId": task_id})
        await settle()
        state = await get(two.client, task_id)
        assert state["status"] == "cancelled"
        writes = list(one.door.wrote)
        release.set()
        await ended.wait()
        await settle()
        assert one.door.wrote.count("note") == writes.count("note") == 0
        assert await get(two.client, task_id) == state
    assert "step" not in log
    assert len(log) == 1


async def test_a_lost_runs_message_does_not_go_backwards(autojump_clock: MockClock) -> None:
    works = Works(on_loss="rerun")
    async with processes(works.define, shared()) as (one, two):
        task_id = await start(one.client, "film")
        await trio.sleep(5)
        one.crash()
        seen = []
        while (state := await get(two.client, task_id))["status"] == "working":
            seen.append(state["statusMessage"])
            await trio.sleep(0.1)
    assert seen == sorted(seen)
    assert seen[-1] == "5 of 5" or seen[-1] == "4 of 5"


async def test_the_last_of_quick_messages_is_not_lost(autojump_clock: MockClock) -> None:
    def define(server: Server) -> None:
        @server.tool(task=TaskPolicy(after=0))
        async def quick(ctx: Context) -> str:
            for number in range(5):
                await ctx.report_progress(number, message="step")
            await trio.sleep(60)
            return "done"

    async with processes(define, shared(), 1) as (one,):
        task_id = await start(one.client, "quick")
        await trio.sleep(1)
        assert (await get(one.client, task_id))["statusMessage"] == "step (4)"


async def test_a_task_whose_time_to_live_ends_is_gone_and_its_run_ends(autojump_clock: MockClock) -> None:
    works = Works(on_loss="fail", ttl=8.0)
    async with processes(works.define, shared()) as (one, two):
        task_id = await start(one.client, "film", shots=100)
        await trio.sleep(8.1)
        with pytest.raises(Exception, match="unknown task"):
            await get(two.client, task_id)
        await trio.sleep(LEASE / 3)
        count = len(works.began)
        await trio.sleep(20)
        assert len(works.began) == count


async def test_more_tasks_than_a_process_may_run_are_taken_up_one_after_the_other(autojump_clock: MockClock) -> None:
    works = Works(on_loss="rerun")
    options = TaskOptions(max_running=3)
    async with processes(works.define, shared(), 1, options) as (one,):
        ids = [await start(one.client, "ask") for _ in range(8)]
        for each in ids:
            await done(one.client, each, "input_required")
        for each in ids:
            await answer(one.client, each, who={"name": "Ann"})
        most = 0
        while any([(await get(one.client, each))["status"] == "working" for each in ids]):
            most = max(most, works.began.count("after") - works.ended.count("after"))
            await trio.sleep(0.2)
        assert most == 3
        for each in ids:
            assert (await get(one.client, each))["status"] == "completed"


async def test_a_hundred_ready_tasks_are_all_taken_up_at_the_start(autojump_clock: MockClock) -> None:
    works = Works(on_loss="rerun")
    stores = shared()
    async with processes(works.define, stores, 1) as (one,):
        ids = [await start(one.client, "film", shots=1) for _ in range(100)]
        await trio.sleep(1)
        one.end()
        await settle()
    async with processes(works.define, stores, 1) as (one,):
        await trio.sleep(3)
        assert [(await get(one.client, each))["status"] for each in ids] == ["completed"] * 100


async def test_a_task_whose_tool_is_removed_while_it_is_taken_up_is_left_to_others(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    """This happens at once, without waiting for another lease to expire."""
    works = Works(on_loss="rerun")
    async with processes(works.define, shared(), 3) as (one, *others):
        await start(one.client, "film")
        await trio.sleep(5)
        doors = {each.door: each.server for each in others}
        claim = Door.claim_tasks

        async def claim_and_remove(door: Door, *arguments: Any, **more: Any) -> Any:
            claims = await claim(door, *arguments, **more)
            if claims and len(doors) == 2:
                doors.pop(door).remove_tool("film")
            return claims

        monkeypatch.setattr(Door, "claim_tasks", claim_and_remove)
        lost = trio.current_time()
        one.crash()
        await eventually(lambda: works.began.count("shot-2") == 2)
        assert len(doors) == 1
        assert trio.current_time() - lost <= LEASE + 2


async def test_a_task_for_a_tool_that_is_gone_fails_with_one_error(autojump_clock: MockClock) -> None:
    works = Works(on_loss="rerun")
    stores = shared()
    async with processes(works.define, stores, 1) as (one,):
        task_id = await start(one.client, "film")
        await trio.sleep(1)
        one.crash()
    async with client_of(Server("studio", stores=stores, extensions=[Tasks()])) as client:
        assert (await get(client, task_id))["status"] == "working"  # others may still have the tool
        await trio.sleep(LEASE + 1)
        assert (await get(client, task_id))["status"] == "working"  # now they could take it at once
        await trio.sleep(LEASE + 1)
        state = await get(client, task_id)
        assert state["status"] == "failed"
        assert state["error"]["message"] == "the server has no tool 'film' any more"


async def test_a_stored_task_that_can_not_be_read_harms_no_other(
    caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    works = Works(on_loss="rerun")
    stores = shared()
    async with processes(works.define, stores, 2) as (one, two):
        bad = await start(one.client, "film")
        good = await start(one.client, "film")
        await trio.sleep(1)
        one.crash()
        stored = await stores.task(hashlib.sha256(bad.encode()).hexdigest())
        assert stored is not None
        assert await stores.put_task(attrs.evolve(stored, version=stored.version + 1, body=b'{"not": "a call"}'))
        state = await done(two.client, bad)
        assert state["status"] == "failed"
        assert "can't be read" in state["error"]["message"]
        assert (await done(two.client, good))["status"] == "completed"


async def test_a_cancellation_reaches_the_process_that_runs_the_task(autojump_clock: MockClock) -> None:
    works = Works(on_loss="rerun")
    async with processes(works.define, shared()) as (one, two):
        task_id = await start(one.client, "film")
        await trio.sleep(1)
        assert (await two.client.request("tasks/cancel", {"taskId": task_id}))["resultType"] == "complete"
        await settle()
        assert (await get(two.client, task_id))["status"] == "cancelled"
    assert works.ended == []


async def test_a_task_that_asks_while_it_is_being_cancelled_ends_as_cancelled(autojump_clock: MockClock) -> None:
    def define(server: Server) -> None:
        @server.tool(task=TaskPolicy(after=0))
        async def stubborn(ctx: Context) -> str:
            await trio.sleep(1)
            await ctx.elicit("Who?", Name)
            return "done"

    async with processes(define, shared()) as (one, two):
        task_id = await start(one.client, "stubborn")
        one.door.shut = {"versions", "renew"}  # so it does not hear of the cancellation
        await two.client.request("tasks/cancel", {"taskId": task_id})
        assert (await done(two.client, task_id, "cancelled", "input_required"))["status"] == "cancelled"
