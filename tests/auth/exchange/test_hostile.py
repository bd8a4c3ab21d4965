"""Hostile authorization servers: each answer is refused by one clear error, and no token goes where it must not."""

from __future__ import annotations

import json
import logging
import traceback
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock

from tests.auth.exchange.world import API, CLIENT, RESOURCE, SCOPES, SECRET
from tests.auth.hostile.scene import EVIL, Body, Plan, Scene, document, now
from tests.auth.hostile.test_corpus import (
    BIG,
    DEEP,
    EVERYWHERE,
    EVIL_ID,
    ID,
    INSIDE,
    PRIVATE,
    all_of,
    answered,
    echo,
    fault,
    granted,
    published,
    resolved,
)
from tests.auth.server.guarded import modern, protected
from trio_mcp import Context, Server
from trio_mcp.auth import Claims, ResourceServer, TokenExchange, TokenExchangeError
from trio_mcp.auth.fetching import Fetcher
from trio_mcp.auth.rules.steps import Fetch, Fetched
from trio_mcp.auth.testing.faults import cut, edited, endless, moved, raw, status
from trio_mcp.auth.testing.records import Family

TOKEN = f"{ID}/token"
REFRESH = "urn:ietf:params:oauth:token-type:refresh_token"


def error(code: object, description: object = None, status: int = 400, **fields: Any) -> Plan:
    """The server refuses."""
    body = {"error": code, "error_description": description, **fields}
    return fault("token", raw(json.dumps(body).encode(), code=status))


def same_token(request: Any, handle: Any) -> Any:
    """Return the token that was to be exchanged."""
    form = dict(pair.split("=", 1) for pair in request.body.decode().split("&"))
    return edited(access_token=form.get("subject_token") or form.get("assertion"))(request, handle)


def as_code(request: Any, handle: Any) -> Any:
    """Repeat the token as the error code."""
    form = dict(pair.split("=", 1) for pair in request.body.decode().split("&"))
    said = {"error": (form.get("subject_token") or form["assertion"])[:90]}
    return raw(json.dumps(said).encode(), code=400)(request, handle)


def both(request: Any, handle: Any) -> Any:
    """Grant and refuse at once, and say in the refusal what was granted."""
    given = json.loads(handle(request).body)
    said = {**given, "error": "server_error", "error_description": f"take {given['access_token']}"}
    return raw(json.dumps(said).encode())(request, handle)


