"""Examines an engine before it is used: the client would only say that it timed out, whatever is wrong."""

from __future__ import annotations

import contextlib
import re
import socket
import ssl
from collections.abc import Iterator
from typing import Final

import attrs
import trio

from trio_mcp.stores.contract import StoreError
from trio_mcp.stores.valkey_address import EngineAddress
from trio_mcp.stores.valkey_refusals import refused

__all__ = ["Engine", "examine"]

MOST: Final = 1024 * 1024
"""The maximum size of a reply, in bytes (arbitrary)."""

AGAIN: Final = 0.1
"""Seconds after which an engine that is loading its data is asked again (arbitrary)."""

SILENCE: Final = 1.0
"""Seconds after which an engine that has not responded may be waiting for TLS, or for a client without (arbitrary)."""

NO_TLS: Final = "does not speak TLS at this port: write valkey:// in place of valkeys://, or give the port of TLS"
TLS: Final = "speaks TLS at this port: write valkeys:// in place of valkey://, or give the port without TLS"

OLDEST: Final = {"Valkey": (7, 2), "Redis": (7, 0)}
"""The oldest versions that have what the scripts need."""


@attrs.frozen
class Engine:
    """The facts that an engine gives about itself.

    Attributes:
        name: ``"Valkey"`` or ``"Redis"``.
        version: Its version.
        cluster: Whether it is a node of a cluster.
        memory: Bytes that its data takes.
        limit: The most bytes that it may take; 0 without a limit.
        appends: Whether it writes an append-only file.
    """

    name: str
    version: str
    cluster: bool
    memory: int
    limit: int
    appends: bool


async def examine(address: EngineAddress, channel: str, *, timeout: float) -> Engine:
    """Connect to an engine once, check that it is fit for stores, and return what it says about itself.

    An engine that is loading its data is waited for.

    Args:
        address: The address of the engine.
        channel: The channel that stores publish on and subscribe to.
        timeout: Seconds that all this may take.

    Raises:
        StoreError: If the engine can't be reached or used. The message names the reason, and never has the password.
    """
    stream: trio.SocketStream | None = None
    try:
        with trio.fail_after(timeout):
            stream = await _connect(address)
            return await _converse(address, stream, channel)
    except trio.TooSlowError:
        if stream is None:
            what = f"can't be reached: no connection within {timeout:g} s; check the URL, and firewalls in between"
        else:
            what = f"does not respond within {timeout:g} s{' over TLS' if address.tls else ''}: check the URL"
        raise StoreError(f"{address} {what}") from None
    finally:
        if stream is not None:
            with trio.CancelScope(shield=True):
                await trio.aclose_forcefully(stream)


async def _converse(address: EngineAddress, stream: trio.SocketStream, channel: str) -> Engine:
    """Examine an engine, and meanwhile, if it is silent, whether it waits for TLS, or for a client without TLS.

    Raises:
        StoreError: If it is not fit, or does one of these.
    """
    found: Engine | None = None
    error: StoreError | None = None

    async def suspect() -> None:
        nonlocal error
        await trio.sleep(SILENCE)
        if await _speaks(address, tls=not address.tls):
            error = StoreError(f"{address} {NO_TLS if address.tls else TLS}")
            nursery.cancel_scope.cancel()

    async with trio.open_nursery() as nursery:
        if not address.path:
            nursery.start_soon(suspect)
        try:
            spoken = await _secured(address, stream) if address.tls else stream
            found = await _examine(_Conversation(address, spoken), channel, address)
        except StoreError as exc:
            error = exc
        nursery.cancel_scope.cancel()
    if found is None:
        raise error or StoreError(f"{address} could not be examined")
    return found


async def _speaks(address: EngineAddress, *, tls: bool) -> bool:
    """Return whether what is at an address responds with TLS, or without, over a connection of its own."""
    first = b"PING\r\n"
    if tls:
        outgoing = ssl.MemoryBIO()
        hello = ssl.create_default_context().wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname=address.host)
        with contextlib.suppress(ssl.SSLWantReadError):
            hello.do_handshake()
        first = outgoing.read()
    try:
        async with await trio.open_tcp_stream(address.host, address.port) as stream:
            await stream.send_all(first)
            # A handshake or an alert of TLS; a result or an error of an engine.
            return (await stream.receive_some(1)) in ((b"\x16", b"\x15") if tls else (b"+", b"-"))
    except (OSError, trio.BrokenResourceError):
        return False


async def _connect(address: EngineAddress) -> trio.SocketStream:
    with _clear_errors(address):
        if address.path:
            return await trio.open_unix_socket(address.path)
        return await trio.open_tcp_stream(address.host, address.port)


async def _secured(address: EngineAddress, stream: trio.abc.Stream) -> trio.abc.Stream:
    secure = trio.SSLStream(stream, ssl.create_default_context(), server_hostname=address.host)
    with _clear_errors(address):
        await secure.do_handshake()
    return secure


