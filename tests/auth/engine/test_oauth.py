"""`OAuth`: signing in, staying signed in, and asking a person no more often than needed."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections import defaultdict
from collections.abc import AsyncIterator
from functools import partial
from typing import Any
from urllib.parse import parse_qs, urlsplit

import attrs
import pytest
import trio
from trio.testing import MockClock

from tests.auth.engine.world import SERVER, World, now, together
from trio_mcp.auth import MemoryTokens, OAuth, RegisteredClient
from trio_mcp.auth.rules.steps import Fetch, ShowCode
from trio_mcp.auth.testing import AuthorizationServer
from trio_mcp.auth.testing.faults import cut, edited, lost, raw, silent, status
from trio_mcp.errors import AuthorizationError, LoginRequired
from trio_mcp.http.headers import Headers


async def test_a_person_signs_in_once_and_the_store_does_the_rest(autojump_clock: MockClock) -> None:
    world = World()
    async with world.signed_in() as signer:
        assert await world.call(signer) == 200
    async with world.signed_in():
        pass
    assert (len(world.asked), world.id.count("register")) == (1, 1)


async def test_64_calls_without_a_login_ask_once(autojump_clock: MockClock) -> None:
    world = World()
    async with world.oauth().opened(SERVER, contextlib.nullcontext) as signer:
        assert await together(*[partial(world.call, signer)] * 64) == [200] * 64
    assert len(world.asked) == 1


@pytest.mark.parametrize("expired_by", ["our clock", "the server"])
async def test_64_calls_at_expiry_refresh_once(autojump_clock: MockClock, expired_by: str) -> None:
    world = World()
    sent: list[str] = []
    async with world.signed_in() as signer:
        if expired_by == "the server":
            world.id.issued.expire()
        else:
            await trio.sleep(3601)
        assert await together(*[partial(world.call, signer, sent=sent)] * 64) == [200] * 64
    assert (world.refreshes(), len(world.asked)) == (1, 1)
    assert len(sent) == (128 if expired_by == "the server" else 64)


async def test_clients_share_the_login_of_one_object(autojump_clock: MockClock) -> None:
    world = World()
    oauth = world.oauth()
    async with oauth.opened(SERVER, contextlib.nullcontext) as one, oauth.opened(SERVER, contextlib.nullcontext) as two:
        assert await together(partial(world.call, one), partial(world.call, two)) == [200] * 2
        await trio.sleep(3601)
        assert await together(partial(world.call, one), partial(world.call, two)) == [200] * 2
    assert (len(world.asked), world.refreshes()) == (1, 1)


async def test_what_shares_a_store_takes_the_tokens_that_another_has_refreshed(autojump_clock: MockClock) -> None:
    """As processes do: under the lock of the store, the second one finds what the first one got."""
    world = World()
    async with world.signed_in() as one, world.signed_in() as two:
        await trio.sleep(3601)
        assert await together(partial(world.call, one), partial(world.call, two)) == [200] * 2
        world.id.issued.expire()
        assert await together(partial(world.call, two), partial(world.call, one)) == [200] * 2
    assert (len(world.asked), world.refreshes()) == (1, 2)


async def test_what_shares_a_store_asks_a_person_once(autojump_clock: MockClock) -> None:
    world = World()
    opened = [world.oauth().opened(SERVER, contextlib.nullcontext) for _ in range(8)]
    async with contextlib.AsyncExitStack() as stack:
        signers = [await stack.enter_async_context(each) for each in opened]
        assert await together(*[partial(world.call, signer) for signer in signers]) == [200] * 8
    assert len(world.asked) == 1


async def test_who_has_a_live_token_does_not_wait(autojump_clock: MockClock) -> None:
    """python-sdk #1326: a lock held over a request stalls all others."""
    world = World()
    world.needs = ["read"]
    async with world.signed_in() as signer, trio.open_nursery() as nursery:
        world.person = 200
        nursery.start_soon(world.call, signer, ["write"])  # steps up, which takes the person 200 seconds
        await trio.sleep(10)
        assert len(world.asked) == 2
        with trio.fail_after(1):
            assert await world.call(signer) == 200


