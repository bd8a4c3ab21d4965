"""CPU time that authorization adds to a call on the server, and what requests without a good token leave behind."""

from __future__ import annotations

import base64
import gc
import hashlib
import itertools
import statistics
import sys
import time
from typing import TYPE_CHECKING, Any

import trio
from joserfc import jwk, jwt

from benchmarks.load import wire
from benchmarks.measure.samples import Comparison, Group, Target, interleave
from trio_mcp import Server
from trio_mcp.auth import JwtVerifier, ResourceServer
from trio_mcp.auth.rules.steps import Fetch, Fetched
from trio_mcp.http.headers import Headers
from trio_mcp.http.server.asgi import EXTRAS, Extras, HttpRequest
from trio_mcp.http.server.protection import Identified

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterator, Sequence

    from benchmarks.options import Options
    from trio_mcp.http.server.protection import Guard

RESOURCE, ISSUER = "https://files.example.com/mcp", "https://id.example.com"
KEY = jwk.ECKey.generate_key("P-256", {"kid": "k1", "use": "sig", "alg": "ES256"})
CLIENT = jwk.ECKey.generate_key("P-256")
GARBAGE = 100_000
BODY = 4 << 20

_ids = itertools.count()


def _token(**changes: Any) -> str:
    now = int(time.time())
    claims = {"iss": ISSUER, "sub": "alice", "aud": RESOURCE, "client_id": "app", "scope": "files:read", "iat": now}
    claims |= {"exp": now + 3600, "jti": f"t{next(_ids)}", **changes}
    return jwt.encode({"alg": "ES256", "kid": "k1", "typ": "at+jwt"}, claims, KEY)


def _proof(token: str) -> str:
    ath = base64.urlsafe_b64encode(hashlib.sha256(token.encode()).digest()).rstrip(b"=").decode()
    claims = {"jti": f"p{next(_ids)}", "htm": "POST", "htu": RESOURCE, "iat": int(time.time()), "ath": ath}
    return jwt.encode({"alg": "ES256", "typ": "dpop+jwt", "jwk": CLIENT.as_dict(private=False)}, claims, CLIENT)


def _request(token: str, scheme: str = "Bearer", proof: str | None = None) -> HttpRequest:
    fields = [("Host", "files.example.com"), ("Content-Type", "application/json")]
    fields += [("Authorization", f"{scheme} {token}"), *([] if proof is None else [("DPoP", proof)])]
    scope = {"type": "http", "method": "POST", "path": "/mcp", "query_string": b"", "headers": []}
    return HttpRequest(scope, _no_body, Headers(fields))


async def _no_body() -> dict[str, Any]:
    raise AssertionError("the body was read")


def _ended(running: Coroutine[Any, Any, Any]) -> Any:
    """Run to its end what has nothing to wait for, without the cost of an event loop."""
    try:
        running.send(None)
    except StopIteration as end:
        return end.value
    raise AssertionError("it waits for something")


def _cost(function: Callable[[Any], Any], inputs: Sequence[Any]) -> float:
    """Return the microseconds of CPU time for each input."""
    # The garbage collector is to look at what is made from here on, not at the inputs and the imports.
    gc.collect()
    gc.freeze()
    try:
        started = time.process_time()
        for each in inputs:
            function(each)
        return (time.process_time() - started) * 1e6 / len(inputs)
    finally:
        gc.unfreeze()


class _Costs:
    """The contenders, on one guard whose verifier has its keys."""

    def __init__(self, server: ResourceServer, guard: Guard, count: int) -> None:
        self._server, self._guard, self._count = server, guard, count
        self._public = jwk.import_key(KEY.as_dict(private=False))
        self._client = jwk.import_key(CLIENT.as_dict(private=False))
        self._known = _token()
        self._bound = _token(cnf={"jkt": CLIENT.thumbprint()})
        self._judge(_request(self._known))
        self._judge(_request(self._bound, "DPoP", _proof(self._bound)))

    def _judge(self, request: HttpRequest) -> None:
        outcome = _ended(self._guard.identify(request))
        if not isinstance(outcome, Identified) or self._server.permit(outcome.principal, ()) is not None:
            raise AssertionError(f"a good token was refused: {outcome}")

    def look_up(self) -> float:
        known, encoded = {hashlib.sha256(self._known.encode()).digest(): 1}, self._known.encode()
        return _cost(lambda token: known[hashlib.sha256(token).digest()], [encoded] * self._count * 20)

    def cached(self) -> float:
        return _cost(self._judge, [_request(self._known)] * self._count * 20)

    def bare_proof(self) -> float:
        proofs = [_proof(self._bound) for _ in range(self._count)]
        return _cost(lambda proof: jwt.decode(proof, self._client, ["ES256"]), proofs)

    def proof(self) -> float:
        return _cost(self._judge, [_request(self._bound, "DPoP", _proof(self._bound)) for _ in range(self._count)])

    def bare_token(self) -> float:
        tokens = [_token() for _ in range(self._count)]
        return _cost(lambda token: jwt.decode(token, self._public, ["ES256"]), tokens)

    def token(self) -> float:
        return _cost(self._judge, [_request(_token()) for _ in range(self._count)])


