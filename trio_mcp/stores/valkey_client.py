"""The connection to an engine, over `valkey-glide`, the client of the Valkey project; only this module imports it."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Sequence
from functools import cache
from types import ModuleType
from typing import Any, Final

import attrs
import trio

from trio_mcp.stores.contract import StoreBusy, StoreError
from trio_mcp.stores.valkey_address import EngineAddress
from trio_mcp.stores.valkey_refusals import refused
from trio_mcp.stores.valkey_scripts import code_of

__all__ = ["EngineClient", "EngineClock", "load_glide"]

PLACES: Final = 500
"""How many commands are under way at once (arbitrary); the client refuses more than 1,000."""

PROBE: Final = 0.25
"""Seconds after which an engine that does not respond to PING is still away (arbitrary)."""

PAUSE: Final = 0.1
"""Seconds between two probes (arbitrary)."""

DRIFT: Final = 1e-4
"""How much faster or slower the engine's clock may go than this machine's."""


@cache
def load_glide() -> ModuleType:
    """Import the client, which takes 0.4 s and 40 MiB, and silence its log, which would go to standard error.

    What it logs, the errors of the store say. A program that has set up the client's log keeps what it has set.

    Raises:
        ImportError: If it is not installed.
    """
    try:
        import glide
    except ImportError as exc:
        raise ImportError(
            f"ValkeyStores needs the client of the Valkey project ({exc}): pip install 'trio-mcp[valkey]'"
        ) from None
    glide.Logger.init(glide.LogLevel.OFF)
    return glide


@cache
def _script(name: str) -> Any:
    return load_glide().Script(code_of(name))


@attrs.define(eq=False)
class EngineClock:
    """The time of an engine, in seconds since the epoch, as its responses tell it.

    A response tells a time between those of sending and of receiving; what several tell together is more exact. It is
    off by half of the shortest round trip of late, at most, unless the engine's clock has been set meanwhile.
    """

    _least: float = attrs.field(default=0.0, init=False)  # between these is what the engine's clock is ahead
    _most: float = attrs.field(default=0.0, init=False)
    _learned_at: float | None = attrs.field(default=None, init=False)

    def now(self) -> float:
        """Return the time."""
        return time.monotonic() + (self._least + self._most) / 2

    def learn(self, sent: float, engine: float) -> None:
        """Learn from a response that has just come.

        Args:
            sent: When the command was sent, on this machine's monotonic clock.
            engine: The engine's time in the response.
        """
        received = time.monotonic()
        least, most = engine - received, engine - sent
        if self._learned_at is not None:
            drift = DRIFT * (received - self._learned_at)
            both = max(least, self._least - drift), min(most, self._most + drift)
            if both[0] <= both[1]:  # otherwise, one of the clocks has been set
                least, most = both
        self._least, self._most, self._learned_at = least, most, received


@attrs.define(eq=False)
class _Watch:
    """Decides whether the engine is away: then calls fail at once, and one at a time finds out whether it is back.

    Attributes:
        probe: Returns once the engine responds, or raises a `StoreError`.
        back: Called when it does so again.
    """

    probe: Callable[[], Awaitable[None]]
    back: Callable[[], object]
    _why: str | None = attrs.field(default=None, init=False)
    _probing: trio.Event | None = attrs.field(default=None, init=False)
    _again_at: float = attrs.field(default=0.0, init=False)

    def lose(self, why: str) -> None:
        """Record why the engine is away."""
        self._why = why

    async def present(self) -> None:
        """Return if the engine is there, as far as is known.

        Raises:
            StoreBusy: If it is away.
        """
        while self._why is not None:
            if self._probing is not None:
                await self._probing.wait()
            elif time.monotonic() < self._again_at:
                raise StoreBusy(f"{self._why}: check that it runs; the call was not made")
            else:
                await self._look()

    async def _look(self) -> None:
        self._probing = trio.Event()
        try:
            with trio.move_on_after(PROBE) as scope:
                await self.probe()
            if not scope.cancelled_caught:
                self._why = None
        except StoreError:
            pass  # it stays away
        finally:
            # If this is cancelled, another call begins at once.
            self._probing.set()
            self._probing = None
        if self._why is None:
            self.back()
        else:
            self._again_at = time.monotonic() + PAUSE


@attrs.define(eq=False)
class EngineClient:
    """A connection to an engine, which is opened when it is first used, and opened again when it breaks.

    No command is sent twice. One whose outcome is unknown raises a `StoreError`, never `StoreBusy`.

    Attributes:
        address: Where the engine is.
        cluster: Whether it is a node of a cluster.
        channel: The channel whose messages are heard.
        timeout: Seconds for which a command may wait for a place, and then for its response.
        heard: Called with each message on the channel, in Trio's thread.
        back: Called when the engine responds again after it was away: messages may be lost.
    """

    address: EngineAddress
    cluster: bool
    channel: str
    timeout: float
    heard: Callable[[bytes], object]
    back: Callable[[], object]
    clock: EngineClock
    _glide: Any = attrs.field(default=None, init=False)
    _watch: _Watch = attrs.field(init=False)
    _places: trio.Semaphore = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._watch = _Watch(self._ping, self.back)
        self._places = trio.Semaphore(PLACES)

    async def open(self) -> None:
        """Prepare the client; the connection is made by the first command."""
        glide, address = load_glide(), self.address
        kind = "Cluster" if self.cluster else ""
        client = getattr(glide, f"Glide{kind}Client")
        configuration = getattr(glide, f"Glide{kind}ClientConfiguration")
        advanced = getattr(glide, f"AdvancedGlide{kind}ClientConfiguration")
        modes = configuration.PubSubChannelModes
        where = {"unix_socket_path": address.path} if address.path else {"host": address.host, "port": address.port}
        milliseconds = max(1, round(1000 * self.timeout))
        self._glide = await client.create(
            configuration(
                [glide.NodeAddress(**where)],
                use_tls=address.tls,
                credentials=(
                    None
                    if address.password is None
                    else glide.ServerCredentials(password=address.password, username=address.user)
                ),
                database_id=address.database or None,
                request_timeout=milliseconds,
                # Without `lazy_connect`, the client would block this thread until it is connected.
                lazy_connect=True,
                # The client tries forever, with pauses of up to 0.16 s.
                reconnect_strategy=glide.BackoffStrategy(num_of_retries=3, factor=20, exponent_base=2),
                advanced_config=advanced(connection_timeout=milliseconds),
                pubsub_subscriptions=configuration.PubSubSubscriptions(
                    {modes.Exact: {self.channel}}, lambda message, _: self.heard(message.message), None
                ),
            )
        )
        await trio.lowlevel.checkpoint()

    async def close(self) -> None:
        """Close the connection."""
        if self._glide is not None:
            await self._glide.close()
        await trio.lowlevel.checkpoint()

    async def run(self, name: str, key: str, arguments: Sequence[str | bytes]) -> list[Any]:
        """Run a script and return what follows the engine's time in its response.

        If this is cancelled before the script was sent, it has no effect; after that, it returns in spite of the
        cancellation.

        Args:
            name: The name of the script.
            key: The key by which a cluster finds the node.
            arguments: The arguments.

        Raises:
            StoreBusy: If the engine is away or busy, and the script was not run.
            StoreError: If the engine refuses the script, or the outcome is unknown.
        """
        sent = 0.0

        async def invoke() -> Any:
            nonlocal sent
            sent = time.monotonic()
            return await self._glide.invoke_script(_script(name), keys=[key], args=list(arguments))

        seconds, microseconds, *found = await self._send(invoke)
        self.clock.learn(sent, int(seconds) + int(microseconds) / 1e6)
        return [*found]

    async def publish(self, message: str) -> None:
        """Publish a message on the channel.

        Raises:
            StoreError: If that fails, or may have failed.
        """
        await self._send(lambda: self._glide.publish(message, self.channel))

    async def ask(self, *words: str) -> Any:
        """Return the response to any command.

        Raises:
            StoreError: If that fails.
        """
        return await self._send(lambda: self._glide.custom_command([*words]))

    async def _send(self, command: Callable[[], Awaitable[Any]]) -> Any:
        await trio.lowlevel.checkpoint_if_cancelled()
        await self._watch.present()
        await self._place()
        try:
            return await self._responded(command)
        finally:
            self._places.release()

    async def _place(self) -> None:
        if self._places.value:
            self._places.acquire_nowait()
            return
        with trio.move_on_after(self.timeout):
            await self._places.acquire()
            return
        raise StoreBusy(
            f"{self.address} is busy: {PLACES} commands of this process are under way; the call was not made"
        )

    async def _responded(self, command: Callable[[], Awaitable[Any]]) -> Any:
        glide = load_glide()
        try:
            # The client has a timeout of its own. This one is longer, in case that one fails.
            with trio.CancelScope(shield=True, deadline=trio.current_time() + self.timeout + 1):
                return await command()
            raise self._unknown(f"did not respond within {self.timeout:g} s")
        except glide.TimeoutError:
            raise self._unknown(f"did not respond within {self.timeout:g} s") from None
        except glide.ConnectionError:
            raise self._unknown("has closed the connection") from None
        except glide.ClosingError:
            raise StoreError(f"the connection to {self.address} was closed while it was used") from None
        except glide.RequestError as exc:
            raise self._refused(str(exc)) from None

    def _unknown(self, what: str) -> StoreError:
        self._watch.lose(f"{self.address} {what}")
        return StoreError(f"{self.address} {what}: the outcome of the call is unknown; check that the engine runs")

    def _refused(self, words: str) -> StoreError:
        if "connect failed" in words:  # it could not even be sent
            self._watch.lose(f"{self.address} can't be reached")
            return StoreBusy(f"{self.address} can't be reached: check that it runs; the call was not made")
        error = refused(self.address, words)
        if isinstance(error, StoreBusy):
            self._watch.lose(str(error))
        return error

    async def _ping(self) -> None:
        glide = load_glide()
        try:
            await self._glide.ping()
        except glide.GlideError as exc:
            raise self._refused(str(exc)) from None