HOSTILE: dict[str, tuple[Plan, str]] = {
    # --- what is granted
    "no token": (granted(access_token=None), "no usable access_token"),
    "a token that is empty": (granted(access_token=""), "no usable access_token"),
    "a token that is an object": (granted(access_token={"a": 1}), "no usable access_token"),
    "a token that is a number": (granted(access_token=7), "no usable access_token"),
    "a token with a line break": (granted(access_token="a\r\nX-Evil: 1"), "no usable access_token"),
    "a token with a space": (granted(access_token="a b"), "no usable access_token"),
    "a token that is half a character": (granted(access_token="\ud800"), "no usable access_token"),
    "the caller's own token": (fault("token", same_token), "the server returned the caller's own token"),
    "no type": (granted(token_type=None), "no token_type"),
    "another type": (granted(token_type="mac"), "a type that was not asked for"),
    "a type that means none": (granted(token_type="N_A"), "a type that was not asked for"),
    "a type that is a list": (granted(token_type=["Bearer"]), "a type that was not asked for"),
    "a token that is bound to a key of someone else": (granted(token_type="DPoP"), "a type that was not asked for"),
    "a refusal that grants": (fault("token", both), "server_error"),
    # --- what refuses
    "an error": (error("invalid_grant", "the session has ended"), "the session has ended (invalid_grant)"),
    "an error with status 200": (error("invalid_grant", "no", status=200), "no (invalid_grant)"),
    "an error with control characters": (error("invalid_scope", "a\x1b[2Jb\nc\u202e"), "a [2Jb c"),
    "an error of a megabyte": (error("invalid_request", "x" * 2**20), "more than 65536 bytes"),
    "a long description": (error("invalid_request", "x" * 10_000), "x" * 300),
    "an error that is an object": (error({"code": 1}, ["a"]), "no error code"),
    "an error that repeats all that was sent": (fault("token", echo()), "invalid_grant"),
    "an error that repeats the secret": (fault("token", echo("authorization")), "invalid_grant"),
    "an error that is the token": (fault("token", as_code), "no error code"),
    "an error with a page": (fault("token", raw(b"<h1>no</h1>", "text/html", 403)), "status 403 and no error code"),
    "too many requests": (fault("token", status(429)), "status 429"),
    "a server that is broken": (error("invalid_grant", "no", status=500), "status 500 and no error code"),
    # --- what does not answer
    "no JSON": (fault("token", raw(b"access_token=x")), "not a JSON object"),
    "JSON of another type": (fault("token", raw(b"{}", "text/plain")), "not a JSON object"),
    "a list": (fault("token", raw(b"[1]")), "not a JSON object"),
    "an empty object": (fault("token", raw(b"{}")), ""),
    "an empty body": (fault("token", raw(b"")), "not a JSON object"),
    "JSON that is nested deeply": (fault("token", raw(DEEP)), ""),
    "no UTF-8": (fault("token", raw(b'{"access_token": "\xff"}')), "not a JSON object"),
    "no answer": (answered(TOKEN, lambda: document(Body(b"", pause=60))), "within 10 seconds"),
    "half an answer": (fault("token", cut), "cut"),
    "an answer that never ends": (fault("token", endless), "more than 65536 bytes"),
    "an answer of 1 GiB": (answered(TOKEN, lambda: document(BIG)), "more than 65536 bytes"),
    "an answer, slowly": (answered(TOKEN, lambda: document(Body(b" ", pause=1))), "within 10 seconds"),
    "an answer that is compressed": (answered(TOKEN, lambda: document(b"", Content_Encoding="br")), "did not accept"),
    "an answer with two ends": (
        answered(TOKEN, lambda: document(b"{}", Content_Length="2", Transfer_Encoding="chunked")),
        "both Content-Length and Transfer-Encoding",
    ),
    # --- where it leads
    "a redirection to another server": (fault("token", moved(f"{EVIL_ID}/token")), "not followed with credentials"),
    "a redirection with 302": (fault("token", moved(f"{EVIL_ID}/token", 302)), "not followed with credentials"),
    "a redirection to itself": (fault("token", moved(TOKEN, 308)), "not followed with credentials"),
    "an endpoint on a private address": (
        all_of(PRIVATE, published(token_endpoint=f"{INSIDE}/token")),
        "private network",
    ),
    "an endpoint on a name that leads to this machine": (
        all_of(resolved("inside.example.com", "127.0.0.1"), published(token_endpoint=f"{INSIDE}/token")),
        "this machine",
    ),
    "an endpoint on a name without an address": (
        published(token_endpoint="https://nowhere.example.com/token"),
        "can't be resolved",
    ),
    "no endpoint": (published(token_endpoint=None), "names no token_endpoint"),
    "an endpoint that is a list": (published(token_endpoint=[TOKEN]), ""),
    "metadata of another server": (published(issuer=EVIL_ID), "metadata"),
    "metadata that is missing": (fault("metadata", status(404)), "metadata"),
    "metadata that redirects to this machine": (fault("metadata", moved("https://127.0.0.1/x", 302)), "this machine"),
    "metadata without end": (fault("metadata", endless), "bytes"),
    "no method that the client could use": (
        published(token_endpoint_auth_methods_supported=["private_key_jwt"]),
        "no authentication method",
    ),
    **{f"an endpoint at {url}": (published(token_endpoint=url), text) for url, text in EVERYWHERE},
}
# These members are only in responses of RFC 8693, whose scopes have the names that were asked for.
OF_RFC8693: dict[str, tuple[Plan, str]] = {
    "no type of what is issued": (granted(issued_token_type=None), "a token of the type None"),
    "a refresh token": (granted(issued_token_type=REFRESH), "a token of the type urn:ietf"),
    "a type that is a number": (granted(issued_token_type=1), "a token of the type None"),
    "fewer scopes": (granted(scope="items:write"), "did not grant the scopes items:read"),
    "other scopes": (granted(scope=["admin"]), "did not grant the scopes items:read"),
}
CASES = [
    *((style, name) for style in ("rfc8693", "on_behalf_of") for name in HOSTILE),
    *(("rfc8693", name) for name in OF_RFC8693),
]


