"""On whose behalf a request is made: `Server(principal=…)` says it, and `Context.principal` tells handlers."""

from __future__ import annotations

from typing import Any

import attrs
import pytest

from tests.server.harness import both_eras, client_of, server_with
from tests.server.input_harness import hand_client, text_of
from trio_mcp import Context, McpError, Principal, Server

ANN = Principal("ann", "https://id.example.com", "app", {"read"})


def server_of(principal: Any, **options: Any) -> Server:
    inner, server = Server("inner"), Server("test", principal=principal, **options)

    async def who(ctx: Context) -> str:
        return repr(ctx.principal)

    server.add_tool(who)
    inner.add_tool(who)
    server.mount(inner, prefix="inner")
    return server


@both_eras
@pytest.mark.parametrize(("said", "seen"), [("ann", Principal("ann")), (ANN, ANN), (None, None)])
async def test_every_handler_sees_it_and_it_is_asked_for_once(revision: str, said: Any, seen: Any) -> None:
    asked: list[str] = []
    before: list[Any] = []

    async def middleware(context: Context, call_next: Any) -> Any:
        before.append(context.principal)
        return await call_next()

    server = server_of(lambda ctx: asked.append(ctx.method) or said, middleware=[middleware])
    async with client_of(server, revision) as client:
        for tool in ("who", "inner__who"):
            assert (await client.call_tool(tool)).structured_content == {"result": repr(seen)}
    assert asked.count("tools/call") == 2
    assert set(before) == {seen}


def refuse(ctx: Context) -> str:
    raise McpError(-31401, "who are you?")


@pytest.mark.parametrize(
    ("principal", "code", "logged"),
    [
        (refuse, -31401, None),
        (lambda ctx: 1 / 0, -32603, "division by zero"),
        (lambda ctx: 5, -32603, r"what Server(principal=…) returns must be a string, a Principal or None, got int"),
        (lambda ctx: "", -32603, "the subject of a Principal must be a non-empty string, got ''"),
    ],
)
async def test_without_an_answer_no_handler_runs(
    principal: Any, code: int, logged: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    """A request whose caller could not be found out is not one of an unknown caller."""
    async with client_of(server_of(principal)) as client:
        with pytest.raises(McpError) as caught:
            await client.call_tool("who")
    assert caught.value.code == code
    assert (logged or "") in caplog.text
    assert logged is None or logged not in str(caught.value)


@pytest.mark.parametrize("park", [True, False])
@pytest.mark.parametrize(
    ("back", "resumed"),
    [
        (attrs.evolve(ANN, scopes={"read", "write"}), True),
        (Principal("ann"), False),
        (attrs.evolve(ANN, client_id="other"), False),
        (None, False),
    ],
)
async def test_only_the_same_identity_resumes_a_request(park: bool, back: Any, resumed: bool) -> None:
    who: list[Any] = [ANN]

    async def roots(ctx: Context) -> str:
        await ctx.list_roots()
        return repr(ctx.principal)

    params = {"name": "roots", "arguments": {}}
    async with hand_client(server_with(roots, park_input=park, principal=lambda ctx: who[-1])) as client:
        asked = await client.ask("tools/call", params)
        who.append(back)
        answers = {"inputResponses": {"input-1": {"roots": []}}, "requestState": asked["requestState"]}
        result = await client.ask("tools/call", params | answers)
    if resumed:
        assert text_of(result) == repr(back)
    else:
        assert "not valid for this request" in result.message


def test_a_principal_checks_its_parts() -> None:
    assert Principal("ann", scopes=["b", "a"]) == Principal("ann", scopes={"a", "b"})
    for wrong in ({"subject": 5}, {"subject": "a", "issuer": ""}, {"subject": "a", "scopes": "read"}):
        with pytest.raises((TypeError, ValueError), match="of a Principal must be"):
            Principal(**wrong)  # type: ignore[arg-type]