async def _costs(options: Options) -> dict[str, list[float]]:
    keys = {"keys": [KEY.as_dict(private=False)]}
    server = ResourceServer(
        RESOURCE, issuers=[ISSUER], scopes=["files:read"], verifier=JwtVerifier(keys=keys), remember=3600
    )
    async with server.opened() as guard:
        costs = _Costs(server, guard, 50 if options.quick else 1000)
        contenders = {
            "SHA-256 of a token, and a look-up in a dict": costs.look_up,
            "a known token": costs.cached,
            "bare joserfc on a proof": costs.bare_proof,
            "a known token with DPoP": costs.proof,
            "bare joserfc on a token (ES256)": costs.bare_token,
            "a new token (ES256)": costs.token,
        }
        return interleave(contenders, options.rounds, options.progress)


async def _garbage(count: int) -> tuple[float, float, float]:
    """Return the microseconds for each garbage token, the fetches, and the blocks of memory that all of them leave."""
    fetched: list[str] = []

    async def fetch(asked: Fetch) -> Fetched:
        fetched.append(asked.url)
        return Fetched(503, Headers(), b"")

    good = _token().rpartition(".")[0]
    old = _token(exp=1).rpartition(".")[0]
    foreign = _token(iss="https://other.example").rpartition(".")[0]
    keys = {"keys": [KEY.as_dict(private=False)]}
    made: list[Callable[[int], str]] = [
        lambda number: f"garbage{number}",
        lambda number: f"{'A' * 100}.{'B' * 300}.{number:086}",
        lambda number: f"{old}.{number:086}",
        lambda number: f"{foreign}.{number:086}",
    ]
    server = ResourceServer(RESOURCE, issuers=[ISSUER], fetch=fetch)
    signed = ResourceServer(RESOURCE, issuers=[ISSUER], verifier=JwtVerifier(keys=keys))
    async with server.opened() as guard, signed.opened() as other:
        blocks, spent = 0, 0.0
        # The first of them fill caches.
        for first, last in ((0, 200), (200, 200 + count)):
            gc.collect()
            blocks = sys.getallocatedblocks()
            started = time.process_time()
            for number in range(first, last):
                await guard.identify(_request(made[number % len(made)](number)))
                # One in fifty is worth a look at its signature.
                if number % 50 == 0:
                    await other.identify(_request(f"{good}.{number:086}"))
            spent = time.process_time() - started
            gc.collect()
            blocks = sys.getallocatedblocks() - blocks
    return spent * 1e6 / count, len(fetched), blocks


class _Lingering(Extras):
    """What our own runner offers: it deals with an unwanted body itself."""

    lingers = True

    def receive_nowait(self) -> None:
        return None


async def _post(app: Any, body: bytes, headers: Sequence[tuple[bytes, bytes]] = ()) -> tuple[int, int]:
    """Post a body to the application; return the status, and how many bytes of the body were read."""
    sent: list[dict[str, Any]] = []
    given = 0

    async def receive() -> dict[str, Any]:
        nonlocal given
        if given:
            await trio.sleep_forever()
        given += len(body)
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(event: dict[str, Any]) -> None:
        sent.append(event)

    fields = [(b"host", b"files.example.com"), (b"content-type", b"application/json"), *headers]
    fields += [(b"accept", b"application/json, text/event-stream"), (b"content-length", str(len(body)).encode())]
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/mcp",
        "root_path": "",
        "query_string": b"",
        "headers": fields,
        "server": ("192.0.2.1", 443),
        "http_version": "1.1",
        "extensions": {EXTRAS: _Lingering()},
    }
    await app(scope, receive, send)
    return sent[0]["status"], given


