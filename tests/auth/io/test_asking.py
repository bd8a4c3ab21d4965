"""How a person is asked: a browser is opened, the redirection arrives on loopback, or a URL is pasted."""

from __future__ import annotations

import contextlib
import os
import webbrowser
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import h11
import pytest
import trio

from tests.injection import cancel_everywhere
from tests.waiting import eventually
from trio_mcp.auth.client import browser, listener, terminal
from trio_mcp.auth.client.asking import Asker, Show
from trio_mcp.auth.client.browser import open_browser
from trio_mcp.auth.client.listener import MAX_CONNECTIONS, Redirections, listening
from trio_mcp.auth.client.terminal import paste_redirect, show_code
from trio_mcp.auth.rules.steps import ShowCode, SignIn
from trio_mcp.errors import AuthorizationError, LoginRequired

URI = "http://127.0.0.1:4711/callback"
HOST = "127.0.0.1:4711"
STATE = "the-right-state"
ISSUER = "https://id.example.com"
RIGHT = f"/callback?code=canary&state={STATE}"


async def said(redirections: Redirections, request: bytes) -> bytes:
    """Return what is answered to these bytes, over a connection in memory."""
    ours, theirs = trio.testing.memory_stream_pair()
    response = b""
    async with trio.open_nursery() as nursery, ours:
        nursery.start_soon(redirections.serve, theirs)
        await ours.send_all(request)
        with trio.move_on_after(60):
            async for part in ours:
                response += part
    return response


def asked(target: str, *, method: str = "GET", host: str | None = HOST, more: str = "") -> bytes:
    field = "" if host is None else f"Host: {host}\r\n"
    return f"{method} {target} HTTP/1.1\r\n{field}{more}\r\n".encode()


@asynccontextmanager
async def waiting(uri: str = URI) -> AsyncIterator[tuple[Redirections, list[Any]]]:
    """Let a task wait for the redirection; yield a list that its outcome is added to."""
    redirections = Redirections(uri)
    outcome: list[Any] = []

    async def wait() -> None:
        try:
            outcome.append(await redirections.one(STATE))
        except AuthorizationError as exc:
            outcome.append(exc)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(wait)
        await trio.testing.wait_all_tasks_blocked()
        yield redirections, outcome
        nursery.cancel_scope.cancel()


# --- the listener ---------------------------------------------------------------------------------------------------

NOT_IT: list[tuple[int, bytes]] = [
    (400, asked("/callback")),
    (400, asked("/callback?code=x")),
    (400, asked("/callback?code=x&state=")),
    (400, asked("/callback?code=x&state=wrong")),
    (400, asked(f"/callback?code=x&state={STATE}x")),
    (400, asked(f"/callback?code=x&state={STATE[:-1]}")),
    (400, asked(f"/callback?code=x&state={STATE.upper()}")),
    (400, asked(f"/callback?code=x&state=%FF{STATE}")),
    (400, asked(f"/callback?code=x&state={STATE}&state={STATE}")),
    (400, asked(f"/callback?code=x&state={STATE}&code=y")),
    (400, asked(f"/callback?iss=x&state={STATE}&iss=")),
    (400, asked("/callback?" + "&".join(f"a{number}" for number in range(51)) + f"&state={STATE}")),
    (400, asked(RIGHT, host="evil.example.com")),
    (400, asked(RIGHT, host="127.0.0.1")),
    (400, asked(RIGHT, host="localhost:4711")),
    (400, asked(RIGHT, host="127.0.0.1:4711.evil.example.com")),
    (400, asked(RIGHT, host=None)),
    (400, asked(RIGHT, more="Host: evil.example.com\r\n")),
    (404, asked("/favicon.ico")),
    (404, asked(f"/callback/?code=x&state={STATE}")),
    (404, asked(f"/%63allback?code=x&state={STATE}")),
    (404, asked(f"http://{HOST}{RIGHT}")),
    (405, asked(RIGHT, method="POST", more="Content-Length: 0\r\n")),
    (405, asked(RIGHT, method="HEAD")),
    (400, b"\x16\x03\x01\x02\x00\x01\x00\x01"),  # TLS
    (400, b"garbage\r\n\r\n"),
    (400, asked("/callback?code=" + "x" * 40_000)),
]