async def test_a_refresh_does_not_wait_for_a_person(autojump_clock: MockClock) -> None:
    world = World()
    world.needs = ["read"]
    async with world.signed_in() as signer, trio.open_nursery() as nursery:
        world.person = 200
        nursery.start_soon(world.call, signer, ["write"])
        await trio.sleep(10)
        world.id.issued.expire()
        with trio.fail_after(1):
            assert await world.call(signer) == 200
        assert world.refreshes() == 1
    login = await world.login()
    assert login is not None
    assert login.scopes == {"read", "write"}


# --- what a refusal leads to -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("faults", "calls", "refreshes", "asked"),
    [
        # The login is kept, and the next call goes on with it.
        ([status(503)], ["refresh", 200], 2, 1),
        ([status(429)], ["refresh", 200], 2, 1),
        ([raw(b"<html>")], ["refresh", 200], 2, 1),
        ([raw(b'{"error": "temporarily_unavailable"}', code=400)], ["refresh", 200], 2, 1),
        # Nothing arrived, so it is asked once more, at once.
        ([lost], ["refresh", 200], 2, 1),
        ([lambda request, handle: cut(request, lambda _: raw(b"{}")(request, handle))], [200], 2, 1),
        # A strict server ends the family then, and a person is asked.
        ([cut], [200], 2, 2),
        # What the server says is dropped, and nothing else: the registration stays.
        ([raw(b'{"error": "invalid_grant"}', code=400)], [200], 1, 2),
    ],
)  # fmt: skip
async def test_only_the_server_can_end_a_login(
    autojump_clock: MockClock, faults: list[Any], calls: list[object], refreshes: int, asked: int
) -> None:
    world = World()
    async with world.signed_in() as signer:
        world.id.faults["token"] = list(faults)
        world.id.issued.expire()
        for expected in calls:
            (outcome,) = await together(partial(world.call, signer))
            assert (outcome.step if isinstance(outcome, AuthorizationError) else outcome) == expected
    assert (world.refreshes(), len(world.asked), world.id.count("register")) == (refreshes, asked, 1)


async def test_a_refresh_whose_answer_is_cut_is_tried_once_more(autojump_clock: MockClock) -> None:
    world = World(grace=30)
    async with world.signed_in() as signer:
        world.id.faults["token"] = [cut]
        world.id.issued.expire()
        assert await world.call(signer) == 200
    assert (world.refreshes(), len(world.asked)) == (2, 1)


async def test_a_client_that_the_server_has_forgotten_registers_anew(autojump_clock: MockClock) -> None:
    """supabase/mcp #355: a forgotten registration must not be the end."""
    world = World()
    async with world.signed_in() as signer:
        before = await world.login()
        assert before is not None
        world.id.clients.forget(before.client.id)
        world.id.issued.expire()
        assert await world.call(signer) == 200
    assert (len(world.asked), world.id.count("register")) == (2, 2)


async def test_a_client_that_is_known_no_more_when_a_person_signs_in_is_not_used_for_ever(
    autojump_clock: MockClock,
) -> None:
    """The server says so on a page, and the browser never comes back."""
    world = World()
    async with world.signed_in() as signer:
        login = await world.login()
        assert login is not None
        world.id.issued.revoke_all()
        world.id.clients.forget(login.client.id)
        world.id.faults["token"] = [raw(b'{"error": "invalid_grant"}', code=400)]
        with pytest.raises(AuthorizationError, match="did not sign in"):
            await world.call(signer)
        assert await world.call(signer) == 200
    assert world.id.count("register") == 2


