"""Engines that `ValkeyStores` can't use: each is one clear error in time, which does not show the password."""

from __future__ import annotations

import contextlib
import re
from collections.abc import AsyncIterator, Callable, Iterator
from functools import partial
from typing import Any

import pytest
import trio

from tests.redis_server import RedisServer, free_port, redis_server
from tests.server.http.certificate import over_tls
from tests.stores.test_valkey_stores import back, task, two
from trio_mcp.stores import StoreBusy, StoreError, ValkeyStores
from trio_mcp.stores.valkey_engine import examine
from trio_mcp.testing import check_stores

pytestmark = pytest.mark.redis

SECRET = "geheim"

IN_TIME = 5
"""Seconds until the error: the issue's limit."""


async def opened(url: str, prefix: str = "desk", **options: Any) -> StoreError:
    """Return the error with which stores can't be opened."""
    with trio.fail_after(IN_TIME), pytest.raises(StoreError) as caught:
        async with ValkeyStores(url, prefix=prefix, **options):
            pass
    assert SECRET not in f"{caught.value!s}{caught.value!r}"
    assert caught.value.__suppress_context__ or caught.value.__context__ is None
    return caught.value


# --- engines that can't be reached, or refuse their user --------------------------------------------------------------


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """An engine with a password, at a port and at one for TLS; the names in the URLs below."""
    folder, plain, tls = tmp_path_factory.mktemp("tls"), free_port(), free_port()
    over_tls(folder)
    certificate = ("--tls-cert-file", f"{folder}/cert.pem", "--tls-key-file", f"{folder}/key.pem")
    options = (*certificate, "--tls-auth-clients", "no", "--requirepass", SECRET)
    with redis_server("--port", f"{plain}", "--tls-port", f"{tls}", *options) as server:
        yield {
            "plain": f"127.0.0.1:{plain}",
            "tls": f"127.0.0.1:{tls}",
            "path": str(server.folder),
            "ca": f"{folder}/cert.pem",
        }


UNREACHED = {
    "wrong password": (
        "valkey://:geheimer@{plain}",
        r"refuses the user or the password: check both .* \(it says: WRONGPASS",
    ),
    "unknown user": ("valkey://ann:geheim@{plain}", "refuses the user or the password"),
    "no password": ("valkey://{plain}", "wants a password: give it in the URL"),
    "TLS missing": ("valkey://:geheim@{tls}", "wants TLS, which valkeys:// is for"),
    "TLS missing, and the port waits": ("valkey://:geheim@{patient}", "speaks TLS at this port: write valkeys://"),
    "TLS unwanted": (
        "valkeys://:geheim@{plain}",
        r"does not speak TLS at this port: write valkey:// in place of valkeys://, or give the port of TLS",
    ),
    "unknown authority": (
        "valkeys://:geheim@{tls}",
        r"has a certificate that is not trusted \(self-signed certificate\)",
    ),
    "no such host": ("valkey://:geheim@no-such-host.invalid", "there is no such host"),
    "refused": ("valkey://:geheim@127.0.0.1:1", "the connection is refused; check that it runs there"),
    "no socket": ("unix://:geheim@{path}/none", "there is no such socket"),
    "no such database": ("valkey://:geheim@{plain}/99", "does not have this database"),
    "no socket but a file": ("unix://:geheim@{path}/log", "the connection is refused"),
}


@pytest.mark.parametrize("what", UNREACHED)
async def test_an_engine_that_cannot_be_reached_is_one_clear_error(
    guarded: dict[str, str], what: str, capfd: pytest.CaptureFixture[str]
) -> None:
    url, match = UNREACHED[what]
    # None of these takes the whole timeout.
    async with patient_port() as patient:
        error = await opened(url.format(**guarded, patient=patient), timeout=600)
    assert re.search(match, str(error))
    assert capfd.readouterr() == ("", "")  # the client has a log of its own


@contextlib.asynccontextmanager
async def patient_port() -> AsyncIterator[str]:
    """Serve a port at which whatever is not TLS gets no response."""

    async def serve(stream: trio.SocketStream) -> None:
        with contextlib.suppress(trio.BrokenResourceError):
            async for data in stream:
                if data[:1] == b"\x16":
                    await stream.send_all(bytes.fromhex("15 03 03 00 02 02 28"))  # an alert: the handshake has failed

    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        yield f"127.0.0.1:{listener.socket.getsockname()[1]}"
        nursery.cancel_scope.cancel()