async def test_anything_else_is_refused_and_it_goes_on_waiting() -> None:
    async with waiting() as (redirections, outcome):
        for status, request in NOT_IT:
            response = await said(redirections, request)
            assert response.startswith(b"HTTP/1.1 %d" % status), request[:100]
            assert outcome == [], request[:100]
            assert b"canary" not in response
        page = await said(redirections, asked(RIGHT, more="Cookie: a=" + "x" * 10_000 + "\r\n"))
        assert outcome == [{"code": "canary", "state": STATE}]
        # It counts once.
        assert (await said(redirections, asked(RIGHT))).startswith(b"HTTP/1.1 400")
    connection = h11.Connection(h11.CLIENT)
    connection.send(h11.Request(method="GET", target="/", headers=[("Host", HOST)]))
    connection.send(h11.EndOfMessage())
    connection.receive_data(page)
    head, body, end = (connection.next_event() for _ in range(3))
    assert isinstance(head, h11.Response)
    assert isinstance(body, h11.Data)
    assert isinstance(end, h11.EndOfMessage)
    fields = dict(head.headers)
    assert fields[b"cache-control"] == b"no-store"
    assert fields[b"referrer-policy"] == b"no-referrer"
    assert fields[b"content-security-policy"].startswith(b"default-src 'none'")
    assert fields[b"connection"] == b"close"
    assert head.status_code == 200
    # Neither a script nor anything of the redirection is in the page.
    assert not any(word in page.lower() for word in (b"<script", b"canary", STATE.encode(), b"http://", b"https://"))


async def test_a_redirection_counts_once_even_before_its_page_is_sent() -> None:
    async with waiting() as (redirections, outcome), trio.open_nursery() as nursery:
        ours, theirs = trio.testing.memory_stream_pair()
        slow = trio.Event()
        theirs.send_stream.send_all_hook = slow.wait
        nursery.start_soon(redirections.serve, theirs)
        await ours.send_all(asked(RIGHT))
        await trio.testing.wait_all_tasks_blocked()
        assert (await said(redirections, asked(RIGHT))).startswith(b"HTTP/1.1 400")
        assert outcome == []  # the person sees the page first
        slow.set()
        await trio.testing.wait_all_tasks_blocked()
        assert outcome == [{"code": "canary", "state": STATE}]


async def test_errors_are_outcomes_too() -> None:
    async with waiting() as (redirections, outcome):
        await said(redirections, asked(f"/callback?error=access_denied&error_description=a+b%2Bc&state={STATE}&iss="))
        assert outcome == [{"error": "access_denied", "error_description": "a b+c", "state": STATE, "iss": ""}]


async def test_a_hundred_wrong_ones_end_it() -> None:
    async with waiting() as (redirections, outcome):
        for _ in range(99):
            await said(redirections, asked("/callback?state=wrong"))
        assert outcome == []
        await said(redirections, asked("/callback?state=wrong"))
        (error,) = outcome
        assert str(error).startswith(f"redirection failed: none of 100 redirections to {URI} belonged to this ")


async def test_who_is_slow_holds_nobody_up(autojump_clock: Any) -> None:
    async with waiting() as (redirections, outcome), trio.open_nursery() as nursery:
        began = trio.current_time()
        ends = []
        for request in (b"", b"GET /call") * 20:
            ours, theirs = trio.testing.memory_stream_pair()
            nursery.start_soon(redirections.serve, theirs)
            with contextlib.suppress(trio.BrokenResourceError):  # one too many
                await ours.send_all(request)
            ends.append(ours)
        await trio.testing.wait_all_tasks_blocked()
        # Of 40 connections, 8 were one too many and are closed; after ten seconds, all are.
        assert sum([await closed(ours) for ours in ends]) == 8
        assert not outcome
        await trio.sleep(10.1)
        assert sum([await closed(ours) for ours in ends]) == 40
        await said(redirections, asked(RIGHT))
        assert outcome
        assert trio.current_time() - began < 11