async def test_a_client_that_is_forgotten_again_and_again_is_an_error(autojump_clock: MockClock) -> None:
    world = World()
    async with world.signed_in() as signer:
        world.id.faults["token"] = raw(b'{"error": "invalid_client"}', code=401)
        world.id.issued.expire()
        with pytest.raises(AuthorizationError, match="invalid_client"):
            await world.call(signer)
    assert (len(world.asked), world.id.count("register")) == (2, 2)


async def test_a_given_client_that_is_refused_loses_nothing(autojump_clock: MockClock) -> None:
    world = World()
    world.id.add_client("app", "secret", redirects=["http://127.0.0.1:0/callback"])
    async with world.signed_in(client=RegisteredClient("app", secret="secret")) as signer:
        world.id.faults["token"] = [raw(b'{"error": "invalid_client"}', code=401)]
        world.id.issued.expire()
        with pytest.raises(AuthorizationError, match=r"refresh .*invalid_client"):
            await world.call(signer)
        assert await world.call(signer) == 200
    assert len(world.asked) == 1


async def test_more_scopes_are_asked_for_with_those_that_there_were(autojump_clock: MockClock) -> None:
    world = World()
    world.needs = ["read"]
    async with world.signed_in() as signer:
        assert await world.call(signer, ["write"]) == 200
        assert await world.call(signer, ["read", "write"]) == 200
    assert [parse_qs(urlsplit(url).query)["scope"] for url in world.asked] == [["read"], ["read write"]]


async def test_scopes_that_are_never_enough_end_the_call_and_not_the_login(autojump_clock: MockClock) -> None:
    world = World()
    world.needs = ["read"]
    async with world.signed_in() as signer:
        world.content = False
        for _ in range(2):  # asked once for the two
            with pytest.raises(AuthorizationError, match=r"write.*insufficient_scope"):
                await world.call(signer, ["write"])
        assert await world.call(signer) == 200
    assert len(world.asked) == 2


async def test_operations_that_need_different_scopes_at_once_don_t_count_for_each_other(
    autojump_clock: MockClock,
) -> None:
    needs = [f"scope{number}" for number in range(8)]
    world = World(scopes=["read", *needs])
    world.needs = ["read"]
    async with world.signed_in() as signer:
        assert await together(*[partial(world.call, signer, [need]) for need in needs]) == [200] * 8
    assert len(world.asked) == 9


async def test_a_token_that_expires_after_a_step_up_is_refreshed(autojump_clock: MockClock) -> None:
    world = World()
    world.needs = ["read"]

    def expire_at_once(request: Fetch, handle: Any) -> Any:
        answer = handle(request)
        world.id.issued.expire()
        return answer

    async with world.signed_in() as signer:
        world.id.issued.expire()
        world.id.faults["token"] = [lambda request, handle: handle(request), expire_at_once]
        assert await world.call(signer, ["write"]) == 200
    assert (len(world.asked), world.refreshes()) == (2, 2)


async def test_the_scopes_of_a_login_survive_its_end(autojump_clock: MockClock) -> None:
    world = World()
    world.needs = ["read"]
    async with world.signed_in() as signer:
        assert await world.call(signer, ["write"]) == 200
        world.id.issued.revoke_all()
        assert await world.call(signer) == 200
        assert await world.call(signer, ["write"]) == 200
    assert len(world.asked) == 3


async def test_a_token_that_is_refused_when_it_is_new_is_an_error(autojump_clock: MockClock) -> None:
    world = World()
    async with world.oauth().opened(SERVER, contextlib.nullcontext) as signer:
        world.id.faults["token"] = edited(access_token="nonsense")
        with pytest.raises(AuthorizationError, match="refused the token that was issued for it"):
            await world.call(signer)
    assert len(world.asked) == 1


