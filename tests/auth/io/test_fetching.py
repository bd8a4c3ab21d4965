"""What is fetched, from where, and how much of it. A sink is the network: it notes every request that leaves."""

from __future__ import annotations

import contextlib
import logging
import re
import socket
import ssl
from collections.abc import AsyncIterator, Callable
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import attrs
import httpx
import pytest
import trio

from tests.injection import cancel_everywhere
from tests.server.http.certificate import over_tls
from tests.waiting import eventually
from trio_mcp.auth.fetching import Fetcher, Network
from trio_mcp.auth.rules.steps import Fetch
from trio_mcp.auth.rules.urls import UrlPolicy
from trio_mcp.errors import AuthorizationError

SERVER = "https://mcp.example.com/mcp"
URL = "https://id.example.com/.well-known/oauth-authorization-server"
PUBLIC, OTHER = "93.184.216.34", "2606:2800:220:1::1"
STEP = "authorization server metadata"
MIB = 2**20

Respond = Callable[[httpx.Request], Any]


@attrs.define
class Body(httpx.AsyncByteStream):
    """A body of some chunks, with a pause before each."""

    chunk: bytes
    count: float = 1
    pause: float = 0
    given: int = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while self.given < self.count:
            await trio.sleep(self.pause)
            self.given += 1
            yield self.chunk


def answer(body: httpx.AsyncByteStream | bytes = b"{}", status: int = 200, **fields: str) -> httpx.Response:
    headers = {name.replace("_", "-"): value for name, value in fields.items()}
    stream = Body(body) if isinstance(body, bytes) else body
    return httpx.Response(status, headers=headers, stream=stream)


class Sink(Network, httpx.AsyncBaseTransport):
    """A network that leads nowhere.

    Args:
        respond: Answers a request: a response, or an exception.
        names: The addresses of hosts: a list for each time that one is resolved; the last one stays.
    """

    def __init__(self, respond: Respond = lambda request: answer(), /, **names: list[list[str]]) -> None:
        self.respond = respond
        self.names = {"mcp.example.com": [[PUBLIC]], "id.example.com": [[PUBLIC]]}
        self.names |= {name.replace("_", "."): list(found) for name, found in names.items()}
        self.sent: list[httpx.Request] = []
        self.proxies: dict[str, str] = {}

    def proxy(self, url: str) -> str | None:
        return self.proxies.get(urlsplit(url).hostname or "")

    async def resolve(self, host: str, flags: int = 0) -> list[str]:
        if host in self.names and not flags:
            answers = self.names[host]
            return answers.pop(0) if len(answers) > 1 else answers[0]
        # Such as `2130706433`: addresses as the system's resolver reads them, without asking anyone.
        return await super().resolve(host, flags | socket.AI_NUMERICHOST)

    def transport(self, proxy: str | None) -> httpx.AsyncBaseTransport:
        return self

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self.sent.append(request)
        found = self.respond(request)
        if isinstance(found, Exception):
            raise found
        assert isinstance(found, httpx.Response)
        return found

    @property
    def addresses(self) -> list[str]:
        return [request.url.host for request in self.sent]


def get(url: str = URL, method: str = "GET", limit: int = 64 * 1024) -> Fetch:
    return Fetch(STEP, method, url, body=b"" if method == "GET" else b"token=canary", limit=limit)


async def refused(sink: Sink, fetch: Fetch, trusted: str = SERVER, urls: UrlPolicy | None = None) -> str:
    with pytest.raises(AuthorizationError) as caught:
        await Fetcher(trusted, urls, network=sink).flow()(fetch)
    assert caught.value.step == fetch.step
    assert "canary" not in str(caught.value)
    return str(caught.value)


# --- where no request goes ------------------------------------------------------------------------------------------

FORBIDDEN = [
    "127.0.0.1", "127.8.9.1", "0.0.0.0", "0.1.2.3", "10.0.0.1", "172.16.0.1", "172.31.255.255", "192.168.1.1",
    "100.64.0.1", "169.254.169.254", "192.0.0.1", "192.0.2.1", "198.18.0.1", "198.51.100.1", "203.0.113.1",
    "224.0.0.1", "240.0.0.1", "255.255.255.255",
    "::", "::1", "fe80::1", "fe80::1%eth0", "fec0::1", "fc00::1", "fd12:3456::1", "ff02::1", "2001:db8::1", "100::1",
    "::ffff:127.0.0.1", "::ffff:10.0.0.1", "::ffff:169.254.169.254", "::ffff:7f00:1", "::127.0.0.1",
    "2002:7f00:1::", "2002:a00:1::1", "2002:a9fe:a9fe::", "64:ff9b::7f00:1", "64:ff9b::a9fe:a9fe", "64:ff9b::10.0.0.1",
    "64:ff9b:1::7f00:1", "2001:0:4136:e378:8000:63bf:80ff:fffe", "2001::f5ff:fffe",
]  # fmt: skip