async def test_an_engine_is_used_over_tls(guarded: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", guarded["ca"])
    async with ValkeyStores(f"valkeys://:{SECRET}@{guarded['tls']}", prefix="desk") as stores:
        assert await stores.announce(["a"]) == 1


def bulk(text: bytes) -> bytes:
    return b"$%d\r\n%b\r\n" % (len(text), text)


@pytest.mark.parametrize(
    ("reply", "match"),
    [
        (None, "does not respond within 0.5 s"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak the protocol of Valkey and Redis"),
        (b"", "does not speak the protocol"),
        (b"\0" * 2_000_000, "does not speak the protocol"),
        (b"$999999999999999\r\n", "does not speak the protocol"),
        (b"$x\r\n", "does not speak the protocol"),
        (
            bulk(b"redis_version:6.2.14\r\nrole:master\r\n"),
            r"is Redis 6\.2\.14, and stores need Valkey 7\.2 or Redis 7\.0 or newer",
        ),
        (bulk(b"redis_version:7.2.4\r\nvalkey_version:7.1.9\r\n"), r"is Valkey 7\.1\.9, and stores need"),
        (b"$4\r\nabcd\r\n", r"is Redis \(unknown\)"),
    ],
)
async def test_what_is_no_engine_of_today_is_refused(reply: bytes | None, match: str) -> None:
    async def serve(stream: trio.SocketStream) -> None:
        await stream.receive_some()
        if reply is None:
            await trio.sleep_forever()
        with contextlib.suppress(trio.BrokenResourceError):
            await stream.send_all(reply)

    async with trio.open_nursery() as nursery:
        (listener,) = await nursery.start(partial(trio.serve_tcp, serve, 0, host="127.0.0.1"))
        port = listener.socket.getsockname()[1]
        error = await opened(f"valkey://127.0.0.1:{port}", timeout=0.5 if reply is None else 4)
        assert re.search(match, str(error)), error
        nursery.cancel_scope.cancel()


UNFIT = {
    "evicts": (("--maxmemory-policy", "allkeys-lru"), r"deletes keys .* \(its maxmemory-policy is allkeys-lru\)"),
    "evicts what has an end": (("--maxmemory-policy", "volatile-ttl"), "set maxmemory-policy to noeviction"),
    "replica": (
        ("--replicaof", "127.0.0.1 1"),
        "is a replica, which can't be written: give the address of the primary",
    ),
}


@pytest.mark.parametrize("what", UNFIT)
async def test_an_engine_that_is_unfit_is_refused_by_name(what: str) -> None:
    options, match = UNFIT[what]
    with redis_server(*options) as server:
        assert re.search(match, str(await opened(server.url)))


async def test_an_engine_that_loads_its_data_is_waited_for() -> None:
    with redis_server() as server:
        async with ValkeyStores(server.url, prefix="desk") as stores:
            await stores.announce([f"{number}" for number in range(100)])
        server.ask("eval", "for i = 1, 1000 do redis.call('set', 'key' .. i, i) end", "0")
        server.ask("save")
        server.kill()
        server.options = ("--key-load-delay", "500", "--loading-process-events-interval-bytes", "1024")
        await trio.to_thread.run_sync(server.start)
        assert "does not respond within 0.1 s" in str(await opened(server.url, timeout=0.1))
        async with ValkeyStores(server.url, prefix="desk", timeout=30) as stores:
            assert (await stores.changed(0)).newest == 100


# --- what lies under the prefix ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("garbage", "match"),
    [
        (
            ("set", "x"),
            "belongs to another program, which has the key {desk}:about: give the stores a prefix of their own",
        ),
        (("rpush", "x"), "belongs to another program"),
        (("hset", "name", "x"), "belongs to another program"),
        (("hset", "layout", "99", "epoch", "x"), "its layout is 99, and this version needs 1"),
        (("hset", "layout", "", "epoch", "x"), "its layout is , and this version needs 1"),
    ],
)
async def test_a_prefix_of_others_is_refused_and_unchanged(
    engine: RedisServer, garbage: tuple[str, ...], match: str
) -> None:
    engine.ask("flushall")
    engine.ask(garbage[0], "{desk}:about", *garbage[1:])
    before = engine.ask("dump", "{desk}:about")
    for _ in range(2):
        assert match in str(await opened(engine.url))
    assert (engine.ask("dump", "{desk}:about"), engine.keys()) == (before, {"{desk}:about"})
    engine.ask("flushall")


async def test_keys_of_others_under_the_prefix_are_left_alone(engine: RedisServer, prefix: str) -> None:
    """The names of our keys contain the epoch, so no key of another program is taken for one of them."""
    for name in ("tasks", "topics", "log", "task:a"):
        engine.ask("set", f"{{{prefix}}}:{name}", "x")
    async with ValkeyStores(engine.url, prefix=prefix) as stores:
        await stores.add_task(task("a"), limit=1)
        await stores.announce(["a"])
        assert engine.ask("get", f"{{{prefix}}}:tasks") == "x"


async def test_two_servers_on_one_prefix_are_refused(engine: RedisServer, prefix: str) -> None:
    async with two(engine, prefix) as (one, other):
        await one.own("one")
        with pytest.raises(StoreError, match=f"the prefix {prefix!r} of unix://.* belongs to the server 'one'"):
            await other.own("other")


# --- what an engine refuses later -------------------------------------------------------------------------------------


async def test_what_an_engine_refuses_later_is_said_and_passes(prefix: str) -> None:
    """Each call that is refused has no effect, and what needs no memory goes on without."""
    refusals: dict[str, tuple[Callable[[RedisServer], object], Callable[[RedisServer], object], type, str]] = {
        "memory": (
            lambda server: server.ask("config", "set", "maxmemory", "1"),
            lambda server: server.ask("config", "set", "maxmemory", "0"),
            StoreError,
            "has no memory left: raise its maxmemory",
        ),
        "replica": (
            lambda server: server.ask("replicaof", "127.0.0.1", "1"),
            lambda server: server.ask("replicaof", "no", "one"),
            StoreError,
            "is a replica, which can't be written",
        ),
        "replicas": (
            lambda server: server.ask("config", "set", "min-replicas-to-write", "1"),
            lambda server: server.ask("config", "set", "min-replicas-to-write", "0"),
            StoreError,
            "refuses writes, because it has too few replicas",
        ),
    }
    with redis_server() as server:
        async with ValkeyStores(server.url, prefix=prefix) as stores:
            held = await stores.add_task(task("held"), lease=60)
            for name, (begin, end, kind, match) in refusals.items():
                begin(server)
                with pytest.raises(StoreError, match=match) as caught:
                    await stores.add_task(task("new"))
                assert type(caught.value) is kind
                assert await stores.task("held") == held
                if name == "memory":
                    assert await stores.renew({"held": held.token}, lease=60) == {"held": held}
                    assert (await stores.changed(0)).newest == 0
                    await stores.forget_states("ann")
                end(server)
                assert await stores.task("new") is None


async def test_a_busy_engine_is_away_for_as_long_as_it_is(prefix: str) -> None:
    with redis_server("--busy-reply-threshold", "10") as server:
        async with ValkeyStores(server.url, prefix=prefix) as stores, trio.open_nursery() as nursery:
            loop = partial(
                server.ask, "eval", "local t = redis.call('time')[1] + 2 while redis.call('time') do end", "0"
            )

            async def occupy() -> None:
                with contextlib.suppress(Exception):
                    await trio.to_thread.run_sync(loop)

            nursery.start_soon(occupy)
            with trio.fail_after(IN_TIME):
                while True:
                    try:
                        await stores.announce(["a"])
                    except StoreBusy as exc:
                        said = str(exc)
                        break
            assert "is busy with a script of another program" in said
            server.ask("script", "kill")
            await back(stores)


# --- users of the engine ----------------------------------------------------------------------------------------------


def documented() -> list[str]:
    """Return the rule that the docstring gives."""
    (rule,) = re.findall(r"ACL SETUSER (desk [^.]*?)\n\n", ValkeyStores.__doc__ or "")
    return rule.replace("*:*", "*").split()


@pytest.fixture
def restricted(engine: RedisServer) -> Iterator[tuple[str, RedisServer]]:
    """The URL of a user with the rights that the docstring gives, for all prefixes that begin with ``desk``."""
    rule = [word.replace("{desk}", "{desk*}") for word in documented()]
    engine.ask("acl", "setuser", *rule)
    yield engine.url.replace("unix://", "unix://desk:password@"), engine
    engine.ask("acl", "deluser", "desk")


async def test_the_rights_in_the_docs_suffice(restricted: tuple[str, RedisServer], prefix: str) -> None:
    url, _ = restricted
    numbers = iter(range(1000))

    @contextlib.asynccontextmanager
    async def pair() -> Any:
        name = f"desk-{prefix}-{next(numbers)}"
        async with ValkeyStores(url, prefix=name) as one, ValkeyStores(url, prefix=name) as other:
            yield one, other

    await check_stores(pair)
    async with pair() as (one, other), trio.open_nursery() as nursery:
        one._shared = type(one._shared)()  # noqa: SLF001 - as if it were in another process
        nursery.start_soon(one.hear)
        with trio.fail_after(60), other.listen("a", look=60) as listener:
            await trio.testing.wait_all_tasks_blocked()
            one.wake("a")
            await listener.woken()
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("right", [word for word in documented() if word.startswith(("+", "~", "&"))])
async def test_each_right_in_the_docs_is_needed(restricted: tuple[str, RedisServer], prefix: str, right: str) -> None:
    url, engine = restricted
    engine.ask("script", "flush")  # the user has to load the scripts
    if right.startswith("+"):
        engine.ask("acl", "setuser", "desk", f"-{right[1:]}")
    else:
        engine.ask("acl", "setuser", "desk", {"~": "resetkeys", "&": "resetchannels"}[right[0]])

    @contextlib.asynccontextmanager
    async def pair() -> Any:
        async with ValkeyStores(f"{url}?db=1", prefix=f"desk-{prefix}") as stores:
            await stores._opened()._ping()  # noqa: SLF001 - as after a failure
            yield stores, stores

    with pytest.raises(Exception, match="does not allow this user what stores do"):
        await check_stores(pair)


async def test_an_engine_says_what_it_is(engine: RedisServer) -> None:
    stores = ValkeyStores(engine.url, prefix="desk")
    found = await examine(stores._address, "{desk}:wake", timeout=IN_TIME)  # noqa: SLF001
    assert found.name in ("Redis", "Valkey")
    assert (found.cluster, found.appends, found.limit) == (False, False, 0)
    assert found.memory > 100_000