@pytest.mark.parametrize("refreshes", [True, False])
async def test_another_authorization_server_gets_nothing_of_the_old_one(
    autojump_clock: MockClock, refreshes: bool
) -> None:
    world = World()
    async with world.signed_in() as signer:
        old = await world.login()
        assert old is not None
        if not refreshes:
            world.id.issued.revoke_all()
        world.id = AuthorizationServer("https://other.example.com", clock=now)
        world.all[world.id.issuer] = world.id
        assert await world.call(signer) == 200
    new = await world.login()
    assert new is not None
    assert new.issuer == "https://other.example.com"
    seen = json.dumps(
        [[each.parameters, dict(each.request.fields), each.request.body.decode()] for each in world.id.seen]
    )
    assert not [text for text in (old.client.id, old.access_token, str(old.refresh_token)) if text in seen]


async def test_an_authorization_server_that_is_gone_holds_up_nothing(autojump_clock: MockClock) -> None:
    """Its silence ends no login, but a server that names another one by now does not want the old one's tokens."""
    world = World()
    async with world.signed_in() as signer:
        world.id.faults["token"] = lost
        await trio.sleep(3601)
        with pytest.raises(AuthorizationError, match="refresh"):
            await world.call(signer)
        world.id = AuthorizationServer("https://other.example.com", clock=now)
        world.all[world.id.issuer] = world.id
        assert await world.call(signer) == 200
    assert len(world.asked) == 2


async def test_a_client_of_one_authorization_server_is_not_taken_to_another(autojump_clock: MockClock) -> None:
    world = World()
    world.id.add_client("app", "secret", redirects=["http://127.0.0.1:0/callback"])
    async with world.signed_in(client=RegisteredClient("app", secret="secret")) as signer:
        world.id.issued.revoke_all()
        world.id = AuthorizationServer("https://other.example.com", clock=now)
        world.all[world.id.issuer] = world.id
        with pytest.raises(AuthorizationError, match="app"):
            await world.call(signer)
    assert not [each for each in world.id.seen if each.endpoint != "metadata"]


async def test_a_login_is_found_again_though_the_issuer_was_named_with_a_slash(autojump_clock: MockClock) -> None:
    world = World()
    world.id.add_client("app", "secret", redirects=["http://127.0.0.1:0/callback"])
    for _ in range(2):
        client = RegisteredClient("app", secret="secret", issuer=world.id.issuer + "/")
        async with world.signed_in(client=client) as signer:
            assert await world.call(signer) == 200
    assert len(world.asked) == 1


async def test_the_token_goes_to_the_origin_of_the_server_alone(autojump_clock: MockClock) -> None:
    world = World()
    async with world.signed_in() as signer:
        attempt = signer.attempt()
        assert await attempt.fields("GET", "https://mcp.example.com/messages?session=1")
        assert await attempt.fields("GET", "WSS://mcp.example.com:443/mcp")
        for elsewhere in (
            "https://mcp.example.com:444/mcp",
            "http://mcp.example.com/mcp",
            "ws://mcp.example.com/mcp",
            "https://example.com/mcp",
            "https://mcp.example.com@example.com/mcp",
            "https:mcp",
        ):
            assert not await attempt.fields("GET", elsewhere)
            assert not await attempt.again(401, Headers([]))


# --- no person, no waiters -------------------------------------------------------------------------------------------


async def test_a_query_that_may_be_secret_is_in_no_error(autojump_clock: MockClock) -> None:
    url = f"{SERVER}?key=CANARY"
    async with World().oauth(show=None).opened(url, contextlib.nullcontext) as signer:
        attempt = signer.attempt()
        await attempt.fields("POST", url)
        with pytest.raises(LoginRequired, match=r"mcp\?…") as caught:
            await attempt.again(401, Headers([]))
    assert "CANARY" not in f"{caught.value!r} {caught.value}"


async def test_where_no_person_can_be_asked_a_login_is_required(autojump_clock: MockClock) -> None:
    world = World()
    async with world.oauth(show=None).opened(SERVER, contextlib.nullcontext) as signer:
        with pytest.raises(LoginRequired, match=r"trio-mcp login https://mcp\.example\.com/mcp"):
            await world.call(signer)
        async with world.signed_in():
            assert await world.call(signer) == 200  # it looks into the store first
        # What it advises must help, and harm no one who pastes it: scopes are the server's words.
        with pytest.raises(LoginRequired, match=r"login https://\S+ '--scope=\$\(rm\)' --scope=read\b"):
            await world.call(signer, ["read", "$(rm)"])


