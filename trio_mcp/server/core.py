"""`Core`, the internals of a server: the part that its runs, its transports and the command line use."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import trio

from trio_mcp._checks import check_on_trio
from trio_mcp._nursery import background_nursery
from trio_mcp.eras.server_negotiation import ClientDeclaration, ServerIdentity
from trio_mcp.jsonrpc.messages import Notification
from trio_mcp.server.changes import Changes, Topic
from trio_mcp.server.context import ServedContext
from trio_mcp.server.features.deferred import Deferred
from trio_mcp.server.features.dispatch import Dispatch
from trio_mcp.server.features.feature import FeatureSettings, RunMember
from trio_mcp.server.functions.held_clock import held_clock
from trio_mcp.server.input.options import InputOptions, InputRun
from trio_mcp.server.run import Run
from trio_mcp.session.limits import SessionOptions

if TYPE_CHECKING:  # not imported at run time, as most servers never ask for input, and have no stores
    from trio_mcp.server.bus import Bus
    from trio_mcp.server.input.request_state import StateSealer
    from trio_mcp.server.processes.child import Inherited
    from trio_mcp.stores.contract import Stores
    from trio_mcp.stores.user_states import UserStateOptions, UserStates

__all__ = ["Core"]


class Core:
    """The internals of a server. The class around it (`Server` or `ProxyServer`) adds features and functions.

    Attributes:
        settings: The part of the server's settings that its features need.
        identity: The server's declaration to clients: info, capabilities, instructions, revisions.
        options: Limits, timeouts and hooks of each session.
        input: How functions ask for input.
        lifespan: Makes the context manager around each run; None without a lifespan.
        sealer: Makes and reads the ``requestState`` of requests that wait for input.
        dispatch: Finds the handler of a request and calls it.
        layers: What the server's instances of `Middleware` override.
        make_context, answer: Make the context of a request, and return the result for it.
        needed_scopes: Returns the scopes that a request needs.
        heard: ``async (notification, states, client)``, handles a client's notification and ignores an unknown one. The
            states are those that the run's lifespans yielded, keyed by the settings of their servers; ``client`` is the
            client's declaration in the handshake, None in the modern era.
        family: Returns this server and all servers mounted in it, each once.
        input_schema: Returns the schema of a tool's arguments, if known; the same object for as long as the tool is
            offered.
        stores: The server's stores; None without any.
        user_states: The states of the server's users; only if there are stores.
        inherited: What the supervisor of this process gave it, such as the secrets ``key`` and ``nonce``; None without
            one.
        tools: Returns the registry of the tools.
        resource_feature: Returns the feature that serves the resources; it is made on the first call.
        watcher: Returns, for the state of a run, a callback for topics that gain their first or lose their last
            listener; or None.
    """

    def __init__(
        self,
        settings: FeatureSettings,
        identity: ServerIdentity,
        options: SessionOptions,
        input: InputOptions,
        lifespan: Callable[[], contextlib.AbstractAsyncContextManager[Any]] | None,
        *,
        heard: Callable[[Notification, Mapping[Any, Any], ClientDeclaration | None], Coroutine[Any, Any, None]],
        family: Callable[[], Sequence[RunMember]],
        input_schema: Callable[[str], dict[str, Any] | None],
        watcher: Callable[[Any], Callable[[Topic, bool], None] | None],
        stores: Stores | None,
        user_state: UserStateOptions | None,
        tools: Callable[[], Any],
        resource_feature: Callable[[], Any],
    ) -> None:
        self.settings: Final = settings
        self.identity = identity
        self.options = options
        self.input: Final = input
        self.lifespan = lifespan
        self.sealer: Final = Deferred(self._make_sealer)
        self.dispatch: Final = Dispatch(settings)
        self.layers = settings.layers
        self.make_context = ServedContext
        self.answer = self.dispatch.serve
        self.needed_scopes = self.dispatch.needed_scopes
        self.heard = heard
        self.family = family
        self.input_schema = input_schema
        self.watcher = watcher
        self.stores = stores
        self._user_state = user_state
        self.user_states: Final = Deferred(self._make_user_states)
        self.tools = tools
        self.resource_feature = resource_feature
        self.inherited: Inherited | None = None  # set before a child of a supervisor serves

    def _make_sealer(self) -> StateSealer:
        from trio_mcp.server.input.request_state import StateSealer  # imported late: most servers never ask for input

        key = self.input.key
        if key is None and self.inherited is not None:
            key = self.inherited.key
        alone = self.stores is None or not self.stores.shared
        return StateSealer(self.settings.info.name, key, lifetime=self.input.ttl, alone=alone)

    def _make_user_states(self) -> UserStates:
        from trio_mcp.stores.user_states import UserStateOptions, UserStates  # imported late: few servers keep them

        assert self.stores is not None
        return UserStates(self.stores, self._user_state or UserStateOptions())

    @property
    def scoped(self) -> str:
        """An entry that needs scopes, such as ``"tool 'write'"``; empty if there never was one."""
        return self.settings.scoped

    async def _join(self, stores: Stores, run: Run) -> Bus:
        """Share the changes of a run with the other processes of the server."""
        from trio_mcp.server.bus import Bus

        bus = Bus(stores, run.changes)
        await bus.open()
        run.nursery.start_soon(stores.hear)
        run.nursery.start_soon(bus.run)
        return bus

    @contextlib.asynccontextmanager
    async def _extended(self, run: Run, states: dict[Any, Any]) -> AsyncIterator[None]:
        """Enter the lifespans of the server's extensions."""
        from trio_mcp.server.extensions import ExtensionRun

        assert self.settings.extensions is not None
        async with contextlib.AsyncExitStack() as stack:
            for each in self.settings.extensions.objects:
                part = ExtensionRun(run.nursery, self.stores, run, self, each, self.tools())
                states[each] = await stack.enter_async_context(each.lifespan(part))
            yield

    async def check(self) -> None:
        """Check what a run needs before its lifespan is entered: the file of keys, and the stores.

        Raises:
            ValueError: If the file of keys can't be used.
            StoreError: If the stores can't be used, or belong to another server. Stores that are busy raise nothing, as
                that passes, perhaps before the run.
        """
        await trio.lowlevel.checkpoint()
        self.input.check()
        if self.stores is None:
            return
        from trio_mcp.stores.contract import StoreBusy

        with contextlib.suppress(StoreBusy):
            async with self.stores:
                await self.stores.own(self.settings.info.name)

    @contextlib.asynccontextmanager
    async def open_run(self) -> AsyncIterator[Run]:
        """Enter the server's lifespan and, inside it, a nursery for background tasks; `Run.serve_link` serves links."""
        check_on_trio()
        await trio.lowlevel.checkpoint()  # without a lifespan, this is the only checkpoint here
        self.input.check()
        async with contextlib.AsyncExitStack() as stack:
            # In tests, a virtual clock stands still while a lifespan or an async function waits for a thread.
            if (clock := held_clock()) is not None:
                stack.enter_context(clock.watching())
            states: dict[Any, Any] = {}
            if self.stores is not None:
                if self.inherited is not None:  # before they are opened, which another process may keep from happening
                    from trio_mcp.server.processes.child import report_busy

                    self.stores.on_busy = report_busy
                await stack.enter_async_context(self.stores)
                await self.stores.own(self.settings.info.name)
            # The server's own lifespan comes first, so that those of mounted servers are entered inside it, and left
            # before it. A lifespan may mount further servers, so the loop looks for new members after each one.
            while (each := next((each for each in self.family() if each.settings not in states), None)) is not None:
                # Servers without a lifespan get an entry, too, so that the loop visits each server only once.
                states[each.settings] = None
                if each.lifespan is not None:
                    states[each.settings] = await stack.enter_async_context(each.lifespan())
            # The nursery is entered last, so that its tasks are cancelled before any lifespan begins to close.
            nursery = await stack.enter_async_context(background_nursery())
            changes = Changes(self.watcher(states[self.settings]))
            run = Run(self, states, nursery, changes, InputRun(self.input, self.sealer.get, nursery))
            nursery.start_soon(changes.run)
            if self.stores is not None:
                run.bus = await self._join(self.stores, run)
            if self.settings.extensions is not None:
                await stack.enter_async_context(self._extended(run, states))
            # A change in a mounted server is announced to the clients of this run, too.
            for each in self.family():
                each.settings.runs.add(run)
            try:
                yield run
            finally:
                # The family is looked up again, as servers that were mounted during the run have joined it.
                for each in self.family():
                    each.settings.runs.discard(run)