SHAPES = [
    "http://id.example.com/", "http://127.0.0.1/", "https://127.0.0.1/", "https://localhost/", "https://LOCALHOST/",
    "https://[::1]/", "https://[::ffff:127.0.0.1]/", "https://2130706433/", "https://0x7f000001/", "https://0177.0.0.1/",
    "https://127.1/", "https://0/", "https://010.0.0.1/", "https://192.168.257/", "https://0xa9fea9fe/",
    "https://169.254.169.254/latest/meta-data", "file:///etc/passwd", "ftp://id.example.com/", "gopher://id.example.com/",
    "javascript:alert(1)", "data:application/json,{}", "//id.example.com/", "id.example.com", "", "https://",
    "https:///path", "https://user@id.example.com/", "https://user:secret@id.example.com/", "https://id.example.com/#f",
    "https://id.example.com:0/", "https://id.example.com:65536/", "https://id.example.com:x/",
    "https://id example.com/", "https://0135.0270.0330.042/",
    "https://id.example.com/\r\nHost: evil", "https://id.example.com\\@evil.example.com/", "https://[::1/",
    "https://id.example.com/\x00", "https://" + "a" * 10000, "https://\u2170d.example.com/", "wss://id.example.com/",
]  # fmt: skip


async def test_no_request_leaves_for_what_is_not_public() -> None:
    for address in FORBIDDEN:
        for method in ("GET", "POST"):
            sink = Sink(id_example_com=[[address]])
            assert await refused(sink, get(method=method)), address
            assert sink.sent == [], address
    for url in SHAPES:
        sink = Sink()
        assert await refused(sink, get(url)), url
        assert sink.sent == [], url


async def test_no_request_leaves_for_where_a_redirection_leads() -> None:
    for place in (*SHAPES, *(f"https://[{each}]/" if ":" in each else f"https://{each}/" for each in FORBIDDEN)):
        if not place.startswith(("http", "file", "ftp", "gopher", "data")) or len(place) < 10:
            continue  # relative to where it comes from, so it leads to no other host
        sink = Sink(lambda _, place=place: answer(status=302, Location=place.encode("ascii", "ignore").decode()))
        assert await refused(sink, get()), place
        assert set(sink.addresses) == {PUBLIC}, place


async def test_a_name_that_rebinds_leads_nowhere_else() -> None:
    sink = Sink(id_example_com=[[PUBLIC], ["127.0.0.1"]])
    fetch = Fetcher(SERVER, network=sink).flow()
    await fetch(get())
    (request,) = sink.sent
    # The connection goes to the address that was checked; the certificate and the host are still the name's.
    assert (request.url.host, request.headers["Host"]) == (PUBLIC, "id.example.com")
    assert request.extensions["sni_hostname"] == "id.example.com"
    with pytest.raises(AuthorizationError, match="this machine"):
        await fetch(get())
    assert len(sink.sent) == 1


async def test_a_server_that_rebinds_its_own_name_makes_nothing_private_allowed() -> None:
    sink = Sink(mcp_example_com=[[PUBLIC], ["10.0.0.1"]], id_example_com=[["10.0.0.2"]])
    fetch = Fetcher(SERVER, network=sink).flow()
    for _ in range(3):
        with pytest.raises(AuthorizationError, match="private"):
            await fetch(get())
    # Nor does one of our addresses among its own.
    await refused(Sink(mcp_example_com=[[PUBLIC, "10.0.0.1"]], id_example_com=[["10.0.0.2"]]), get())


