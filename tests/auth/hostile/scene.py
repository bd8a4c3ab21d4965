"""A client, a server that wants logins and an authorization server, on a network that notes all that leaves."""

from __future__ import annotations

import base64
import json
import logging
import re
import traceback
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any
from urllib.parse import parse_qs, parse_qsl, unquote_plus, urlencode, urlsplit

import attrs
import httpx
import pytest
import trio
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from tests.auth.seam.stubs import answered, link
from trio_mcp import Client, SessionOptions
from trio_mcp.auth import MemoryTokens, OAuth
from trio_mcp.auth.fetching import Fetcher, Network
from trio_mcp.auth.rules.login import Login
from trio_mcp.auth.rules.steps import Fetch
from trio_mcp.auth.testing import AuthorizationServer
from trio_mcp.auth.testing.answers import ServerResponse
from trio_mcp.errors import TransportError
from trio_mcp.otel import ClientTelemetry

__all__ = ["EVIL", "METADATA", "PUBLIC", "SERVER", "Body", "Plan", "Scene", "document", "play"]

SERVER = "https://mcp.example.com/mcp"
METADATA = "https://mcp.example.com/.well-known/oauth-protected-resource/mcp"
PUBLIC, EVIL = "93.184.216.34", "93.184.216.66"

Plan = Callable[["Scene"], object]


def now() -> float:
    """Tell the time, which is that of the virtual clock."""
    return 1_800_000_000 + trio.current_time()


@attrs.define
class Body(httpx.AsyncByteStream):
    """A body without end, unless it has one; counts what was read of it."""

    chunk: bytes
    size: float = float("inf")
    pause: float = 0
    given: int = 0

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while self.given < self.size:
            await trio.sleep(self.pause)
            self.given += len(self.chunk)
            yield self.chunk


def document(value: object = None, code: int = 200, **fields: str) -> httpx.Response:
    """Return a response: of JSON, or of bytes or a stream as they are."""
    headers = {"Content-Type": "application/json", **{name.replace("_", "-"): text for name, text in fields.items()}}
    if isinstance(value, httpx.AsyncByteStream):
        return httpx.Response(code, headers=headers, stream=value)
    return httpx.Response(code, headers=headers, content=value if isinstance(value, bytes) else json.dumps(value))


