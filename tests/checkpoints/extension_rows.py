"""The functions of extensions: of the client's side of tasks, and of `ClientAccess`."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import trio

from tests.checkpoints.table import Check, call, cancelled_before, effect, not_entered
from tests.extensions.task_server import ASK, ID, TaskServer, completed, created, state, task_server
from tests.peer import settle
from trio_mcp import Answers, Client
from trio_mcp.extensions import ClientAccess, ClientExtension, ClientTasks, TaskHandle, Tasks, TaskWatch

DONE: dict[str, Any] = {"resultType": "complete", "content": []}
ANSWERS = Answers(elicitation=lambda _: {"name": "Ada"})


class Access(ClientExtension):
    """Keeps the access to a client."""

    identifier = "com.example/access"

    def attach(self, client: Any, access: ClientAccess) -> ClientAccess:
        return access


@contextlib.asynccontextmanager
async def tasks(*states: Any, **options: Any) -> AsyncIterator[tuple[Client, ClientTasks, TaskServer, ClientAccess]]:
    both = [Tasks(), Access()]
    async with task_server(*states, answers=ANSWERS, extensions=both, **options) as (client, server):
        yield client, Tasks.of(client), server, client.attached(Access.identifier)


Make = Callable[[ClientTasks, ClientAccess], Awaitable[object]]

REQUESTS: dict[Any, Make] = {
    ClientAccess.call_tool: lambda _, access: access.call_tool("x"),
    ClientTasks.start: lambda tasks, _: tasks.start("x"),
    TaskHandle.cancel: lambda tasks, _: tasks.task(ID).cancel(),
    TaskHandle.get: lambda tasks, _: tasks.task(ID).get(),
    TaskHandle.result: lambda tasks, _: tasks.task(ID).result(),
    TaskWatch.__anext__: lambda tasks, _: anext(tasks.task(ID).watch()),
}


def every_request(function: Any, make: Make) -> None:
    @call(function, "answered by the server")
    async def answered(check: Check) -> None:
        async with tasks(completed()) as (_, made, _, access):
            await check(make(made, access))

    @effect(function, "nothing is asked")
    async def nothing_is_asked() -> None:
        async with tasks(completed()) as (_, made, server, access):
            await cancelled_before(make(made, access))
            await settle()
            assert {each.method for each in server.asked} <= {"subscriptions/listen"}


for function, make in REQUESTS.items():
    every_request(function, make)


@call(TaskHandle.cancel, "without a task")
@call(TaskHandle.result, "without a task, and once it is known")
async def known(check: Check) -> None:
    async with tasks(first=DONE) as (_, made, _, _):
        task = await made.start("x")
        await check(task.cancel() if check.function is TaskHandle.cancel else task.result())
    async with tasks(completed()) as (_, made, _, _):
        task = made.task(ID)
        await task.result()
        await check(task.cancel() if check.function is TaskHandle.cancel else task.result())


@call(TaskWatch.__anext__, "to the end, with a state that is known, and without a task")
async def watched(check: Check) -> None:
    async with tasks(state(pollIntervalMs=1), completed()) as (_, made, _, _):
        task = made.task(ID)
        assert [each.status for each in await check.loop(task.watch())] == ["working", "completed"]
        assert [each.status for each in await check.loop(task.watch())] == ["completed"]
    async with tasks(first=DONE) as (_, made, _, _):
        assert await check.loop((await made.start("x")).watch()) == []


@call(ClientAccess.answer, "sync callbacks, and no questions")
async def answer(check: Check) -> None:
    async with tasks() as (_, _, _, access):
        assert (await check(access.answer("x/y", {"a": ASK})))["a"]["action"] == "accept"
        assert await check(access.answer("x/y", {})) == {}


@call(ClientAccess.read_tool_result, "no schema, and one to be listed")
async def read(check: Check) -> None:
    async with tasks() as (_, _, server, access):
        await check(access.read_tool_result(DONE))
        await check(access.read_tool_result({**DONE, "structuredContent": {}}, "x"))
        assert [each.method for each in server.asked] == ["tools/list"]


@effect(ClientAccess.answer, "no question is asked")
@effect(ClientAccess.read_tool_result, "nothing is asked")
async def before() -> None:
    async with tasks() as (_, _, server, access):
        await cancelled_before(access.answer("x/y", {"a": ASK}))
        await cancelled_before(access.read_tool_result({**DONE, "structuredContent": {}}, "x"))
        assert server.asked == []


@call(ClientAccess.listen, "entered and left")
async def listen(check: Check) -> None:
    async with tasks(honors=True) as (_, _, server, access), trio.open_nursery() as nursery:

        async def acknowledge() -> None:
            await settle()
            await server.acknowledge(taskIds=[ID])

        nursery.start_soon(acknowledge)
        async with check.block(access.listen({"taskIds": [ID]})):
            pass


@effect(ClientAccess.listen, "it is not entered")
async def not_listening() -> None:
    async with tasks(honors=True) as (client, _, _, access):
        await not_entered(access.listen({"taskIds": [ID]}))
        assert client.statistics().subscriptions == 0


@call(Client.finish, "nothing to finish, and a task")
async def finish(check: Check) -> None:
    async with tasks(completed()) as (client, _, _, _):
        assert await check(client.finish("tools/call", {}, DONE)) == DONE
        assert (await check(client.finish("tools/call", {}, created())))["content"]


@effect(Client.finish, "nothing is asked")
async def nothing_is_finished() -> None:
    async with tasks(completed()) as (client, _, server, _):
        await cancelled_before(client.finish("tools/call", {}, created()))
        assert server.asked == []


@call(ClientExtension.run, "not overridden")
async def run(check: Check) -> None:
    await check(Access().run(None))


@effect(ClientExtension.run, "it has none")
async def no_effect() -> None:
    await cancelled_before(Access().run(None))