async def test_the_redirection_gets_through_though_others_keep_every_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """The oldest connection that has not sent a whole head gives way: any program of the machine can open them."""
    monkeypatch.setattr(listener, "TIMEOUT", 3600)  # none of them is given up for being slow
    async with listening("http://127.0.0.1:0/callback") as arriving, contextlib.AsyncExitStack() as stack:
        found: list[Mapping[str, str]] = []

        async def wait() -> None:
            found.append(await arriving.one(STATE))

        nursery = await stack.enter_async_context(trio.open_nursery())
        nursery.start_soon(wait)
        port = urlsplit(arriving.uri).port or 0
        silent = [
            await stack.enter_async_context(await trio.open_tcp_stream("127.0.0.1", port))
            for _ in range(2 * MAX_CONNECTIONS)
        ]
        for stream in silent[MAX_CONNECTIONS:]:
            await stream.send_all(b"GET /callback?code=")
        with trio.fail_after(60):
            assert b" 200 " in await http_get(arriving.uri, f"state={STATE}")
            assert await silent[0].receive_some() == b""
        assert found == [{"state": STATE}]


async def test_what_a_page_embeds_or_fetches_is_not_a_redirection() -> None:
    """W3C Fetch Metadata, section 2.1: only what the browser shows is. So no page can use up the hundred wrong ones."""
    async with waiting() as (redirections, outcome):
        for dest in ("empty", "image", "iframe", "", "document, image"):
            for target in ["/callback?state=wrong"] * 25 + [RIGHT]:
                response = await said(redirections, asked(target, more=f"Sec-Fetch-Dest: {dest}\r\n"))
                assert response.startswith(b"HTTP/1.1 400"), dest
        assert outcome == []
        assert b" 200 " in await said(redirections, asked(RIGHT, more="Sec-Fetch-Dest: document\r\n"))
        assert outcome


async def closed(stream: trio.testing.MemoryReceiveStream | Any) -> bool:
    with trio.move_on_after(0.01):
        return not await stream.receive_some()
    return False


async def http_get(uri: str, query: str) -> bytes:
    host, _, path = uri.removeprefix("http://").partition("/")
    name, _, port = host.rpartition(":")
    async with await trio.open_tcp_stream(name.strip("[]"), int(port)) as stream:
        await stream.send_all(f"GET /{path}?{query} HTTP/1.1\r\nHost: {host}\r\n\r\n".encode())
        return b"".join([part async for part in stream])


@pytest.mark.parametrize(
    ("redirect", "addresses"),
    [
        ("http://127.0.0.1:0/callback", {"127.0.0.1"}),
        ("http://[::1]:0/", {"::1"}),
        ("http://localhost:0/a/b", {"127.0.0.1", "::1"}),
    ],
)
async def test_on_loopback_alone(redirect: str, addresses: set[str]) -> None:
    made: list[Any] = []
    real = trio.open_tcp_listeners

    async def noting(*args: Any, **options: Any) -> Any:
        made.extend(listeners := await real(*args, **options))
        return listeners

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(trio, "open_tcp_listeners", noting)
        async with listening(redirect) as arriving, trio.open_nursery() as nursery:
            assert {listener.socket.getsockname()[0] for listener in made} == addresses
            found: list[Mapping[str, str]] = []

            async def wait() -> None:
                found.append(await arriving.one(STATE))

            nursery.start_soon(wait)
            await trio.testing.wait_all_tasks_blocked()
            assert b" 200 " in await http_get(arriving.uri, f"state={STATE}")
            assert found == [{"state": STATE}]
            # The port is free again after the block, and is taken until then.
            with pytest.raises(AuthorizationError, match=r"can't listen on port \d+ of .* another `redirect`"):
                async with listening(arriving.uri):
                    raise AssertionError
    async with listening(arriving.uri) as again:
        assert again.uri == arriving.uri


@pytest.mark.parametrize(
    "redirect",
    [
        "https://127.0.0.1/callback", "http://example.com/callback", "http://0.0.0.0:0/", "", "x:y",
        "http://127.0.0.1.example.com/", "http://127.0.0.1:0/?a=b", "http://127.0.0.1:0/#a", "http://a@127.0.0.1:0/", "http://127.0.0.1:99999/",
    ],
)  # fmt: skip
async def test_nothing_but_loopback_is_listened_on(redirect: str) -> None:
    with pytest.raises(ValueError, match="redirect must be an http URL with the host 127"):
        async with listening(redirect):
            raise AssertionError