class Scene(Network, httpx.AsyncBaseTransport):
    """A network with an honest server, an honest authorization server and one of an attacker, until a plot changes it.

    Attributes:
        id: The authorization server that the server names.
        evil: The attacker's.
        names: The addresses of hosts: a list for each time that one is resolved; the last one stays.
        told: What the server's own metadata says.
        own: What is answered for a URL instead of the truth.
        challenge: The challenge of the server.
        refuses: Looks at each request to the server that has a good token; returns a response to refuse it.
        reached: Hosts and addresses that requests went to.
        asked: The URLs that a person was asked to open.
        paste: Changes the redirection that the person pastes.
        options: Further arguments of `OAuth`.
        secrets: Where each secret that came up may be sent.
    """

    def __init__(self) -> None:
        self.id = AuthorizationServer(clock=now, tokens="opaque")
        self.evil = AuthorizationServer("https://evil.example.com", clock=now, tokens="opaque", user="mallory")
        self.names = {"mcp.example.com": [[PUBLIC]], "id.example.com": [[PUBLIC]], "evil.example.com": [[EVIL]]}
        self.told: dict[str, Any] = {"resource": SERVER, "authorization_servers": [self.id.issuer]}
        self.own: dict[str, Callable[[], httpx.Response]] = {}
        self.challenge: str | list[str] = f'Bearer resource_metadata="{METADATA}"'
        self.refuses: Callable[[httpx.Request], httpx.Response | None] = lambda request: None
        self.reached: set[tuple[str, str]] = set()
        self.sent: list[str] = []
        self.asked: list[str] = []
        self.paste: Callable[[str], str] = lambda url: url
        self.options: dict[str, Any] = {}
        self.store = MemoryTokens()
        self.secrets: dict[str, set[str]] = {}
        self.wrong: list[str] = []

    # --- the network -------------------------------------------------------------------------------------------------

    def proxy(self, url: str) -> str | None:
        return None

    async def resolve(self, host: str, flags: int = 0) -> list[str]:
        await trio.lowlevel.checkpoint()
        if host in self.names:
            answers = self.names[host]
            return answers.pop(0) if len(answers) > 1 else answers[0]
        if re.fullmatch(r"[0-9.]+|\[?[0-9a-fA-F:]+\]?", host):
            return [host.strip("[]")]
        raise OSError(-2, "unknown name")

    def transport(self, proxy: str | None) -> httpx.AsyncBaseTransport:
        return self

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        await request.aread()
        await trio.lowlevel.checkpoint()
        host = request.headers["Host"]
        url = f"{request.url.scheme}://{host}{request.url.raw_path.decode()}"
        # The client of the server resolves for itself: what it connects to is what the user named.
        where = PUBLIC if request.url.host == "mcp.example.com" else request.url.host
        self.reached.add((host, where))
        self.sent.append(f"{request.method} {url}")
        self._look_at(url, request)
        bare = url.partition("?")[0]
        if bare in self.own:
            return self.own[bare]()
        if url.startswith(METADATA):
            return document(self.told)
        if host == "mcp.example.com":
            return await self._serve(request) if bare == SERVER else httpx.Response(404)
        for server in (self.id, self.evil):
            if bare.startswith(server.issuer + "/"):
                fields = dict(request.headers.items())
                return self._carried(bare, server.handle(Fetch("", request.method, url, fields, request.content)))
        return httpx.Response(404)

    def _carried(self, bare: str, answer: ServerResponse) -> httpx.Response:
        home = bare.rpartition("/")[0]
        self._learn(answer.body, {"refresh_token": f"{home}/token", "access_token": SERVER, "client_secret": home})
        headers = answer.headers.as_dict()
        if answer.ending == "endless":
            return httpx.Response(answer.status, headers=headers, stream=Body(answer.body))
        if answer.ending == "cut":
            raise httpx.ReadError("cut")
        return httpx.Response(answer.status, headers=headers, content=answer.body)

    def _learn(self, body: bytes, homes: Mapping[str, str]) -> None:
        try:
            said = json.loads(body)
        except ValueError:
            return
        for name, home in homes.items():
            if isinstance(said, dict) and isinstance(secret := said.get(name), str) and len(secret) > 8:
                self.secrets.setdefault(secret, set()).add(home)

    def _look_at(self, url: str, request: httpx.Request) -> None:
        """Note each secret that is sent elsewhere than where it belongs."""
        form = dict(parse_qsl(request.content.decode("latin-1")))
        if secret := form.get("code_verifier"):
            self.secrets.setdefault(secret, set()).add(url)  # and nowhere else
        head = " ".join(f"{name}: {value}" for name, value in request.headers.items())
        if basic := re.search(r"authorization: Basic (\S+)", head, re.IGNORECASE):
            head += unquote_plus(base64.b64decode(basic[1]).decode())
        whole = f"{url} {unquote_plus(url)} {head} {request.content.decode('latin-1')} {form}"
        for secret, homes in self.secrets.items():
            if secret in whole and not any(url.startswith(home) for home in homes):
                self.wrong.append(f"a secret of {sorted(homes)} was sent to {url}")
            if secret in url:
                self.wrong.append(f"a secret is in a URL: {url}")

    # --- the server and the person -----------------------------------------------------------------------------------

    async def _serve(self, request: httpx.Request) -> httpx.Response:
        token = request.headers.get("Authorization", "").partition(" ")[2]
        claims = next(filter(None, (each.claims_of(token) for each in (self.id, self.evil) if token)), None)
        if claims is None or claims.get("aud") != SERVER:
            challenges = [self.challenge] if isinstance(self.challenge, str) else self.challenge
            return httpx.Response(401, headers=[("WWW-Authenticate", each) for each in challenges])
        return self.refuses(request) or await answered(request)

    async def show(self, url: str) -> str:
        """Be the person."""
        self.asked.append(url)
        self.wrong += [f"a secret is in {url}" for secret in self.secrets if secret in url]
        await trio.sleep(5)
        query = parse_qs(urlsplit(url).query)
        server = self.evil if url.startswith(self.evil.issuer) else self.id
        try:
            said = server.sign_in(url)
        except ValueError:
            await trio.sleep_forever()
        home = f"{server.issuer}/token"
        for name in {"code", "state"} & said.keys():
            self.secrets.setdefault(said[name], set()).add(home if name == "code" else "nowhere")
        return self.paste(f"{query['redirect_uri'][0]}?{urlencode(said)}")

    # --- the client --------------------------------------------------------------------------------------------------

    def oauth(self) -> OAuth:
        """Return what the client signs in with."""
        given = {"store": self.store, "show": self.show, "dpop": "off", "clock": now}
        return OAuth(**{**given, **self.options})

    def later(self) -> None:
        """Let all access tokens expire."""
        self.id.issued.expire()

    async def login(self) -> Login | None:
        """Return the login in the store."""
        text = await self.store.load(SERVER)
        return None if text is None else Login.from_json(text)


async def play(
    scene: Scene, plot: Plan, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *, after: bool
) -> TransportError | None:
    """Let a client sign in and call; return the error it ends with, after a look at all that anyone could see of it.

    Args:
        scene: The network.
        plot: Makes it hostile.
        monkeypatch: As the fixture.
        caplog: As the fixture.
        after: Whether that happens after the client has signed in.
    """
    caplog.set_level(logging.DEBUG)
    monkeypatch.setattr(
        "trio_mcp.auth.client.signing.Fetcher", lambda server, urls: Fetcher(server, urls, network=scene)
    )
    spans, tracers = InMemorySpanExporter(), TracerProvider()
    tracers.add_span_processor(SimpleSpanProcessor(spans))
    records: list[Any] = []
    error: TransportError | None = None
    told: list[str] = []
    if not after:
        plot(scene)
    options = SessionOptions(on_request=records.append)
    telemetry = ClientTelemetry(tracer_provider=tracers)
    oauth = scene.oauth()
    try:
        async with Client(link(scene, oauth), options=options, middleware=[telemetry]) as client:
            told += [repr(client), repr(client.transport), repr(client.statistics())]
            if after:
                plot(scene)
            await client.call_tool("fine")
            await client.call_tool("fine")
    except TransportError as raised:
        error = raised
        told += [str(raised), repr(raised), str(vars(raised)), *traceback.format_exception(raised)]
    told += [caplog.text, str(records), repr(oauth), *(span.to_json() for span in spans.get_finished_spans())]
    login = await scene.login()
    if login is not None:
        told.append(repr(login))
        if login.dpop_key is not None:
            scene.secrets[json.loads(login.dpop_key)["d"]] = set()
    seen = "\n".join(told)
    assert [secret for secret in scene.secrets if secret in seen] == []
    assert scene.wrong == []
    return error