async def test_a_login_is_required_at_once_though_another_process_asks_its_person(autojump_clock: MockClock) -> None:
    """It may take minutes, or never end."""
    world = World()
    async with (
        world.store.lock(f"{SERVER}#login"),
        world.store.lock(SERVER),
        world.oauth(show=None).opened(SERVER, contextlib.nullcontext) as signer,
    ):
        with trio.fail_after(10), pytest.raises(LoginRequired):
            await world.call(signer)


async def test_the_person_does_not_come(autojump_clock: MockClock) -> None:
    world = World(person=301)
    async with world.oauth().opened(SERVER, contextlib.nullcontext) as signer:
        with pytest.raises(AuthorizationError, match="did not sign in within 300 seconds"):
            await world.call(signer)


async def test_a_function_that_can_not_show_the_page_is_an_error_of_the_login(autojump_clock: MockClock) -> None:
    async def shown(url: str) -> str:
        raise OSError("no display")

    world = World()
    async with world.oauth(show=shown).opened(SERVER, contextlib.nullcontext) as signer:
        with pytest.raises(AuthorizationError, match="could not be shown to the person: OSError: no display"):
            await world.call(signer)


async def test_a_person_declines(autojump_clock: MockClock) -> None:
    world = World()
    world.id.denies = True
    async with world.oauth().opened(SERVER, contextlib.nullcontext) as signer:
        outcomes = await together(*[partial(world.call, signer)] * 3)
    assert [outcome.error for outcome in outcomes] == ["access_denied"] * 3
    assert len({id(outcome) for outcome in outcomes}) == 3
    assert len(world.asked) == 1


def test_ctrl_c_leaves_through_the_call_that_waits_for_a_person() -> None:
    async def shown(url: str) -> str:
        async with trio.open_nursery():  # it strikes a task of the login, which may be in a nursery of its own
            raise KeyboardInterrupt

    async def run() -> None:
        world = World()
        async with world.oauth(show=shown).opened(SERVER, contextlib.nullcontext) as signer:
            await world.call(signer)

    with pytest.raises(KeyboardInterrupt):
        trio.run(run)


async def test_the_last_one_who_leaves_ends_a_login(autojump_clock: MockClock) -> None:
    world = World(person=100)
    async with world.oauth().opened(SERVER, contextlib.nullcontext) as signer:
        with trio.move_on_after(10):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(world.call, signer)
                nursery.start_soon(world.call, signer)
        world.person = 5
        await signer.sign_in()  # at once: the other one has not ended yet
        assert await world.login() is not None
    assert len(world.asked) == 2


async def test_one_who_leaves_does_not_end_the_login_of_others(autojump_clock: MockClock) -> None:
    world = World(person=100)
    oauth = world.oauth()
    async with trio.open_nursery() as nursery, oauth.opened(SERVER, contextlib.nullcontext) as other:
        with trio.move_on_after(10):
            async with oauth.opened(SERVER, contextlib.nullcontext) as first:
                nursery.start_soon(world.call, other)
                await world.call(first)
        with trio.fail_after(100):
            assert await world.call(other) == 200
    assert len(world.asked) == 1


async def test_a_refresh_that_was_sent_is_finished_whichever_task_leaves(autojump_clock: MockClock) -> None:
    world = World(latency=2)
    async with world.signed_in() as signer:
        before = await world.login()
        world.id.issued.expire()
        with trio.move_on_after(3):  # the answer is on its way
            await world.call(signer)
        assert world.refreshes() == 1
    after = await world.login()  # closing waits for it
    assert before is not None
    assert after is not None
    assert after.refresh_token != before.refresh_token
    async with world.signed_in():
        pass
    assert (world.refreshes(), len(world.asked)) == (1, 1)


