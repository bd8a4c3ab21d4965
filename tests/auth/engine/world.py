"""A server that wants logins, its authorization server and a person, in memory and on the virtual clock."""

from __future__ import annotations

import base64
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlencode, urlsplit

import trio

from trio_mcp.auth import MemoryTokens, OAuth, TokenStore
from trio_mcp.auth.rules.login import Login
from trio_mcp.auth.rules.steps import Fetch, Fetched
from trio_mcp.auth.testing import AuthorizationServer
from trio_mcp.auth.testing.answers import Refused
from trio_mcp.errors import AuthorizationError
from trio_mcp.http.client.auth import Attempt, Signer
from trio_mcp.http.headers import Headers

__all__ = ["SERVER", "World", "now", "together"]

SERVER = "https://mcp.example.com/mcp"
METADATA = "https://mcp.example.com/.well-known/oauth-protected-resource/mcp"
REDIRECT = "http://127.0.0.1:0/callback"


def now() -> float:
    """Tell the time, which is that of the virtual clock."""
    return 1_800_000_000 + trio.current_time()


class World:
    """What a client meets.

    Args:
        store: Where the client keeps its logins.
        latency: How long an exchange with an authorization server takes, in seconds.
        person: How long the person takes.
        settings: Settings of the authorization server.

    Attributes:
        id: The authorization server that the server names.
        all: All authorization servers, by the origin of their issuer.
        asked: The URLs that the person was asked to open.
        needs: The scopes that the server asks for in its challenges.
        content: Whether the server accepts any scopes at all where it needs some.
        scheme: The scheme of its challenges.
        nonce: The nonce that it asks for, if tokens are bound to keys.
        nonces: The nonces that it gives instead, one after the other; an empty one is left out.
        newest: The refresh token that arrived last, of the newest login.
        arrived_at: When the last tokens arrived.
        wrong: What the client did that it must not do.
    """

    def __init__(
        self, *, store: TokenStore | None = None, latency: float = 0.1, person: float = 5, **settings: Any
    ) -> None:
        self.id = AuthorizationServer(clock=now, tokens="opaque", **settings)
        self.all = {self.id.issuer: self.id}
        self.store = MemoryTokens() if store is None else store
        self.latency, self.person = latency, person
        self.asked: list[str] = []
        self.needs: Collection[str] = ()
        self.content = True
        self.scheme, self.nonce = "Bearer", "1"
        self.nonces: Iterator[str] = iter(())
        self._proofs: set[str] = set()
        self.newest: str | None = None
        self.wrong: list[str] = []
        self.arrived_at = -1.0
        self._used_up: set[str] = set()

    def oauth(self, **options: Any) -> OAuth:
        """Return an `OAuth` of this world."""
        given = {"store": self.store, "show": self.show, "redirect": REDIRECT, "dpop": "off"}
        return OAuth(**{**given, **options}, fetch=self.fetch, clock=now)

    async def show(self, url: str) -> str:
        """Be the person."""
        self.asked.append(url)
        query = parse_qs(urlsplit(url).query)
        scopes = self._held()
        if scopes is not None and set(query.get("scope", [""])[0].split()) <= scopes:
            self.wrong.append("a person was asked although a refresh would have done")
        await trio.sleep(self.person)
        try:
            said = self._at(url).sign_in(url)
        except ValueError:  # a page says that the client is unknown, and the browser stays there
            await trio.sleep_forever()
        return f"{query['redirect_uri'][0]}?{urlencode(said)}"

    def _held(self) -> frozenset[str] | None:
        """Return the scopes of the login that the client could still refresh; None if it has none."""
        family = self.id.issued.owner(self.newest or "")
        if family is None or family.revoked:
            return None
        try:
            self.id.clients.find(family.client)
        except Refused:
            return None
        return family.scopes

    def _at(self, url: str) -> AuthorizationServer:
        return self.all["{0.scheme}://{0.netloc}".format(urlsplit(url))]

    async def fetch(self, step: Fetch) -> Fetched:
        """Make an exchange, as the network would."""
        await trio.sleep(self.latency)
        form = dict(parse_qsl(step.body.decode()))
        if (used := form.get("refresh_token")) in self._used_up:
            self.wrong.append("a refresh token was sent again although its answer had arrived")
        if step.url == METADATA:
            said = {"resource": SERVER, "authorization_servers": [self.id.issuer]}
            return Fetched(200, Headers([("Content-Type", "application/json")]), json.dumps(said).encode())
        if urlsplit(step.url).netloc == urlsplit(SERVER).netloc:
            return Fetched(404, Headers([]), b"")
        answer = self._at(step.url).handle(step)
        if answer.ending != "whole":
            # What is cut ends at once, what is silent ends by a time limit.
            await trio.sleep(0 if answer.ending == "cut" else 10)
            raise AuthorizationError(step.step, f"the connection ended: {answer.ending}")
        await trio.sleep(self.latency)
        if answer.status == 200 and "grant_type" in form and answer.body.startswith(b"{"):
            self._arrived(used, json.loads(answer.body).get("refresh_token"))
        return answer

    def _arrived(self, used: str | None, new: str | None) -> None:
        self.arrived_at = trio.current_time()
        if used is None:
            self.newest = new
            return
        self._used_up.add(used)
        if self.newest == used:
            self.newest = new

    def respond(self, fields: dict[str, str], needed: Collection[str]) -> tuple[int, dict[str, str]]:
        """Return what the server answers to a request: status and header fields."""
        scheme, _, token = fields.get("Authorization", "").partition(" ")
        claims = self.id.claims_of(token) if token else None
        wanted = f'{scheme or self.scheme} resource_metadata="{METADATA}"'
        if scheme == "DPoP" and (refused := self._proven(fields["DPoP"])):
            given = next(self.nonces, self.nonce)
            challenge = {"WWW-Authenticate": f'{wanted}, error="{refused}"'}
            return 401, {**challenge, "DPoP-Nonce": given} if given else challenge
        if claims is None or claims["aud"] != SERVER:
            scope = f', scope="{" ".join(sorted(self.needs))}"' if self.needs else ""
            return 401, {"WWW-Authenticate": wanted + scope + (', error="invalid_token"' if token else "")}
        if needed and not (self.content and set(needed) <= set(claims["scope"].split())):
            return 403, {
                "WWW-Authenticate": f'{wanted}, error="insufficient_scope", scope="{" ".join(sorted(needed))}"'
            }
        return 200, {}

    def _proven(self, proof: str) -> str:
        """Return what is wrong with a proof."""
        claims = json.loads(base64.urlsafe_b64decode(proof.split(".")[1] + "=="))
        if claims["jti"] in self._proofs:
            return "invalid_dpop_proof"
        self._proofs.add(claims["jti"])
        return "" if claims.get("nonce") == self.nonce else "use_dpop_nonce"

    async def call(self, signer: Signer, needed: Collection[str] = (), *, sent: list[str] | None = None) -> int:
        """Call the server as a transport does; return the last status."""
        attempt: Attempt = signer.attempt()
        for _ in range(20):
            fields = dict(await attempt.fields("POST", SERVER))
            if sent is not None:
                sent.append(fields.get("Authorization", ""))
            await trio.sleep(0.01)
            status, headers = self.respond(fields, needed)
            if not await attempt.again(status, Headers(list(headers.items()))):
                return status
        raise AssertionError("a call was sent twenty times")

    async def check(self) -> None:
        """Check what has to be so whenever nothing is under way."""
        assert self.wrong == []
        if self._held() is not None:
            login = await self.login()
            assert login is not None, "the tokens that arrived last were lost"
            assert login.refresh_token == self.newest, "the refresh token that arrived last was lost"

    async def login(self) -> Login | None:
        """Return the login in the store."""
        text = await self.store.load(SERVER)
        return None if text is None else Login.from_json(text)

    @contextlib.asynccontextmanager
    async def signed_in(self, **options: Any) -> AsyncIterator[Signer]:
        """Return a block with a client that has signed in."""
        async with self.oauth(**options).opened(SERVER, contextlib.nullcontext) as signer:
            assert await self.call(signer) == 200
            yield signer

    def refreshes(self) -> int:
        """Return how many refreshes the authorization server was asked for."""
        return self.id.count("token", grant_type="refresh_token")


async def together(*tasks: Callable[[], Any]) -> list[Any]:
    """Run async functions at the same time, and return what each returned or raised."""
    outcomes: list[Any] = [None] * len(tasks)

    async def run(place: int) -> None:
        try:
            outcomes[place] = await tasks[place]()
        except Exception as error:
            outcomes[place] = error

    async with trio.open_nursery() as nursery:
        for place in range(len(tasks)):
            nursery.start_soon(run, place)
    return outcomes
