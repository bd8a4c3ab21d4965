"""The functions of skills, on both sides."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

from tests.checkpoints.table import Check, call, cancelled_before, effect
from tests.extensions.skills.folders import write_skill
from tests.extensions.skills.hostile import GOOD, HostileServer
from trio_mcp import Client, ClientGroup, Server
from trio_mcp.extensions import ClientSkills, GroupSkills, LoadedSkill, Skills


@contextlib.asynccontextmanager
async def skills() -> AsyncIterator[tuple[ClientSkills, GroupSkills, LoadedSkill, HostileServer]]:
    server = HostileServer(settings={"directoryRead": True}, directories={"skill://good": [GOOD]})
    async with (
        Client(server.server(), extensions=[Skills()]) as client,
        ClientGroup({"a": server.server()}, extensions=[Skills()]) as group,
    ):
        own = Skills.of(client)
        loaded = await own.load(GOOD)
        server.asked.clear()
        yield own, Skills.of(group), loaded, server


Make = Callable[[ClientSkills, GroupSkills, LoadedSkill], Awaitable[object]]

REQUESTS: dict[Any, Make] = {
    ClientSkills.entries: lambda own, _, __: own.entries(),
    ClientSkills.get: lambda own, _, __: own.get(GOOD),
    ClientSkills.load: lambda own, _, __: own.load(GOOD),
    ClientSkills.directory: lambda own, _, __: own.directory("skill://good"),
    GroupSkills.entries: lambda _, group, __: group.entries(),
    GroupSkills.get: lambda _, group, __: group.get(GOOD, server="a"),
    GroupSkills.load: lambda _, group, __: group.load(GOOD, server="a"),
    GroupSkills.directory: lambda _, group, __: group.directory("skill://good", server="a"),
    LoadedSkill.read: lambda _, __, loaded: loaded.read("a.md"),
    LoadedSkill.read_text: lambda _, __, loaded: loaded.read_text("a.md"),
}


def every_request(function: Any, make: Make) -> None:
    @call(function, "answered by the server, and again")
    async def answered(check: Check) -> None:
        async with skills() as (own, group, loaded, _):
            await check(make(own, group, loaded))
            await check(make(own, group, loaded))  # what has been read is kept

    @effect(function, "nothing is asked")
    async def nothing_is_asked() -> None:
        async with skills() as (own, group, loaded, server):
            await cancelled_before(make(own, group, loaded))
            assert server.asked == []


for function, make in REQUESTS.items():
    every_request(function, make)


@call(ClientSkills.entries, "without skills")
async def no_skills(check: Check) -> None:
    async with Client(Server("plain"), extensions=[Skills()]) as client:
        await check(Skills.of(client).entries())


@call(GroupSkills.entries, "without servers")
async def no_servers(check: Check) -> None:
    async with ClientGroup({}, extensions=[Skills()]) as group:
        await check(Skills.of(group).entries())


@call(ClientGroup.connected, "to a server that is connected")
async def connected(check: Check) -> None:
    async with ClientGroup({"a": Server("x")}) as group:
        assert await check(group.connected("a")) is group.clients["a"]


@effect(ClientGroup.connected, "it has none")
async def not_connected() -> None:
    async with ClientGroup({"a": Server("x")}) as group:
        await cancelled_before(group.connected("a"))


@call(Skills.rescan, "with and without a change")
async def rescan(check: Check) -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_skill(Path(folder), "good")
        own = Skills(folder)
        assert (await check(own.rescan())).added == (GOOD,)
        assert (await check(own.rescan())).added == ()


@effect(Skills.rescan, "nothing is read")
async def nothing_is_read() -> None:
    with tempfile.TemporaryDirectory() as folder:
        write_skill(Path(folder), "good")
        own = Skills(folder)
        await cancelled_before(own.rescan())
        assert (await own.rescan()).added == (GOOD,)