async def _calls(options: Options) -> Group:
    """Return what a call costs without authorization, and what is added to it."""
    keys, token = {"keys": [KEY.as_dict(private=False)]}, _token()
    known, encoded = {hashlib.sha256(token.encode()).digest(): 1}, token.encode()
    auth = ResourceServer(
        RESOURCE, issuers=[ISSUER], scopes=["files:read"], verifier=JwtVerifier(keys=keys), remember=3600
    )
    body = wire.call(1, "add", {"a": 1, "b": 2}, "modern").strip()
    headers = [
        (b"mcp-protocol-version", b"2026-07-28"),
        (b"mcp-method", b"tools/call"),
        (b"mcp-name", b"add"),
        (b"authorization", b"Bearer " + encoded),
    ]
    names = ("a call", "a call, after a SHA-256 and a look-up", "a call with a known token")
    samples: dict[str, list[float]] = {name: [] for name in names}
    async with (
        _server().asgi_app(allowed_hosts=["files.example.com"]) as plain,
        _server().asgi_app(allowed_hosts=["files.example.com"], auth=auth) as protected,
    ):

        async def after_a_look_up(*arguments: Any) -> None:
            known[hashlib.sha256(encoded).digest()]
            await plain(*arguments)

        async def as_it_is(*arguments: Any) -> None:
            await plain(*arguments)

        async def sample(app: Any) -> float:
            gc.collect()
            gc.freeze()
            started = time.process_time()
            for _ in range(count):
                status, _read = await _post(app, body, headers)
                if status != 200:
                    raise AssertionError(f"a call got {status}")
            spent = time.process_time() - started
            gc.unfreeze()
            return spent * 1e6 / count

        count = 20 if options.quick else 1000
        for _ in range(options.rounds * 5):
            for name, app in zip(names, (as_it_is, after_a_look_up, protected), strict=True):
                samples[name].append(await sample(app))
    bare, hashed, added = (statistics.median(samples[name]) for name in names)
    note = f"added to a call: {hashed - bare:.1f} by a SHA-256 and a look-up, {added - bare:.1f} by authorization"
    return Group("protected", "a call at an ASGI application", "µs of CPU time", samples, notes=[note])


def _server() -> Server:
    server = Server("files")

    @server.tool
    async def add(a: int, b: int) -> int:
        return a + b

    return server


async def _posts(options: Options) -> tuple[dict[str, list[float]], int]:
    auth = ResourceServer(RESOURCE, issuers=[ISSUER])
    read = 0
    samples: dict[str, list[float]] = {"a POST of 4 MiB without a token": [], "a POST of 4 bytes without a token": []}
    async with Server("files").asgi_app(auth=auth, allowed_hosts=["files.example.com"]) as app:
        for _ in range(options.rounds * 10):
            for name, length in zip(samples, (BODY, 4), strict=True):
                body = bytes(length)
                started = time.process_time()
                status, given = await _post(app, body)
                samples[name].append((time.process_time() - started) * 1e6)
                if status != 401:
                    raise AssertionError(f"a request without a token got {status}")
                read += given
    return samples, read


def run(options: Options) -> Iterator[Group]:
    """Yield the costs of good tokens, then what bad ones leave behind, all in this process."""
    options.progress("authorization on the server")
    yield Group(
        "protected",
        "authorization of a call, on the server",
        "µs of CPU time",
        trio.run(_costs, options),
        [
            Comparison("a known token", "SHA-256 of a token, and a look-up in a dict", Target("<=", 10)),
            Comparison("a known token with DPoP", "bare joserfc on a proof", Target("<=", 1.5)),
            Comparison("a new token (ES256)", "bare joserfc on a token (ES256)", Target("<=", 1.3)),
        ],
    )
    yield trio.run(_calls, options)
    count = GARBAGE // 100 if options.quick else GARBAGE
    spent, fetches, blocks = trio.run(_garbage, count)
    samples = {"fetches": [fetches], "blocks of memory left": [blocks], "µs of CPU time for each": [spent]}
    targets = {"fetches": Target("<=", 0), "blocks of memory left": Target("<=", 1000)}
    yield Group("protected", f"{count:,} garbage tokens", "", samples, value_targets=targets)
    posts, read = trio.run(_posts, options)
    yield Group(
        "protected",
        "requests without a token",
        "µs of CPU time",
        posts,
        notes=[f"bytes of their bodies that were read: {read}"],
    )