@pytest.mark.parametrize(
    ("trusted", "url", "addresses", "to"),
    [
        (SERVER, URL, [PUBLIC], PUBLIC),
        (SERVER, URL, [OTHER], OTHER),
        (SERVER, URL, ["10.0.0.1", PUBLIC], PUBLIC),  # a mixed answer: only what was allowed is connected to
        ("http://localhost:8000/mcp", "http://localhost:9000/x", ["127.0.0.1"], "127.0.0.1"),
        ("http://127.0.0.1:8000/mcp", "http://[::1]:9000/x", [], "::1"),
        ("https://mcp.corp.example/mcp", URL, ["10.0.0.2"], "10.0.0.2"),  # the server is as private
    ],
)
async def test_what_is_allowed(trusted: str, url: str, addresses: list[str], to: str) -> None:
    sink = Sink(id_example_com=[addresses], localhost=[addresses], mcp_corp_example=[["10.0.0.1"]])
    assert (await Fetcher(trusted, network=sink).flow()(get(url))).body == b"{}"
    assert sink.addresses == [to]


async def test_trusted_hosts_may_be_private_but_not_link_local() -> None:
    urls = UrlPolicy(hosts={"id.example.com"})
    sink = Sink(id_example_com=[["10.0.0.1"], ["169.254.169.254"]])
    fetch = Fetcher(SERVER, urls, network=sink).flow()
    await fetch(get("http://id.example.com/"))
    with pytest.raises(AuthorizationError):
        await fetch(get("http://id.example.com/"))
    assert sink.addresses == ["10.0.0.1"]


async def test_behind_a_proxy_addresses_are_still_checked() -> None:
    sink = Sink()
    sink.proxies = dict.fromkeys(["id.example.com", "2130706433", "169.254.169.254", "10.0.0.1"], "http://proxy:3128")
    await Fetcher(SERVER, network=sink).flow()(get())
    assert sink.addresses == ["id.example.com"]  # the proxy resolves it
    for host in ("2130706433", "169.254.169.254", "10.0.0.1"):
        await refused(sink, get(f"https://{host}/"))
    assert len(sink.sent) == 1


def test_the_proxy_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    network = Network()
    assert network.proxy(URL) is None
    monkeypatch.setenv("https_proxy", "proxy.example:3128")
    monkeypatch.setenv("no_proxy", "other.example.com")
    assert network.proxy(URL) == "http://proxy.example:3128"
    assert network.proxy("https://other.example.com/") is None
    assert network.proxy("https://localhost/") is None


# --- how much -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fetch", "respond", "match", "requests"),
    [
        (get(), lambda _: answer(Body(b"x" * 1024, float("inf"))), "more than 65536 bytes", 1),
        (get(), lambda _: answer(Body(b"x" * MIB, 1024), Content_Length=str(1024 * MIB)), "more than 65536 bytes", 1),
        (get(), lambda _: answer(Body(b"", float("inf"), pause=0.01)), "within 10 seconds", 1),
        (get(), lambda _: answer(Body(b"x", float("inf"), pause=1)), "within 10 seconds", 1),
        (get(), lambda _: answer(Content_Encoding="gzip"), "encoded as 'gzip'", 1),
        (get(), lambda _: answer(Content_Length="2", Transfer_Encoding="chunked"), "both Content-Length", 1),
        (get(), lambda _: httpx.ReadError("cut"), "ReadError: cut", 1),
        (get(), lambda _: httpx.ConnectError("refused"), "ConnectError: refused", 1),
        (get(), lambda _: answer(status=302, Location="/again"), "redirected more than 3 times", 4),
        (get(), lambda _: answer(status=301, Location="http://id.example.com/"), "not followed", 1),
        (get("HTTPS://id.example.com/"), lambda _: answer(status=301, Location="http://id.example.com/"), "not f", 1),
        (get(), lambda _: answer(status=301, Location="https://a/" + "b" * 8000), "not followed", 1),
    ],
)
async def test_bounds(autojump_clock: Any, fetch: Fetch, respond: Respond, match: str, requests: int) -> None:
    given: list[httpx.Response] = []

    def noting(request: httpx.Request) -> Any:
        found = respond(request)
        given.extend([found] if isinstance(found, httpx.Response) else [])
        return found

    sink = Sink(noting)
    assert match in await refused(sink, fetch)
    assert len(sink.sent) == requests
    for response in given:
        stream = response.stream
        assert isinstance(stream, Body)
        assert len(stream.chunk) * stream.given <= fetch.limit + MIB