def test_a_refresh_that_was_sent_is_finished_even_at_the_end_of_the_run() -> None:
    store = MemoryTokens()

    async def run() -> tuple[World, Any]:
        world = World(store=store, latency=2)
        async with world.signed_in() as signer:
            before = await world.login()
            world.id.issued.expire()
            with trio.move_on_after(3) as scope:
                await world.call(signer)
            assert scope.cancelled_caught
            return world, before

    world, before = trio.run(run, clock=MockClock(autojump_threshold=0))
    after = trio.run(world.login)
    assert after.refresh_token != before.refresh_token


async def test_a_refresh_that_is_never_answered_ends_and_the_login_stays(autojump_clock: MockClock) -> None:
    world = World()
    async with world.signed_in() as signer:
        world.id.issued.expire()
        world.id.faults["token"] = [silent]
        with trio.fail_after(11), pytest.raises(AuthorizationError, match=r"10 seconds|connection ended"):
            await world.call(signer)
        login = await world.login()
        assert login is not None
        assert login.refresh_token


async def test_a_person_takes_time_and_machines_do_not(autojump_clock: MockClock) -> None:
    """The block that stops the client's timeouts is open while a person is asked, and at no other time."""
    world = World(person=100)
    paused: list[float] = []

    @contextlib.contextmanager
    def pause() -> Any:
        began = trio.current_time()
        yield
        paused.append(trio.current_time() - began)

    async with world.oauth().opened(SERVER, pause) as signer:
        assert await world.call(signer) == 200
        assert len(paused) == 1
        assert paused[0] > 100
        world.id.issued.expire()
        assert await world.call(signer) == 200
    assert len(paused) == 1


# --- ways to sign in --------------------------------------------------------------------------------------------------


async def test_a_code_is_entered_elsewhere(autojump_clock: MockClock) -> None:
    world, shown = World(), []

    async def show_code(step: ShowCode) -> None:
        shown.append(step.url)
        await trio.sleep(20)
        world.id.approve(step.code)

    async with world.signed_in(redirect=None, show_code=show_code) as signer:
        world.id.issued.expire()
        assert await world.call(signer) == 200
    assert (len(shown), world.asked, world.refreshes()) == (1, [], 1)


async def test_a_code_that_is_not_entered_in_time_ends_the_login(autojump_clock: MockClock) -> None:
    shown = []

    async def show_code(step: ShowCode) -> None:
        await trio.lowlevel.checkpoint()
        shown.append(step.expires_in)

    with pytest.raises(AuthorizationError, match=r"within 60 seconds.*login_timeout"):
        async with World().signed_in(redirect=None, show_code=show_code, login_timeout=60):
            pass
    assert shown == [60]
    assert 50 < trio.current_time() < 70


async def test_tokens_are_bound_to_a_key_and_nonces_are_learned_by_all_calls_at_once(autojump_clock: MockClock) -> None:
    world = World(dpop="accept", dpop_nonces=True)
    world.scheme = "DPoP"
    async with world.signed_in(dpop="auto") as signer:
        for world.nonce in ("2", "3"):
            assert await together(*[partial(world.call, signer)] * 8) == [200] * 8
        world.id.issued.expire()
        assert await together(*[partial(world.call, signer)] * 8) == [200] * 8
    async with world.signed_in(dpop="auto"):  # with the key of the store
        pass
    assert (len(world.asked), world.refreshes()) == (1, 2)  # the first one had no nonce


@pytest.mark.parametrize("game", ["none", "always another"])
async def test_what_is_wrong_with_a_proof_is_not_the_login(autojump_clock: MockClock, game: str) -> None:
    """Asked for nonces that are not given, or never right, the client neither goes on forever nor asks a person."""
    world = World(dpop="accept")
    world.scheme = "DPoP"
    async with world.signed_in(dpop="auto") as signer:
        world.nonces = itertools.repeat("") if game == "none" else map(str, itertools.count())
        world.nonce = "right"
        with pytest.raises(AuthorizationError, match="use_dpop_nonce"):
            await world.call(signer)
    assert (len(world.asked), world.refreshes()) == (1, 0)