async def test_a_cancelled_wait_frees_the_port() -> None:
    async with listening("http://127.0.0.1:0/callback") as first:
        uri = first.uri

    async def sign_in() -> None:
        async with listening(uri) as arriving, trio.open_nursery() as nursery:
            nursery.start_soon(arriving.one, STATE)
            await trio.testing.wait_all_tasks_blocked()
            await http_get(uri, f"state={STATE}")

    async def free() -> None:
        async with listening(uri):
            pass

    assert await cancel_everywhere(sign_in, free) > 5


# --- asking ---------------------------------------------------------------------------------------------------------


def asker(show: Show) -> Asker:
    return Asker(show, show_code, None, 60)


def ask(redirect: str | None) -> SignIn:
    return SignIn(f"{ISSUER}/authorize?state={STATE}", STATE, redirect or "", ISSUER)


async def test_what_is_pasted_counts_like_what_arrives() -> None:
    for pasted in (f"http://127.0.0.1:1/callback?code=c&state={STATE}", f" https://app/cb?state={STATE}&code=c\n"):
        shown: list[str] = []

        async def show(url: str, pasted: str = pasted, shown: list[str] = shown) -> str:
            shown.append(url)
            return pasted

        for redirect in ("http://127.0.0.1:0/callback", "https://app.example.com/cb"):
            async with asker(show).opened(redirect) as person:
                assert (person.redirect == redirect) is redirect.startswith("https")
                assert await person.ask(ask(person.redirect)) == {"code": "c", "state": STATE}
        assert shown == [ask("").url] * 2


@pytest.mark.parametrize("pasted", ["", "canary", "http://[", f"https://app/cb?state={STATE}&state=x", "?state=wrong"])
async def test_anything_else_that_is_pasted_ends_it(pasted: str) -> None:
    async def show(url: str) -> str:
        return pasted

    async with asker(show).opened("http://127.0.0.1:0/callback") as person:
        with pytest.raises(AuthorizationError, match="the pasted text is not the URL") as caught:
            await person.ask(ask(person.redirect))
    assert "canary" not in str(caught.value)


async def test_a_browser_that_comes_back_by_itself_ends_the_asking() -> None:
    async def show(url: str) -> str:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(http_get, person.redirect or "", f"code=c&state={STATE}")
        await trio.sleep_forever()
        raise AssertionError

    async with asker(show).opened("http://127.0.0.1:0/callback") as person:
        assert await person.ask(ask(person.redirect)) == {"code": "c", "state": STATE}


async def test_for_a_device_a_code_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    async def show(url: str) -> None:
        raise AssertionError

    async with asker(show).opened(None) as person:
        assert person.redirect is None
        await person.asker.show_code(ShowCode(f"{ISSUER}/device", "AB\x1b[2J-CD", f"{ISSUER}/device?code=AB", 600))
        await show_code(ShowCode(f"{ISSUER}/device", "AB-CD", None, 1))
    out, err = capsys.readouterr()
    assert out == ""
    assert err == (
        "To sign in, open https://id.example.com/device on any device\nand enter the code AB?[2J-CD within 10 min\n"
        "(or open https://id.example.com/device?code=AB and compare the code)\n"
        "To sign in, open https://id.example.com/device on any device\nand enter the code AB-CD within 1 min\n"
    )


# --- the browser ----------------------------------------------------------------------------------------------------


class Browser:
    def __init__(self, name: str = "firefox", opens: bool | Exception = True) -> None:
        self.name, self.opens = name, opens
        self.opened: list[str] = []

    def open(self, url: str) -> bool:
        self.opened.append(url)
        if isinstance(self.opens, Exception):
            raise self.opens
        return self.opens