async def test_a_flow_has_bounds_of_its_own(autojump_clock: Any) -> None:
    sink = Sink()
    fetch = Fetcher(SERVER, network=sink).flow()
    for _ in range(12):
        await fetch(get())
        await trio.sleep(1000)  # a person is asked
    with pytest.raises(AuthorizationError, match="12 HTTP exchanges have been made already"):
        await fetch(get())
    assert len(sink.sent) == 12
    # Six slow ones use up the minute, and the seventh gets no time.
    fetch = Fetcher(SERVER, network=Sink(lambda _: answer(Body(b"{}", pause=9.9)))).flow()
    for _ in range(6):
        await fetch(get())
    with pytest.raises(AuthorizationError, match="within 1 seconds"):
        await fetch(get())


async def test_only_gets_are_redirected_and_every_status_is_an_outcome() -> None:
    for status in (200, 204, 301, 307, 400, 401, 404, 429, 500, 503):
        sink = Sink(lambda _, status=status: answer(b"<html>", status, Location="/elsewhere", Content_Type="text/html"))
        found = await Fetcher(SERVER, network=sink).flow()(get(method="POST"))
        assert (found.status, found.body, found.headers.media_type) == (status, b"<html>", "text/html")
        assert len(sink.sent) == 1


async def test_the_next_address_is_tried_if_one_does_not_answer() -> None:
    def respond(request: httpx.Request) -> Any:
        return httpx.ConnectError("no route") if request.url.host == OTHER else answer()

    sink = Sink(respond, id_example_com=[[OTHER, PUBLIC]])
    await Fetcher(SERVER, network=sink).flow()(get())
    assert sink.addresses == [OTHER, PUBLIC]


@pytest.mark.parametrize("proxy", ["socks5://127.0.0.1:1", "gopher://127.0.0.1:1", "http://127.0.0.1:1", "http://["])
async def test_a_proxy_that_is_of_no_use_is_an_error_like_any_other(proxy: str) -> None:
    class Proxied(Network):
        def proxy(self, url: str) -> str | None:
            return proxy

    with pytest.raises(AuthorizationError, match=re.escape("https://id.example.com/")):
        await Fetcher(SERVER, network=Proxied()).flow()(get())


async def test_a_cancellation_at_any_step_leaves_nothing_open(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    connections: set[trio.SocketStream] = set()

    async def serve(stream: trio.SocketStream) -> None:
        connections.add(stream)
        with contextlib.suppress(trio.BrokenResourceError):
            await stream.receive_some()
            await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\n{")
            await stream.send_all(b"}  ")
            await stream.receive_some()  # until it is closed
        connections.remove(stream)

    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        url = f"http://127.0.0.1:{listener.socket.getsockname()[1]}/token"
        fetcher = Fetcher(url)
        fields = {"Authorization": "Basic canary", "DPoP": "canary"}

        async def fetch() -> None:
            found = await fetcher.flow()(Fetch("token", "POST", url, fields, b"refresh_token=canary"))
            assert found.body == b"{}  "

        async def all_closed() -> None:
            await eventually(lambda: not connections)

        assert await cancel_everywhere(fetch, all_closed) > 5
        nursery.cancel_scope.cancel()
    assert caplog.records  # of httpx, which logs what it does
    assert "canary" not in caplog.text


async def test_over_tls_the_certificate_has_to_be_the_name_s(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config, _ = over_tls(tmp_path)  # for 127.0.0.1
    assert config.certfile is not None
    assert config.keyfile is not None
    monkeypatch.setenv("SSL_CERT_FILE", config.certfile)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(config.certfile, config.keyfile)

    async def serve(stream: trio.SSLStream[trio.SocketStream]) -> None:
        with contextlib.suppress(trio.BrokenResourceError):
            await stream.receive_some()
            await stream.send_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")

    class Local(Network):
        async def resolve(self, host: str, flags: int = 0) -> list[str]:
            return ["127.0.0.1"]

    async with trio.open_nursery() as nursery:
        listeners = await nursery.start(partial(trio.serve_ssl_over_tcp, serve, 0, context, host="127.0.0.1"))
        port = listeners[0].transport_listener.socket.getsockname()[1]
        fetch = Fetcher("http://localhost/mcp", network=Local()).flow()
        found = await fetch(get(f"https://127.0.0.1:{port}/x"))
        assert (found.status, found.body) == (200, b"{}")
        with pytest.raises(AuthorizationError, match="certificate is not valid for 'localhost'"):
            await fetch(get(f"https://localhost:{port}/x"))  # to the same address
        nursery.cancel_scope.cancel()
