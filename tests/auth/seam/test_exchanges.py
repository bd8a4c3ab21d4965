"""A request that the server refuses is authorized and sent again, whatever it is a request for."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import trio

from tests.auth.engine.world import World
from tests.auth.seam.stubs import (
    SECRET,
    URL,
    Answer,
    Person,
    Streaming,
    answered,
    client_of,
    only_legacy,
    protected,
    refusal,
    rpc,
)
from tests.injection import cancel_everywhere
from trio_mcp import AuthorizationError, HttpError
from trio_mcp.http.headers import Headers


@pytest.mark.parametrize("status", [401, 403])
@pytest.mark.parametrize("behind", [answered, only_legacy], ids=["modern", "legacy"])
async def test_a_refused_request_is_sent_again_with_a_token(behind: Answer, status: int, autojump_clock: Any) -> None:
    auth = Person(takes=5)
    async with client_of(protected(behind, status=status), auth) as (memory, client):
        assert (await client.call_tool("fine")).content[0].text == "tools/call"  # type: ignore[union-attr]
        assert auth.asked == 1
        # Only the first was sent twice: it is the same message.
        assert memory.sent[:2] == ["server/discover"] * 2
        assert memory.requests[0].content == memory.requests[1].content
        assert memory.sent.count("tools/call") == 1
    assert auth.servers == [URL]
    assert auth.open == 0


async def test_what_is_refused_in_spite_of_it_is_the_error_of_the_call(autojump_clock: Any) -> None:
    async def refused(request: httpx.Request) -> httpx.Response:
        return refusal(403) if rpc(request)["method"] == "tools/call" else await answered(request)

    auth = Person(takes=1)
    async with client_of(refused, auth) as (memory, client):
        with pytest.raises(HttpError) as caught:
            await client.call_tool("fine")
        assert (caught.value.trouble, caught.value.excerpt) == ("forbidden", '{"error":"refused here"}')
        assert memory.sent.count("tools/call") == 2
        await client.ping()  # the others go on


@pytest.mark.parametrize("behind", [answered, only_legacy], ids=["modern", "legacy"])
async def test_a_person_who_says_no_is_the_error_of_connecting(behind: Answer, autojump_clock: Any) -> None:
    with pytest.raises(AuthorizationError, match=r"authorization failed: .*\(access_denied\)") as caught:
        async with client_of(protected(behind), Person(takes=100, denies=True)):
            raise AssertionError("it connected")
    assert caught.value.error == "access_denied"


@pytest.mark.parametrize("status", [401, 403])
async def test_the_connection_is_free_while_a_person_is_asked(status: int, autojump_clock: Any) -> None:
    body = Streaming(b"no token", lasts=0)

    async def refused(request: httpx.Request) -> httpx.Response:
        if request.headers.get("authorization"):
            return await answered(request)
        return body.response(status, "text/plain", **{"WWW-Authenticate": "Bearer"})

    async with trio.open_nursery() as nursery:
        auth = Person(takes=50)

        async def connect() -> None:
            async with client_of(refused, auth):
                pass

        nursery.start_soon(connect)
        await trio.sleep(10)
        assert (auth.asked, auth.token, body.closed) == (1, None, True)


async def test_a_field_that_is_not_wanted_any_more_is_not_sent(autojump_clock: Any) -> None:
    class Changing(Person):
        @contextlib.asynccontextmanager
        async def opened(self, server: str, pause: Any) -> AsyncIterator[Any]:
            yield self

        def attempt(self) -> Any:
            return self

        async def fields(self, method: str, url: str) -> list[tuple[str, str]]:
            return (
                [("Authorization", "DPoP a"), ("DPoP", "b")] if self.token is None else [("authorization", "Bearer c")]
            )

        async def again(self, status: int, headers: Headers) -> bool:
            first, self.token = self.token is None, "c"
            return first

    async with client_of(protected(good=lambda token: token == "c"), Changing(), mode="2026-07-28") as (memory, _):
        given = [(each.headers.get_list("authorization"), each.headers.get("dpop")) for each in memory.requests]
    assert given == [(["DPoP a"], "b"), (["Bearer c"], None)]


async def test_a_login_that_only_the_old_transport_asks_for_is_the_error(autojump_clock: Any) -> None:
    async def old(request: httpx.Request) -> httpx.Response:
        return refusal() if request.method == "GET" else httpx.Response(405)

    with pytest.raises(AuthorizationError, match="access_denied"):
        async with client_of(old, Person(denies=True), mode="legacy"):
            raise AssertionError("it connected")


# --- redirections, nonces -------------------------------------------------------------------------------------------


async def test_a_redirection_within_the_origin_is_authorized_for_its_own_url(autojump_clock: Any) -> None:
    there = "https://mcp.example.com/elsewhere"

    async def moved(request: httpx.Request) -> httpx.Response:
        if str(request.url) == URL:
            return httpx.Response(307, headers={"Location": there})
        return await protected()(request)

    auth = Person()
    async with client_of(moved, auth):
        # From the URL where it was refused, not from the first.
        assert auth.signed[:3] == [("POST", URL), ("POST", there), ("POST", there)]


async def test_a_redirection_to_another_origin_gets_nothing(autojump_clock: Any) -> None:
    async def moved(request: httpx.Request) -> httpx.Response:
        return httpx.Response(307, headers={"Location": "https://other.example.com/mcp"})

    auth = Person(token=SECRET)
    with pytest.raises(HttpError, match="307"):
        async with client_of(moved, auth, mode="2026-07-28") as _:
            raise AssertionError("it connected")
    assert auth.signed == [("POST", URL)]


async def test_a_nonce_is_taken_from_any_response_and_what_was_signed_before_is_not_sent_again(
    autojump_clock: Any,
) -> None:
    nonces = iter("abcdefgh")
    proofs: list[str | None] = []

    async def demanding(request: httpx.Request) -> httpx.Response:
        proofs.append(request.headers.get("DPoP"))
        if request.headers.get("DPoP") is None:
            return refusal(401, DPoP_Nonce=next(nonces))
        response = await answered(request)
        response.headers["DPoP-Nonce"] = next(nonces)
        return response

    async with client_of(demanding, Person(token=SECRET)) as (_, client):
        await client.call_tool("fine")
    assert proofs == [None, f"{SECRET}-proof-a", f"{SECRET}-proof-b"]


# --- cancellation ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("behind", [answered, only_legacy], ids=["modern", "legacy"])
async def test_a_call_that_is_given_up_while_a_person_is_asked_tells_the_server_nothing(
    behind: Answer, autojump_clock: Any
) -> None:
    wanted = SECRET

    async def stale(request: httpx.Request) -> httpx.Response:
        good = request.headers.get("authorization", "") == f"Bearer {wanted}"
        return await behind(request) if good or rpc(request)["method"] != "tools/call" else refusal()

    auth = Person(takes=1000)
    async with client_of(stale, auth) as (memory, client):
        with trio.move_on_after(5):
            await client.call_tool("fine")
        assert auth.asked == 1
        await trio.sleep(100)
        assert not auth.turn.locked()  # the person is left alone
        assert "notifications/cancelled" not in memory.sent
        assert memory.sent.count("tools/call") == 1


async def test_a_call_of_the_legacy_era_that_waits_for_its_token_was_not_sent(autojump_clock: Any) -> None:
    auth = Person(token=SECRET)
    async with client_of(protected(only_legacy), auth, mode="legacy") as (memory, client):
        auth.ready_in = 20
        with trio.move_on_after(5):
            await client.call_tool("fine")
        await trio.sleep(100)
        assert memory.sent.count("tools/call") == memory.sent.count("notifications/cancelled") == 0
        auth.ready_in = 0
        with trio.move_on_after(5):
            await client.call_tool("hang")
        await trio.sleep(100)
        assert memory.sent.count("notifications/cancelled") == 1


@pytest.mark.parametrize("mode", ["2026-07-28", pytest.param("legacy", marks=pytest.mark.again)])
async def test_cancelled_anywhere_it_leaves_nothing_open(mode: str, autojump_clock: Any) -> None:
    auth = Person()

    async def scenario() -> None:
        auth.token = None
        async with client_of(protected(only_legacy if mode == "legacy" else answered), auth, mode=mode) as (_, client):
            await client.call_tool("fine")

    async def nothing_is_left() -> None:
        assert (auth.open, auth.turn.locked()) == (0, False)

    assert await cancel_everywhere(scenario, nothing_is_left) > 20


async def test_the_end_of_a_session_asks_no_person(autojump_clock: Any) -> None:
    world = World()

    async def guarded(request: httpx.Request) -> httpx.Response:
        status, fields = world.respond({"Authorization": request.headers.get("authorization", "")}, ())
        if status != 200:
            return httpx.Response(status, headers=fields)
        response = await only_legacy(request)
        response.headers["Mcp-Session-Id"] = "1"
        return response

    async with client_of(guarded, world.oauth(), mode="legacy") as (memory, client):
        await client.call_tool("fine")
        world.id.issued.revoke_all()
    assert memory.sent[-1] == "DELETE"
    assert len(world.asked) == 1
