"""Anything that may happen to a login, in any order: it goes on, and a person is asked only if nothing else helps.

Hypothesis draws what happens and when; it runs on the virtual clock, against the authorization server for tests.
"""

from __future__ import annotations

import contextlib
from typing import TypeAlias

import attrs
import trio
from hypothesis import given, settings
from hypothesis import strategies as st
from trio.testing import MockClock

from tests.auth.engine.world import SERVER, World, now
from tests.effort import examples
from trio_mcp.auth.testing import AuthorizationServer, Fault
from trio_mcp.auth.testing.faults import cut, lost, raw, silent, status
from trio_mcp.errors import AuthorizationError

LONGEST = 2000
"""No call takes longer, in seconds: a login, the waits for those of others, and refreshes that are never answered."""

FAULTS: dict[str, Fault] = {
    "the server is busy": status(503),
    "the server limits us": status(429),
    "the server talks nonsense": raw(b"<html>"),
    "the server's answer is cut": cut,
    "the server never hears us": lost,
    "the server never answers": silent,
}
"""What goes wrong with the next request for tokens."""


@attrs.frozen
class Call:
    """A call of a client.

    Attributes:
        process: Of which process.
        needed: The scopes that it needs.
        patience: After how long it is cancelled, in seconds; None never.
    """

    process: int
    needed: tuple[str, ...]
    patience: float | None


@attrs.frozen
class Event:
    """What happens to the servers, to the person, or to a client."""

    name: str


Happening: TypeAlias = Call | Event

calls = st.builds(
    Call,
    st.integers(0, 1),
    st.sampled_from([(), ("read",), ("write",), ("read", "write")]),
    st.sampled_from([None, None, None, 0.0, 0.05, 0.15, 0.25, 1.0, 5.5, 10.5]),
)
events = st.sampled_from([
    *FAULTS,
    "tokens expire",
    "logins are revoked",
    "clients are forgotten",
    "another authorization server takes over",
    "the person declines",
    "the person accepts",
    "the person is slow",
    "the person is quick",
    "a client signs out",
]).map(Event)  # fmt: skip
pauses = st.sampled_from([0.0, 0.0, 0.0, 0.1, 0.3, 1.0, 6.0, 4000.0])
plans = st.lists(st.tuples(pauses, st.one_of(calls, calls, events)), max_size=25)


class Run:
    """One run of a plan: two processes, as it were, which share a store, with two clients each."""

    def __init__(self, grace: float) -> None:
        self.world = World(grace=grace)
        self.oauths = [self.world.oauth(), self.world.oauth()]
        self.world.needs = ["read"]

    async def play(self, plan: list[tuple[float, Happening]]) -> None:
        """Let everything happen, then check that all is well again."""
        async with contextlib.AsyncExitStack() as stack:
            # One client of each process stays, the other one comes and goes.
            for oauth in self.oauths:
                await stack.enter_async_context(oauth.opened(SERVER, contextlib.nullcontext))
            async with trio.open_nursery() as nursery:
                for pause, happening in plan:
                    await trio.sleep(pause)
                    if isinstance(happening, Call):
                        nursery.start_soon(self.call, happening)
                    else:
                        await self.happen(happening.name)
            await self.end()

    async def call(self, call: Call) -> None:
        with trio.fail_after(LONGEST), trio.CancelScope() as scope:
            if call.patience is not None:
                scope.deadline = trio.current_time() + call.patience
            with contextlib.suppress(AuthorizationError):
                async with self.oauths[call.process].opened(SERVER, contextlib.nullcontext) as signer:
                    assert await self.world.call(signer, call.needed) == 200

    async def happen(self, name: str) -> None:
        world, last = self.world, self.world.id
        match name:
            case "tokens expire":
                # Not those that have just arrived: what is refused at once is not refreshed again.
                if trio.current_time() > world.arrived_at + 2:
                    last.issued.expire()
            case "logins are revoked":
                last.issued.revoke_all()
            case "clients are forgotten":
                if (login := await world.login()) is not None:
                    last.clients.forget(login.client.id)
            case "another authorization server takes over":
                world.id = AuthorizationServer(
                    f"https://id{len(world.all)}.example.com", clock=now, tokens="opaque", grace=last.settings["grace"]
                )
                world.all[world.id.issuer] = world.id
            case "the person declines":
                last.denies = True
            case "the person accepts":
                last.denies = False
            case "the person is slow":
                world.person = 400
            case "the person is quick":
                world.person = 5
            case "a client signs out":
                with contextlib.suppress(AuthorizationError):
                    await self.oauths[0].sign_out(SERVER)
                    world.newest = None
            case _:
                faults = last.faults.setdefault("token", [])
                assert isinstance(faults, list)
                faults.append(FAULTS[name])

    async def end(self) -> None:
        """Check that the login goes on, and that a refresh is all that it takes."""
        world = self.world
        await trio.sleep(30)  # requests for tokens that are still under way have ended by then
        await world.check()
        world.id.faults.clear()
        world.id.denies, world.person = False, 5
        for round in range(2):
            for process in (0, 1):
                world.id.issued.expire()
                if round == 0:  # which may begin with a client that the server has forgotten
                    with contextlib.suppress(AuthorizationError):
                        await self.finish(process)
                    asked = len(world.asked)
                else:
                    await self.finish(process)
        assert len(world.asked) == asked
        await world.check()

    async def finish(self, process: int) -> None:
        async with self.oauths[process].opened(SERVER, contextlib.nullcontext) as signer:
            with trio.fail_after(LONGEST):
                assert await self.world.call(signer, ["read"]) == 200


@settings(max_examples=examples(3000, daily=30))
@given(plans, st.sampled_from([0, 30]))
def test_a_login_goes_on_whatever_happens(plan: list[tuple[float, Happening]], grace: float) -> None:
    trio.run(Run(grace).play, plan, clock=MockClock(autojump_threshold=0))