@pytest.mark.parametrize(
    ("found", "opens"),
    [
        (Browser(), True),
        (Browser(opens=False), False),
        (Browser(opens=OSError("no such program")), False),
        (Browser("/usr/bin/lynx"), False),
        (webbrowser.Error("none"), False),
    ],
)
async def test_a_browser_is_opened_and_the_url_written(
    found: Any, opens: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def get() -> Any:
        if isinstance(found, Exception):
            raise found
        return found

    monkeypatch.setattr(webbrowser, "get", get)
    url = "https://id.example.com/authorize?state=x&redirect_uri=http%3A%2F%2F127.0.0.1"
    await open_browser(url)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith(f"To sign in, open this page of id.example.com in a web browser:\n  {url}\n")
    assert ("No web browser could be opened here" in err) is not opens
    assert not isinstance(found, Browser) or found.opened in ([url], [])


@pytest.mark.parametrize(
    "url",
    [
        "file:///etc/passwd", "javascript:alert(1)", "data:text/html,x", "calc.exe", "", "https:", "https://",
        "//host/", "ssh://host/", "vscode://x/y", "-incognito", "https://id.example.com/ --flag",
        "https://id.example.com/\n", "https://id.example.com/\x1b[2J", "https://id.example.com/\u202e", "ms-settings:x",
        "HTTPS//x", "https://[",
    ],
)  # fmt: skip
async def test_only_https_and_http_are_opened(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    opened = Browser()
    monkeypatch.setattr(webbrowser, "get", lambda: opened)
    with pytest.raises(AuthorizationError, match="is not an https or http URL; nothing was opened"):
        await open_browser(url)
    assert opened.opened == []


async def test_a_browser_is_started_without_a_shell(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "browser"
    program.write_text(f"#!/bin/sh\nprintf %s \"$1\" > '{tmp_path}/opened'\n")
    program.chmod(0o700)
    monkeypatch.setattr(webbrowser, "get", lambda: webbrowser.GenericBrowser(str(program)))
    url = "https://id.example.com/?a=$(touch${IFS}x);`id`|'\"&b=%3B"
    await open_browser(url)
    assert (tmp_path / "opened").read_text() == url
    assert sorted(path.name for path in tmp_path.iterdir()) == ["browser", "opened"]


async def test_a_browser_in_the_foreground_is_left_running(
    autojump_clock: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    import threading

    ended = threading.Event()

    class Foreground(Browser):
        def open(self, url: str) -> bool:
            return ended.wait(60)

    monkeypatch.setattr(webbrowser, "get", Foreground)
    try:
        await open_browser("https://id.example.com/")
        assert trio.current_time() >= browser.TIMEOUT
    finally:
        ended.set()


# --- the terminal ---------------------------------------------------------------------------------------------------


async def test_pasting_at_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    ours, theirs = os.openpty()
    monkeypatch.setattr(terminal, "TERMINAL", os.ttyname(theirs))
    found: list[Any] = []
    right = f"http://127.0.0.1:1/cb?code={'x' * 6000}&state={STATE}"  # longer than a line of a terminal

    async def paste() -> None:
        try:
            found.append(await paste_redirect(ask("").url))
        except LoginRequired as exc:
            found.append(exc)

    async def shown(text: bytes) -> None:
        seen = b""
        while text not in seen:
            await trio.lowlevel.wait_readable(ours)
            seen += os.read(ours, 4096)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(paste)
        await shown(b"paste it here:")
        os.write(ours, b"http://127.0.0.1:1/cb?code=c&state=wrong\n")
        await shown(b"Paste the whole URL:")
        for start in range(0, len(right), 1000):
            os.write(ours, right[start : start + 1000].encode())
            await shown(right[start : start + 1000][-1:].encode())
        os.write(ours, b"\n")
        await eventually(lambda: found)
        assert found.pop() == right
        nursery.start_soon(paste)
        await shown(b"paste it here:")
        os.write(ours, b"\x04")
        await eventually(lambda: found)
        assert isinstance(found.pop(), LoginRequired)
        # A cancelled wait leaves the terminal as it was.
        nursery.start_soon(paste)
        await shown(b"paste it here:")
        nursery.cancel_scope.cancel()
    import termios

    assert termios.tcgetattr(theirs)[3] & termios.ICANON
    os.close(ours)
    os.close(theirs)


async def test_without_a_terminal_a_login_is_required(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr(terminal, "TERMINAL", str(tmp_path / "none"))
    with pytest.raises(LoginRequired, match="no terminal in which to ask a person; sign in from a terminal first"):
        await paste_redirect(ask("").url)