async def test_a_server_that_does_not_ask_for_keys_gets_bearer_tokens(autojump_clock: MockClock) -> None:
    world = World(dpop="accept")
    sent: list[str] = []
    async with world.signed_in(dpop="auto") as signer:
        await world.call(signer, sent=sent)
    assert sent[0].startswith("Bearer ")


async def test_the_port_that_was_registered_is_used_again(autojump_clock: MockClock) -> None:
    """mcp-remote #72: some authorization servers compare ports. If it is taken, the client registers anew."""
    world = World()
    async with world.signed_in() as signer:
        world.id.issued.revoke_all()
        assert await world.call(signer) == 200
        assert world.id.count("register") == 1
        first, second = [parse_qs(urlsplit(url).query)["redirect_uri"] for url in world.asked]
        assert first == second
        listeners = await trio.open_tcp_listeners(urlsplit(first[0]).port or 0, host="127.0.0.1")
        world.id.issued.revoke_all()
        assert await world.call(signer) == 200
        await listeners[0].aclose()
    assert world.id.count("register") == 2


async def test_its_metadata_document_is_what_the_client_is_known_by(autojump_clock: MockClock) -> None:
    url = "https://app.example.com/client.json"
    document = {"client_id": url, "client_name": "app", "redirect_uris": ["http://127.0.0.1/callback"]}
    document["token_endpoint_auth_method"] = "none"
    world = World(documents=lambda _: json.dumps(document).encode())
    async with world.signed_in(metadata_url=url):
        assert parse_qs(urlsplit(world.asked[0]).query)["client_id"] == [url]
    assert world.id.count("register") == 0


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"scopes": "read write"}, "scopes must be a set of strings"),
        (
            {"metadata_url": "http://app.example.com/client.json"},
            "metadata_url 'http://app.example.com/.*' is not https",
        ),
        ({"redirect": "http://app.example.com/callback"}, "neither on loopback nor https"),
        ({"redirect": "myapp:/callback"}, "redirect"),
        ({"client": "an-id"}, "client must be a RegisteredClient"),
        ({"store": "a-folder"}, "store must be a TokenStore, such as .*, got str"),
        ({"show": "browser"}, "show must be callable"),
        ({"dpop": "yes"}, "dpop must be one of auto, require, off; got 'yes'"),
        ({"login_timeout": 0}, "login_timeout must be more than 0 seconds"),
        ({"assume_pkce": "https://id.example.com"}, "assume_pkce must be a set of issuers"),
    ],
)
def test_what_can_not_work_is_refused_at_once(options: dict[str, Any], says: str) -> None:
    with pytest.raises((TypeError, ValueError), match=says):
        OAuth(**options)


# --- stores ----------------------------------------------------------------------------------------------------------


async def test_a_store_that_fails_costs_one_call_and_no_token(autojump_clock: MockClock) -> None:
    class Full(MemoryTokens):
        full = False

        async def save(self, key: str, text: str | None) -> None:
            if self.full:
                raise AuthorizationError("store", "the disk is full")
            await super().save(key, text)

    store = Full()
    world = World(store=store)
    async with world.signed_in() as signer:
        store.full = True
        world.id.issued.expire()
        with pytest.raises(AuthorizationError, match="disk is full"):
            await world.call(signer)
        assert await world.call(signer) == 200
        store.full = False
        world.id.issued.expire()
        assert await world.call(signer) == 200
    async with world.signed_in():
        pass
    assert (world.refreshes(), len(world.asked)) == (2, 1)


