"""`AppHost`: shows the page of a tool, and speaks the host's side with its view (SEP-1865)."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any, Unpack

import trio

from trio_mcp._checks import given_or_default
from trio_mcp._keywords import refuse_unknown
from trio_mcp._log import logger
from trio_mcp._nursery import EnteredOnce, background_nursery
from trio_mcp._settings import completed
from trio_mcp._version import __version__
from trio_mcp.client.client import Client
from trio_mcp.client.group.client_group import ClientGroup
from trio_mcp.client.tool_results import ToolResult, tool_params
from trio_mcp.convert import another
from trio_mcp.errors import LocalProtocolError, McpError, TransportError, TrioMcpError
from trio_mcp.extensions.apps.client import LoadedPage, ServerTools, load_page
from trio_mcp.extensions.apps.context import CurrentContext, HostContext
from trio_mcp.extensions.apps.limits import AppLimits
from trio_mcp.extensions.apps.names import IDENTIFIER, AppCallCancelled
from trio_mcp.extensions.apps.options import AppHostOptions
from trio_mcp.extensions.apps.requests import ViewRequests
from trio_mcp.extensions.apps.view import ViewSession
from trio_mcp.link import Link
from trio_mcp.types.common import Implementation
from trio_mcp.types.tools import Tool

__all__ = ["AppHost"]

LEFT = "the host has closed the page"


class AppHost(EnteredOnce):
    """Calls a tool that has a page, and speaks with the page's view. Use it as an async context manager, once.

    Entering reads the page, and refuses one that can't be shown; only then the tool is called, in the background.
    Leaving cancels the call, if it has not ended, and tears the view down. The host is bound to one connection: a page
    reaches the server that it came from and no other, even in a group, and not the one that takes its place when the
    group connects again.

    Args:
        client: The client of the server, made with ``extensions=[Apps()]``; or a group of such clients.
        tool: The tool, or its name; in a group, its name in the group.
        arguments: The arguments of the call.
        settings: The other arguments: those of `AppHostOptions`, such as ``on_open_link``.

    Raises:
        TypeError, ValueError: If an argument is invalid.

    Entering raises `AppPageError` if the tool has no page that can be shown, `LocalProtocolError` if the client was
    made without the extension, and what `Client.read_resource` raises. If the block is cancelled, the call is
    cancelled, and the view is torn down within ``limits.teardown_wait`` seconds.
    """

    def __init__(
        self,
        client: Client | ClientGroup,
        tool: str | Tool,
        arguments: Mapping[str, Any] | None = None,
        **settings: Unpack[AppHostOptions],
    ) -> None:
        refuse_unknown(AppHost, settings, AppHostOptions)
        self._options = completed(AppHostOptions, settings)
        if not isinstance(client, (Client, ClientGroup)):
            raise TypeError(f"client must be a Client or a ClientGroup, got {type(client).__name__}")
        name = tool.name if isinstance(tool, Tool) else tool
        if self._options["streamed"] and arguments is not None:
            raise ValueError("streamed=True means that the arguments come later: pass them to complete_input")
        # The arguments are checked and copied now, so that a mistake shows where it was made.
        self._input: dict[str, Any] | None = tool_params(name, arguments or {})["arguments"]
        if self._options["streamed"]:
            self._input = None
        self._target = client
        self._name = name
        self._limits = given_or_default("limits", self._options["limits"], AppLimits)
        self._context = CurrentContext(self._options["context"] or HostContext())
        self._partial: dict[str, Any] | None = None
        self._moved = trio.Event()  # replaced with each part of the input
        self._outcome: ToolResult[Any] | Exception | None = None
        self._ended = trio.Event()
        self._call_scope = trio.CancelScope()
        self._client: Client | None = None
        self._tools: ServerTools | None = None
        self._page: LoadedPage | None = None
        self._view: ViewSession | None = None
        self._over = False

    # --- lifetime ------------------------------------------------------------------------------------------------

    @contextlib.asynccontextmanager
    async def _lifetime(self) -> AsyncIterator[None]:
        await trio.lowlevel.checkpoint()
        client, name = await self._connection()
        client.attached(IDENTIFIER)  # raises an error if the client was made without the extension
        allow, self._tools = self._options["allow_origin"], ServerTools(client)
        page = await load_page(
            client,
            self._tools,
            name,
            self._limits.max_html,
            (lambda origin: True) if allow is None else allow,
            tuple(self._options["grant"]),
        )
        self._client, self._page = client, page
        async with background_nursery(self._end) as nursery:
            nursery.start_soon(self._call, client, name)
            yield

    async def _connection(self) -> tuple[Client, str]:
        """Return the client of the tool's server, and the server's own name for the tool."""
        target = self._target
        if isinstance(target, Client):
            return target, self._name
        try:
            server, name = target.split(self._name)
        except LocalProtocolError:  # a shortened name is known only once it has been listed
            await target.list_tools()
            server, name = target.split(self._name)
        client = target.clients.get(server)
        if client is None:
            raise LocalProtocolError(f"the server {server!r} of the tool {self._name!r} is not connected")
        return client, name

    async def _call(self, client: Client, name: str) -> None:
        outcome: ToolResult[Any] | Exception = AppCallCancelled(LEFT)
        try:
            with self._call_scope:
                while self._input is None:
                    await self._moved.wait()
                outcome = await client.call_tool(name, self._input, **(self._options["call"] or {}))
        except Exception as exc:
            outcome = exc
        finally:
            # If `cancel` has stated a reason, that remains the outcome.
            if self._outcome is None:
                self._outcome = outcome
            self._ended.set()
            self._move()

    async def _end(self) -> None:
        self._over = True
        if not self._ended.is_set():
            self.cancel(LEFT)
        # The shield has an end: the call ends as soon as it is cancelled, and the teardown has a time limit.
        with trio.CancelScope(shield=True):
            await self._ended.wait()
            if self._view is not None:
                await self._view.tear_down(LEFT, ended=True)

    # --- the page ------------------------------------------------------------------------------------------------

    @property
    def _shown(self) -> LoadedPage:
        if self._page is None:
            raise LocalProtocolError("the page is known only inside `async with AppHost(…)`")
        return self._page

    @property
    def tool(self) -> Tool:
        """The tool, as its server describes it."""
        return self._shown.tool

    @property
    def uri(self) -> str:
        """The URI of the page."""
        return self._shown.uri

    @property
    def html(self) -> str:
        """The page: a whole HTML document, which is not trusted. See docs/how-to/apps.md for where to put it."""
        return self._shown.html

    @property
    def csp(self) -> str:
        """The value of the header ``Content-Security-Policy`` with which the page must be loaded."""
        return self._shown.policy.csp.header()

    @property
    def csp_domains(self) -> dict[str, list[str]]:
        """The origins that the page may use, as ``ui/notifications/sandbox-resource-ready`` has them."""
        return self._shown.policy.csp.to_wire()

    @property
    def refused_origins(self) -> tuple[str, ...]:
        """The origins that the page's server has declared and that the page does not get, each as text, for a log."""
        return self._shown.policy.refused

    @property
    def permissions(self) -> dict[str, dict[str, Any]]:
        """The permissions that the page has asked for and gets, as ``sandbox-resource-ready`` has them."""
        return {each: {} for each in self._shown.policy.permissions}

    @property
    def allow(self) -> str:
        """The value of the attribute ``allow`` of the page's frame, such as ``"camera; clipboard-write"``."""
        return self._shown.policy.allow

    @property
    def prefers_border(self) -> bool | None:
        """Whether the page asks for a border; None if it leaves that to the host."""
        return self._shown.policy.prefers_border

    @property
    def domain(self) -> str | None:
        """The origin that the page asks for, which the host need not give it; None if it asks for none."""
        return self._shown.policy.domain

    # --- the call of the tool ------------------------------------------------------------------------------------

    def partial_input(self, arguments: Mapping[str, Any]) -> None:
        """Show the view the arguments so far, while a model still writes them; only with ``streamed=True``.

        The view may not see all of them: it gets the newest when it is ready for one.

        Args:
            arguments: The arguments so far, as JSON data.

        Raises:
            LocalProtocolError: If the arguments are complete.
            TypeError: If the arguments are not a mapping, or can't be turned into JSON.
        """
        part = tool_params(self._name, arguments)["arguments"]
        self._check_incomplete()
        self._partial = part
        self._move()

    def complete_input(self, arguments: Mapping[str, Any]) -> None:
        """Call the tool with its arguments, after they have come in parts; only with ``streamed=True``.

        Args:
            arguments: All arguments, as JSON data.

        Raises:
            LocalProtocolError: If the arguments are complete already, or the call has been cancelled.
            TypeError: If the arguments are not a mapping, or can't be turned into JSON.
        """
        whole = tool_params(self._name, arguments)["arguments"]
        self._check_incomplete()
        self._input = whole
        self._move()

    def _check_incomplete(self) -> None:
        # "MUST stop sending once `ui/notifications/tool-input` is sent with complete arguments".
        if self._input is not None:
            raise LocalProtocolError("the arguments of the call are complete")
        if self._outcome is not None:
            raise LocalProtocolError("the call has been cancelled")

    def _move(self) -> None:
        self._moved.set()
        self._moved = trio.Event()

    def cancel(self, reason: str) -> None:
        """Cancel the call of the tool, and tell the view why; do nothing if the call has ended.

        Args:
            reason: The reason, for the view, such as ``"user action"``.
        """
        if self._outcome is None:
            self._outcome = AppCallCancelled(reason)
            self._call_scope.cancel(reason)

    async def result(self) -> ToolResult[Any]:
        """Wait for the result of the tool, which is for the model, too.

        Raises:
            AppCallCancelled: If the host has cancelled the call.
            LocalProtocolError: If the host has not been entered.
            TrioMcpError: As `Client.call_tool` raises it.

        If this call is cancelled, the call of the tool goes on.
        """
        if self._page is None:
            raise LocalProtocolError("there is a result only inside `async with AppHost(…)`")
        await trio.lowlevel.checkpoint()
        await self._ended.wait()
        if isinstance(self._outcome, ToolResult):
            return self._outcome
        assert self._outcome is not None
        raise another(self._outcome)

    # --- the view ------------------------------------------------------------------------------------------------

    @property
    def context(self) -> HostContext:
        """The context that the host tells the view."""
        return self._context.value

    def update_context(self, **changes: Any) -> None:
        """Change the context; the view is told of what has changed.

        Args:
            changes: The new values, by the names of the attributes of `HostContext`.

        Raises:
            TypeError, ValueError: If a name or a value is invalid.
            LocalProtocolError: If the view does not support the display mode.
        """
        mode, modes = changes.get("display_mode"), None if self._view is None else self._view.modes
        if mode is not None and modes is not None and mode not in modes:
            raise LocalProtocolError(f"the view does not support the display mode {mode!r}, but {', '.join(modes)}")
        self._context.change(changes)

    async def serve(self, link: Link, *, sandbox: bool = False) -> None:
        """Speak with a view over a link, until the view has gone, or has been torn down.

        A host may serve one view at a time. A view that comes later gets the input and the result, too.

        Args:
            link: Leads to the page: over `postMessage` and whatever carries that to this process.
            sandbox: Whether the link leads through a sandbox proxy, which asks for the page when it is ready
                (``ui/notifications/sandbox-proxy-ready``). Without it, the program loads the page.

        Raises:
            LocalProtocolError: If the host has not been entered, or serves a view already.

        If the host has been left, the view is not served, and this returns at once. If the call is cancelled, the view
        is torn down: it may take ``limits.teardown_wait`` seconds to respond.
        """
        page = self._shown
        if self._view is not None:
            raise LocalProtocolError("this AppHost serves another view already: make another one, or tear that down")
        if self._over:  # a task may begin to serve only when the block has been left
            await trio.lowlevel.checkpoint()
            return
        assert self._client is not None
        assert self._tools is not None
        requests = ViewRequests(self._client, self._tools, page, self._options, self._context)
        hello = {
            "hostInfo": (self._options["host_info"] or Implementation(name="trio_mcp", version=__version__)).to_wire(),
            "hostCapabilities": requests.capabilities(),
        }
        view = self._view = ViewSession(link, requests, hello, self._limits)
        try:
            await self._run(view, sandbox)
        finally:
            self._view = None

    async def _run(self, view: ViewSession, sandbox: bool) -> None:
        # The session is shielded from a cancellation, which would end it before the teardown. A task outside the shield
        # tears the view down instead.
        async with background_nursery() as outside:
            with trio.CancelScope(shield=True) as inside:
                outside.start_soon(self._await_cancellation, view, inside)
                async with view, background_nursery() as nursery:
                    for tell in (self._tell_story, self._tell_context, self._heed):
                        nursery.start_soon(self._while_open, view, tell)
                    if sandbox:
                        nursery.start_soon(self._while_open, view, self._fill_sandbox)
                    await view.wait_closed()
        await trio.lowlevel.checkpoint()

    async def _await_cancellation(self, view: ViewSession, inside: trio.CancelScope) -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):  # the teardown has a time limit
                await view.tear_down("the host has closed the view", self._ended.is_set())
            inside.cancel("the view is torn down")

    async def _while_open(self, view: ViewSession, tell: Any) -> None:
        # A view may go at any time, and then no more can be told.
        with contextlib.suppress(TransportError):
            await tell(view)

    async def _tell_story(self, view: ViewSession) -> None:
        """Send what happens to the call: parts of the input, the input, and the result or the cancellation."""
        await view.initialized.wait()
        shown = None
        while self._input is None and self._outcome is None:
            if self._partial is not shown:
                shown = self._partial
                assert shown is not None
                await view.tell("ui/notifications/tool-input-partial", {"arguments": shown})
            else:
                await self._moved.wait()
        if self._input is not None:
            await view.tell("ui/notifications/tool-input", {"arguments": self._input})
        await self._ended.wait()
        if isinstance(self._outcome, ToolResult):
            await view.tell("ui/notifications/tool-result", self._outcome.to_wire())
        else:
            # A call that failed has no result either; the official host says so in the same way.
            await view.tell("ui/notifications/tool-cancelled", {"reason": _reason(self._outcome)})
        view.told.set()

    async def _tell_context(self, view: ViewSession) -> None:
        """Send each change of the context, with only what has changed."""
        await view.initialized.wait()
        while True:
            now = self._context.value.to_wire()
            changed = {name: value for name, value in now.items() if view.context.get(name) != value}
            if changed:
                view.context = view.context | changed
                await view.tell("ui/notifications/host-context-changed", changed)
            else:
                await self._context.wait_changed()

    async def _heed(self, view: ViewSession) -> None:
        """Tear the view down once it has asked for it, and the host has agreed."""
        await view.leaving.wait()
        await view.tear_down("the view has asked for it", self._ended.is_set())

    async def _fill_sandbox(self, view: ViewSession) -> None:
        """Give a sandbox proxy the page, once it is ready."""
        await view.sandbox_ready.wait()
        page = {"html": self.html, "csp": self.csp_domains, "permissions": self.permissions}
        await view.send_notification("ui/notifications/sandbox-resource-ready", page)

    async def teardown(self, reason: str = LEFT) -> None:
        """Tear the view down, if there is one: tell it, wait for its response, and close its session.

        Args:
            reason: The reason, for the view.

        This takes ``limits.teardown_wait`` seconds at most, and one more to close a link that is not read. If it is
        cancelled, the session is closed at once. `serve` then returns.
        """
        await trio.lowlevel.checkpoint()
        if self._view is not None:
            await self._view.tear_down(reason, self._ended.is_set())


def _reason(outcome: object) -> str:
    if isinstance(outcome, AppCallCancelled):
        return outcome.reason
    if isinstance(outcome, McpError):
        return outcome.message
    logger.warning("the call of a tool with a page failed: %s", outcome)
    # The text of any other error is for the host: it may tell of its connections.
    return "the call failed" if isinstance(outcome, TrioMcpError) else "the call failed in the host"