@attrs.frozen
class Ended:
    """What the function has seen, and what anyone could see."""

    error: Exception | None
    seen: str


async def met(plot: Plan, style: Any, caplog: pytest.LogCaptureFixture) -> tuple[Scene, Ended]:
    """Let a function ask for a token in a hostile scene."""
    caplog.set_level(logging.DEBUG)
    scene, errors = Scene(), list[Exception]()
    scene.id.settings["exchanges"] = SCOPES
    scene.id.add_client("files", SECRET)
    family = Family("alice", "app", frozenset({"read"}), (RESOURCE,))
    token = scene.id.issued.issue(family, family.scopes, (RESOURCE,), None, refresh=False)["access_token"]
    scene.secrets = {token: {TOKEN}, SECRET: {TOKEN}}
    told: list[str] = []

    async def fetch(asked: Fetch) -> Fetched:
        return await Fetcher(ID, network=scene).flow()(asked)

    async def verify(text: str) -> Claims:
        await trio.lowlevel.checkpoint()
        said = scene.id.claims_of(text) or {}
        return Claims(said["iss"], said["sub"], said["aud"], said["exp"])

    server = Server("files")

    @server.tool
    async def call(ctx: Context) -> str:
        try:
            return await ctx.token_for(API, scopes=["items:read"])
        except Exception as error:
            errors.append(error)
            told.extend((str(error), repr(error), str(vars(error))))
            told.extend(traceback.TracebackException.from_exception(error, capture_locals=True).format())
            raise

    exchange = TokenExchange(SCOPES, client=CLIENT, style=style)
    auth = ResourceServer(
        RESOURCE, issuers=[ID], dpop="off", verifier=verify, exchange=exchange, fetch=fetch, clock=now
    )
    plot(scene)
    async with protected(server, auth) as app:
        asked = modern(token, "tools/call", name="call", arguments={})
        await asked.run(app)
        told.append(asked.body.decode())
    seen = "\n".join([*told, caplog.text])
    assert scene.wrong == []
    # The client learns that its call has failed, and nothing of the authorization server.
    if errors:
        assert asked.json["result"]["content"] == [{"type": "text", "text": "the tool 'call' failed"}]
        assert [secret for secret in scene.secrets if secret in seen] == []
    return scene, Ended(errors[0] if errors else None, seen)


@pytest.mark.parametrize(("style", "name"), CASES)
async def test_a_hostile_answer_is_refused_by_one_clear_error(
    style: str, name: str, caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    plot, text = (HOSTILE | OF_RFC8693)[name]
    scene, ended = await met(plot, style, caplog)
    assert isinstance(ended.error, TokenExchangeError), repr(ended.error)
    assert ended.error.audience == API
    assert text in str(ended.error)
    assert len(str(ended.error)) < 1000
    assert "\x1b" not in ended.seen
    assert not any(host == "evil.example.com" or where == EVIL for host, where in scene.reached)


@pytest.mark.parametrize("style", ["rfc8693", "on_behalf_of"])
async def test_where_nobody_is_hostile_there_is_a_token(
    style: str, caplog: pytest.LogCaptureFixture, autojump_clock: MockClock
) -> None:
    scene, ended = await met(lambda scene: None, style, caplog)
    assert ended.error is None
    assert scene.id.count("token") == 1