async def test_a_refresh_that_lost_a_race_takes_what_the_winner_got(autojump_clock: MockClock) -> None:
    """A store may have locks that exclude nothing."""

    class Loose(MemoryTokens):
        theirs: str | None = None

        def lock(self, key: str) -> Any:
            return contextlib.nullcontext()

        async def load(self, key: str) -> str | None:
            return self.theirs or await super().load(key)

    store = Loose()
    world = World(store=store)

    def lose(request: Fetch, handle: Any) -> Any:
        tokens = json.loads(handle(request).body)
        assert login is not None
        store.theirs = attrs.evolve(
            login, access_token=tokens["access_token"], refresh_token=tokens["refresh_token"]
        ).to_json()
        return raw(b'{"error": "invalid_grant"}', code=400)(request, handle)

    async with world.signed_in() as signer:
        login = await world.login()
        world.id.issued.expire()
        world.id.faults["token"] = [lose]
        assert await world.call(signer) == 200
    assert len(world.asked) == 1


async def test_what_can_not_be_read_is_an_error_that_names_it(autojump_clock: MockClock) -> None:
    world = World()
    await world.store.save(SERVER, "{torn")
    with pytest.raises(AuthorizationError, match=r"https://mcp\.example\.com/mcp is not a login"):
        async with world.oauth().opened(SERVER, contextlib.nullcontext):
            pass
    assert not world.asked
    await world.store.save(SERVER, None)
    async with world.signed_in():
        login = await world.login()
    assert login is not None
    await world.store.save(SERVER, attrs.evolve(login, dpop_key="CANARY").to_json())
    with pytest.raises(AuthorizationError, match="is not a login: the DPoP key") as caught:
        async with world.oauth().opened(SERVER, contextlib.nullcontext):
            pass
    assert "CANARY" not in f"{caught.value!r} {caught.value}"


async def test_a_login_of_another_client_is_left_alone(autojump_clock: MockClock) -> None:
    world = World()
    world.id.add_client("app", redirects=["http://127.0.0.1:0/callback"])
    async with world.signed_in():
        pass
    async with world.signed_in(client=RegisteredClient("app")):
        pass
    assert [("client_id=app" in url) for url in world.asked] == [False, True]
    assert not [each for each in world.id.seen if each.parameters.get("grant_type") == "refresh_token"]


async def test_signing_out_drops_the_login_and_revokes_it(autojump_clock: MockClock) -> None:
    world = World()
    oauth = world.oauth()
    async with oauth.opened(SERVER, contextlib.nullcontext) as signer:
        assert await world.call(signer) == 200
        assert await oauth.sign_out(SERVER)
        assert await world.login() is None
        assert not await oauth.sign_out(SERVER)
        assert world.id.count("revoke", token_type_hint="refresh_token") == 1
        assert await world.call(signer) == 200
        await oauth.sign_in(SERVER)
    assert len(world.asked) == 3


async def test_what_was_signed_out_while_a_refresh_waited_is_not_refreshed(autojump_clock: MockClock) -> None:
    """The refresh waits for its turn with the store; when that comes, the login it was for is no longer there."""

    turns: defaultdict[str, trio.Lock] = defaultdict(trio.Lock)

    class InTurn(MemoryTokens):
        @contextlib.asynccontextmanager
        async def lock(self, key: str) -> AsyncIterator[None]:
            async with turns[key]:
                yield

    world = World(store=InTurn())
    oauth = world.oauth()

    async def another_process() -> None:
        async with world.store.lock(SERVER):
            await trio.sleep(1)

    async with oauth.opened(SERVER, contextlib.nullcontext) as signer:
        assert await world.call(signer) == 200
        await trio.sleep(3601)
        async with trio.open_nursery() as nursery:
            for task in (
                another_process,
                partial(oauth.sign_out, SERVER),
                another_process,
                partial(world.call, signer),
            ):
                nursery.start_soon(task)
                await trio.testing.wait_all_tasks_blocked()
    assert (world.refreshes(), len(world.asked)) == (0, 2)