@attrs.define
class _Conversation:
    """One command after the other, in the engine's protocol (RESP 2)."""

    _address: EngineAddress
    _stream: trio.abc.Stream
    _unread: bytearray = attrs.field(factory=bytearray, init=False)

    async def ask(self, *words: str) -> bytes:
        """Send a command and return the reply; of an array, only its length.

        Raises:
            StoreError: If the engine refuses the command.
        """
        encoded = [word.encode() for word in words]
        command = b"".join(b"$%d\r\n%b\r\n" % (len(word), word) for word in encoded)
        with _clear_errors(self._address):
            await self._stream.send_all(b"*%d\r\n%b" % (len(encoded), command))
            line = await self._line()
            if line[:1] == b"$":
                if not line[1:].isdigit():
                    raise self._unknown()
                return (await self._take(int(line[1:]) + 2))[:-2]
        if line[:1] == b"-":
            raise refused(self._address, line[1:].decode(errors="replace"))
        return bytes(line[1:])

    async def _line(self) -> bytes:
        while (end := self._unread.find(b"\r\n")) < 0:
            await self._more()
        line = await self._take(end + 2)
        if line[:1] not in (b"+", b"-", b":", b"$", b"*"):
            raise self._unknown()
        return line[:-2]

    async def _take(self, count: int) -> bytes:
        while len(self._unread) < count:
            await self._more()
        taken = bytes(self._unread[:count])
        del self._unread[:count]
        return taken

    async def _more(self) -> None:
        data = await self._stream.receive_some(65_536)
        self._unread += data
        if not data or len(self._unread) > MOST or self._unread[:1] == b"\x15":  # a message of TLS
            raise self._unknown()

    def _unknown(self) -> StoreError:
        tls = "" if self._address.tls or self._address.path else ", or wants TLS, which valkeys:// is for"
        return StoreError(f"{self._address} does not speak the protocol of Valkey and Redis{tls}: check the URL")


async def _examine(engine: _Conversation, channel: str, address: EngineAddress) -> Engine:
    if address.password is not None:
        await engine.ask("AUTH", *([] if address.user is None else [address.user]), address.password)
    while True:
        found = (await engine.ask("INFO")).decode(errors="replace")
        facts = dict(line.split(":", 1) for line in found.splitlines() if ":" in line)
        if facts.get("loading", "0") == "0":
            break
        await trio.sleep(AGAIN)
    made = _check(address, facts)
    if address.database:
        await engine.ask("SELECT", f"{address.database}")
    await engine.ask("PING")  # so that it can be seen later that the engine is back
    # The client would try to subscribe again and again, and say nothing.
    await engine.ask("PUBLISH", channel, "[]")
    await engine.ask("SUBSCRIBE", channel)
    return made


def _check(address: EngineAddress, facts: dict[str, str]) -> Engine:
    name, version = "Redis", facts.get("redis_version", "")
    if "valkey_version" in facts:
        name, version = "Valkey", facts["valkey_version"]
    numbers = tuple(int(each) for each in re.findall(r"\d+", version)[:2])
    if numbers < OLDEST[name]:
        least = " or ".join(f"{each} {major}.{minor}" for each, (major, minor) in OLDEST.items())
        raise StoreError(f"{address} is {name} {version or '(unknown)'}, and stores need {least} or newer: update it")
    policy = facts.get("maxmemory_policy", "noeviction")
    if policy != "noeviction":
        raise StoreError(
            f"{address} deletes keys when its memory is full (its maxmemory-policy is {policy}), and would lose tasks:"
            " set maxmemory-policy to noeviction, or use an engine of its own"
        )
    cluster = facts.get("cluster_enabled", "0").strip() == "1"
    if not cluster and facts.get("role", "master") != "master":
        raise refused(address, "READONLY")
    return Engine(
        name,
        version,
        cluster,
        _count(facts.get("used_memory")),
        _count(facts.get("maxmemory")),
        facts.get("aof_enabled", "0") == "1",
    )


def _count(text: str | None) -> int:
    return int(text) if text and text.isdigit() else 0


@contextlib.contextmanager
def _clear_errors(address: EngineAddress) -> Iterator[None]:
    """Turn errors of the network and of TLS into a `StoreError`."""
    try:
        yield
    except (OSError, trio.BrokenResourceError, trio.ClosedResourceError) as exc:
        raise StoreError(f"{address} {_described(_first(exc))}") from None


def _first(exc: BaseException) -> BaseException:
    """Return the exception of the operating system or of TLS behind another one."""
    while True:
        if isinstance(exc, BaseExceptionGroup):
            exc = exc.exceptions[0]
        elif isinstance(exc, (ssl.SSLError, socket.gaierror)) or exc.__cause__ is None:
            return exc
        else:
            exc = exc.__cause__


def _described(exc: BaseException) -> str:
    match exc:
        case socket.gaierror():
            return f"can't be reached: there is no such host ({exc.strerror}): check the URL"
        case ssl.SSLCertVerificationError():
            return (
                f"has a certificate that is not trusted ({exc.verify_message}): use the host's name in the certificate,"
                " and name a file with its authority in the environment, as SSL_CERT_FILE"
            )
        case ssl.SSLError(reason="WRONG_VERSION_NUMBER" | "RECORD_LAYER_FAILURE"):
            return NO_TLS
        case ssl.SSLError():
            return f"can't be reached over TLS ({exc.reason or exc})"
        case ConnectionRefusedError():
            return "can't be reached: the connection is refused; check that it runs there"
        case FileNotFoundError():
            return "can't be reached: there is no such socket; check that it runs there"
        case PermissionError():
            return "can't be reached: check the permissions of its socket"
        case OSError() if not isinstance(exc, ConnectionError):
            return f"can't be reached: {exc.strerror or exc}"
    return "has closed the connection, or wants TLS, which valkeys:// is for"
