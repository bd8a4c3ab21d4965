"""DPoP in several processes: a proof works once in all of them, and nonces of one are good for the others."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest
import trio

from tests.auth.resource.scene import NOW, Clock, bearer, bound, proof, protected, request, shown, token
from trio_mcp import Server
from trio_mcp.auth import ResourceServer
from trio_mcp.http.rules.statuses import Refusal
from trio_mcp.http.server.protection import Guard, Identified
from trio_mcp.server.base_server import core_of
from trio_mcp.stores import MemoryStores, SqliteStores, StoreError

BOUND = bound()
SECRET = bytes(range(32))
USED = (401, "dpop invalid_dpop_proof")


async def judge(guard: Guard, given: str, of: str = BOUND) -> Identified | Refusal:
    return await guard.identify(request(authorization=f"DPoP {of}", dpop=given))


@pytest.mark.parametrize("kind", ["memory", "file"])
async def test_a_proof_works_once_in_all_processes(kind: str, tmp_path: Path) -> None:
    one = MemoryStores() if kind == "memory" else SqliteStores(tmp_path / "x.db")
    other = one if kind == "memory" else SqliteStores(tmp_path / "x.db")
    async with one, other, protected(stores=one) as (_, first), protected(stores=other) as (_, second):
        for guards in ((first, second, first), (second, second, first)):
            given = proof(BOUND)
            assert [shown(await judge(each, given)) for each in guards] == [(200, None), USED, USED]


async def test_of_equal_proofs_at_once_one_works() -> None:
    stores, found = MemoryStores(), []
    async with protected(stores=stores) as (_, first), protected(stores=stores) as (_, second):
        given = proof(BOUND)

        async def use(guard: Guard) -> None:
            found.append(shown(await judge(guard, given)))

        async with trio.open_nursery() as nursery:
            for number in range(10):
                nursery.start_soon(use, (first, second)[number % 2])
    assert sorted(found) == sorted([(200, None)] + [USED] * 9)  # type: ignore[type-var]


async def test_a_proof_is_remembered_for_as_long_as_it_could_work() -> None:
    clock = Clock()
    stores = MemoryStores(now=clock)
    async with protected(stores=stores, clock=clock, remember=10_000) as (_, guard):
        of = bound(exp=int(NOW) + 10_000)
        given = proof(of, iat=int(NOW) + 300)
        assert shown(await judge(guard, given, of)) == (200, None)
        for _ in range(12):
            assert shown(await judge(guard, given, of)) == USED
            clock.now += 55


async def test_proofs_of_two_resources_do_not_collide() -> None:
    stores, other = MemoryStores(), "https://other.example.com/mcp"
    token_of_other = bound(aud=other)
    async with protected(stores=stores) as (_, one), protected(resource=other, stores=stores) as (_, two):
        assert shown(await judge(one, proof(BOUND, jti="same"))) == (200, None)
        given = proof(token_of_other, jti="same", htu=other)
        assert shown(await judge(two, given, token_of_other)) == (200, None)


class Away(MemoryStores):
    """Stores that can't be used."""

    asked = 0

    async def remember(self, key: str, *, seconds: float) -> bool:
        await trio.lowlevel.checkpoint()
        self.asked += 1
        raise StoreError("x.db is damaged: restore it")


async def test_without_the_stores_a_proof_is_refused_until_they_are_back(caplog: pytest.LogCaptureFixture) -> None:
    """A client repeats after 503; a nonce alone would let a proof pass once in each process."""
    caplog.set_level(logging.INFO)
    stores = Away()
    async with protected(stores=stores, nonces=SECRET) as (_, guard):
        refused = await judge(guard, proof(BOUND))
        assert shown(refused) == (401, "dpop use_dpop_nonce")  # nothing needs the stores before the proof is good
        assert isinstance(refused, Refusal)
        nonce = dict(refused.headers)["DPoP-Nonce"]
        assert stores.asked == 0
        for _ in range(2):
            refused = await judge(guard, proof(BOUND, nonce=nonce))
            assert isinstance(refused, Refusal)
            assert (refused.status, dict(refused.headers)["Retry-After"]) == (503, "10")
            assert "can't find out whether it was used before; try again" in refused.error.error.message
            assert "x.db" not in refused.error.error.message
        assert stores.asked == 2
        # Tokens that are bound to no key need no stores.
        assert shown(await guard.identify(bearer(token()))) == (200, None)
    warned = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert [each.getMessage() for each in warned] == [
        "a DPoP proof can't be checked: x.db is damaged: restore it"
    ]  # once a minute


async def test_processes_with_a_secret_accept_each_others_nonces() -> None:
    async with (
        protected(nonces=True, secret=SECRET) as (_, first),
        protected(nonces=True, secret=SECRET) as (_, second),
        protected(nonces=b"x" * 32, secret=SECRET) as (_, own),
    ):
        refused = await judge(first, proof(BOUND))
        assert isinstance(refused, Refusal)
        nonce = dict(refused.headers)["DPoP-Nonce"]
        assert shown(await judge(second, proof(BOUND, nonce=nonce))) == (200, None)
        # A secret that the program gives takes precedence.
        assert shown(await judge(own, proof(BOUND, nonce=nonce))) == (401, "dpop use_dpop_nonce")


async def test_a_server_hands_its_stores_and_its_supervisors_secret_to_the_guard() -> None:
    class Inherited:
        key = nonce = SECRET

    seen: list[object] = []

    class Recording(ResourceServer):
        def opened(self, *shared: object) -> object:  # type: ignore[override]
            seen.append(shared)
            return super().opened(*shared)  # type: ignore[arg-type]

    auth = Recording("https://files.example.com/mcp", issuers=["https://id.example.com"])
    stores = MemoryStores()
    for server, inherited in ((Server("a"), None), (Server("b", stores=stores), Inherited())):
        core_of(server).inherited = inherited
        async with server.asgi_app(auth=auth):
            pass
    assert seen == [(None, None), (stores, SECRET)]
