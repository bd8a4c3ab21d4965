"""`AppHost` and a view, state by state (SEP-1865, 2026-01-26: Lifecycle, MCP Apps Specific Messages)."""

from __future__ import annotations

import math
from typing import Any

import pytest
import trio
import trio.testing

from tests.injection import cancel_everywhere
from tests.waiting import eventually
from trio_mcp import Client, ClientGroup, LocalProtocolError, McpError, Server, types
from trio_mcp.extensions import AppCallCancelled, AppHost, AppLimits, AppPageError, Apps, Csp, HostContext
from trio_mcp.extensions.apps.context import STYLE_VARIABLES
from trio_mcp.low_level import memory_link_pair

from .views import ERAS, HELLO, View, client_of, clock, shown

MIME = "text/html;profile=mcp-app"


# --- the page ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
async def test_the_host_has_the_page_and_what_it_is_allowed(era: str) -> None:
    """SEP-1865, Content Security Policy Enforcement, and the ``allow`` attribute there."""
    async with client_of(clock(), mode=era) as client, AppHost(client, "show") as host:
        assert host.html == "<!doctype html><p>clock</p>"
        assert (host.uri, host.tool.name) == ("ui://clock/face", "show")
        assert host.csp_domains == {"connectDomains": ["https://time.example"]}
        assert "connect-src https://time.example;" in host.csp
        assert (host.permissions, host.allow) == ({"camera": {}}, "camera")
        assert (host.prefers_border, host.domain, host.refused_origins) == (True, None, ())
        assert (await host.result()).structured_content == {"hour": 3}


async def test_a_page_without_a_policy_gets_the_strictest() -> None:
    """SEP-1865, Host Behavior: "If `ui.csp` is omitted, Host MUST use" this."""
    strict = {
        "default-src 'none'",
        "script-src 'self' 'unsafe-inline'",
        "style-src 'self' 'unsafe-inline'",
        "img-src 'self' data:",
        "media-src 'self' data:",
        "connect-src 'none'",
    }
    directives = Csp().header().split("; ")
    assert strict <= set(directives)
    # "Block dangerous features (`object-src 'none'`)"; "otherwise use `frame-src 'none'`", "`base-uri 'self'`".
    assert {"object-src 'none'", "frame-src 'none'", "base-uri 'self'", "form-action 'none'"} <= set(directives)


def test_each_list_of_origins_goes_to_its_directives() -> None:
    """SEP-1865, McpUiResourceCsp: the directives that each list maps to, and no other."""
    lists = {"connect": "https://c", "resources": "https://r", "frames": "https://f", "base_uris": "https://b"}
    header = Csp(**{name: [origin] for name, origin in lists.items()}).header()  # type: ignore[arg-type]
    found = {
        origin: {each.partition(" ")[0] for each in header.split("; ") if origin in each} for origin in lists.values()
    }
    assert found == {
        "https://c": {"connect-src"},
        "https://r": {"img-src", "script-src", "style-src", "font-src", "media-src"},
        "https://f": {"frame-src"},
        "https://b": {"base-uri"},
    }


def raw_server(contents: Any = None, tool: Any = None, listed: Any = None) -> Server:
    """Return a server whose page has any contents and metadata."""
    server = Server("raw")
    ui = {"resourceUri": "ui://a"} if tool is None else tool
    server.add_tool(lambda: "", name="t", meta={"ui": ui} if isinstance(ui, dict) else ui)

    @server.resource("ui://a", name="a", mime_type=MIME, meta={"ui": listed} if listed else None)
    def page() -> Any:
        return "<!doctype html>" if contents is None else contents

    return server


def html(text: str = "", *, uri: str = "ui://a", mime: Any = MIME, ui: Any = None) -> types.TextResourceContents:
    meta = None if ui is None else {"ui": ui}
    return types.TextResourceContents(uri=uri, mime_type=mime, text=text, meta=meta)


@pytest.mark.parametrize(
    ("server", "says"),
    [
        (lambda: raw_server(html(mime="text/html")), "has the type 'text/html', and must have"),
        (lambda: raw_server(html(mime=None)), "has the type None, and must have"),
        (lambda: raw_server(html(uri="ui://b")), "those of another resource"),
        (lambda: raw_server(html("x" * 1001)), "has 1001 bytes; max_html=1000 is the limit"),
        (lambda: raw_server(html("é" * 600)), "has 1200 bytes"),
        (
            lambda: raw_server(types.BlobResourceContents(uri="ui://a", mime_type=MIME, blob="/w==")),
            "is not UTF-8 in Base64",
        ),
        (
            lambda: raw_server(types.BlobResourceContents(uri="ui://a", mime_type=MIME, blob="!")),
            "is not UTF-8 in Base64",
        ),
        (lambda: raw_server(tool={"resourceUri": "https://a"}), "which is not a ui:// URI"),
        (lambda: raw_server(tool={"resourceUri": 3}), "which is not a ui:// URI"),
        (lambda: raw_server(tool={"resourceUri": "ui://missing"}), "can't be read"),
        (lambda: raw_server(tool={"visibility": ["app"]}), "has no page"),
        (lambda: Server("empty"), "the server has no tool 't'"),
    ],
)
async def test_a_page_that_can_not_be_shown_is_refused_before_the_tool_is_called(server: Any, says: str) -> None:
    """SEP-1865, Content Requirements, and "Host MUST use `resources/read` to fetch the referenced resource URI"."""
    async with client_of(server()) as client:
        with pytest.raises(AppPageError, match=says):
            async with AppHost(client, "t", limits=AppLimits(max_html=1000)):
                pass


async def test_the_deprecated_form_of_the_page_and_a_page_in_base64_are_understood() -> None:
    """SEP-1865, Resource Discovery, deprecation notice: "will be removed before GA"; hosts still read it."""
    blob = types.BlobResourceContents(uri="ui://a", mime_type=MIME, blob="PHA+")
    server = raw_server(blob)
    server.add_tool(lambda: "", name="old", meta={"ui/resourceUri": "ui://a"})
    async with client_of(server) as client:
        for name in ("t", "old"):
            async with AppHost(client, name) as host:
                assert host.html == "<p>"


async def test_metadata_of_the_contents_comes_before_that_of_the_list() -> None:
    """The draft has it in both places, and the contents win."""
    listed = {"csp": {"connectDomains": ["https://list.example"]}}
    own = {"csp": {"connectDomains": ["https://own.example"]}}
    for ui, origin in ((own, "https://own.example"), (None, "https://list.example")):
        async with client_of(raw_server(html("", ui=ui), listed=listed)) as client, AppHost(client, "t") as host:
            assert host.csp_domains == {"connectDomains": [origin]}


async def test_the_host_may_refuse_origins_and_permissions_but_adds_none() -> None:
    """SEP-1865, No Loosening: "Host MAY further restrict but MUST NOT allow undeclared domains"."""
    asked = {"camera": {}, "microphone": {}, "clipboardWrite": {}, "geolocation": True, "midi": {}}
    ui = {"csp": {"connectDomains": ["https://a.example", "https://b.example"]}, "permissions": asked}
    async with client_of(raw_server(html("", ui=ui))) as client:
        async with AppHost(client, "t") as host:
            assert host.allow == "camera; microphone; clipboard-write"
        settings: Any = {"grant": ["geolocation", "camera"], "allow_origin": lambda each: "a" in each[:10]}
        async with AppHost(client, "t", **settings) as host:
            assert (host.allow, host.permissions) == ("camera", {"camera": {}})
            assert host.csp_domains == {"connectDomains": ["https://a.example"]}
            assert host.refused_origins == ("'https://b.example'",)


async def test_a_client_without_the_extension_can_not_show_pages() -> None:
    async with Client(clock()) as client:
        with pytest.raises(LocalProtocolError, match=r"without the extension 'io\.modelcontextprotocol/ui'"):
            async with AppHost(client, "show"):
                pass


# --- the order of messages -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
async def test_nothing_is_sent_before_the_view_is_initialized(era: str) -> None:
    """SEP-1865, Sandbox proxy, 6: "The Host MUST NOT send any request or notification to the View before it receives an
    `initialized` notification"."""
    async with client_of(clock(), mode=era) as client, shown(AppHost(client, "show")) as scene:
        await scene.host.result()
        scene.host.update_context(theme="dark")
        hello = await scene.view.send_request("ui/initialize", HELLO)
        scene.host.update_context(theme="light")
        await trio.testing.wait_all_tasks_blocked()
        assert scene.view.heard == []
        assert hello["hostContext"]["theme"] == "dark"
        await scene.view.send_notification("ui/notifications/initialized")
        await scene.view.hear("tool-result")
        assert await scene.view.hear("host-context-changed") == {"theme": "light"}


async def test_an_initialized_notification_without_initialize_counts_for_nothing() -> None:
    async with client_of(clock()) as client, shown(AppHost(client, "show")) as scene:
        await scene.view.send_notification("ui/notifications/initialized")
        await trio.testing.wait_all_tasks_blocked()
        assert scene.view.heard == []
        assert await scene.view.ask("tools/call", name="now") == -32600
        await scene.view.greet()
        await scene.view.hear("tool-result")


async def test_a_view_that_leaves_before_it_is_initialized_hears_nothing() -> None:
    """Not even of its teardown."""
    async with client_of(clock()) as client, shown(AppHost(client, "show")) as scene:
        await scene.view.send_request("ui/initialize", HELLO)
        await scene.host.teardown()
        assert scene.view.heard == []


@pytest.mark.parametrize("era", ERAS)
async def test_the_input_comes_once_and_before_the_result(era: str) -> None:
    """SEP-1865, tool-input: "Host MUST send this notification with the complete tool arguments", "at most once and is
    required before sending `ui/notifications/tool-result`"; tool-result: "Host MUST send this notification when tool
    execution completes"."""
    async with client_of(clock(), mode=era) as client, shown(AppHost(client, "show", {"zone": "X"})) as scene:
        await scene.view.greet()
        result = await scene.view.hear("tool-result")
        await scene.view.greet()  # a page that is loaded again
        await trio.testing.wait_all_tasks_blocked()
        assert scene.view.methods == ["tool-input", "tool-result"]
        assert scene.view.heard[0][1] == {"arguments": {"zone": "X"}}
        assert result["structuredContent"] == {"hour": 3}


async def test_a_call_without_arguments_has_empty_ones() -> None:
    async with client_of(clock()) as client, shown(AppHost(client, "show")) as scene:
        await scene.view.greet()
        assert await scene.view.hear("tool-input") == {"arguments": {}}


async def test_parts_of_the_input_come_before_it_and_never_after() -> None:
    """SEP-1865, tool-input-partial: "before `ui/notifications/tool-input` is sent", "MUST stop sending once
    `ui/notifications/tool-input` is sent with complete arguments"."""
    async with client_of(clock()) as client, shown(AppHost(client, "show", streamed=True)) as scene:
        host, view = scene.host, scene.view
        host.partial_input({"zone": ""})  # this one is never seen: it is replaced before the view is ready
        host.partial_input({"zone": "U"})
        await view.greet()
        await view.hear("tool-input-partial")
        host.partial_input({"zone": "UT"})
        await trio.testing.wait_all_tasks_blocked()
        host.complete_input({"zone": "UTC"})
        with pytest.raises(LocalProtocolError, match="are complete"):
            host.partial_input({"zone": "UTC+"})
        with pytest.raises(LocalProtocolError, match="are complete"):
            host.complete_input({})
        await view.hear("tool-result")
        inputs = [(method, params["arguments"]["zone"]) for method, params in view.heard[:-1]]
        assert inputs == [("tool-input-partial", "U"), ("tool-input-partial", "UT"), ("tool-input", "UTC")]


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_cancelled_call_says_why(streamed: bool) -> None:
    """SEP-1865, tool-cancelled: "Host MUST send this notification if the tool execution was cancelled, for any
    reason"."""
    server = clock()
    async with client_of(server) as client, shown(AppHost(client, "never", streamed=streamed)) as scene:
        await scene.view.greet()
        await eventually(lambda: streamed or server.called == ["never"])  # type: ignore[attr-defined]
        await trio.testing.wait_all_tasks_blocked()
        scene.host.cancel("user action")
        scene.host.cancel("another reason")
        assert await scene.view.hear("tool-cancelled") == {"reason": "user action"}
        assert scene.view.methods == (["tool-cancelled"] if streamed else ["tool-input", "tool-cancelled"])
        with pytest.raises(AppCallCancelled, match="the call of the tool was cancelled: user action"):
            await scene.host.result()
        with pytest.raises(LocalProtocolError):
            scene.host.complete_input({})
    assert server.called == ([] if streamed else ["never", "never was cancelled"])  # type: ignore[attr-defined]


async def test_a_call_that_fails_by_an_error_has_no_result_either() -> None:
    """The specification has no message for it; the official host sends tool-cancelled with the error's text."""
    async with client_of(clock()) as client, shown(AppHost(client, "fails")) as scene:
        await scene.view.greet()
        assert await scene.view.hear("tool-cancelled") == {"reason": "the clock has stopped"}
        for _ in range(2):
            with pytest.raises(McpError, match="the clock has stopped"):
                await scene.host.result()


async def test_a_view_that_comes_later_gets_input_and_result_too() -> None:
    async with client_of(clock()) as client, AppHost(client, "show") as host:
        for _ in range(2):
            async with trio.open_nursery() as nursery, memory_link_pair(encode=True) as (ours, theirs):
                nursery.start_soon(host.serve, ours)
                async with View(theirs) as view:
                    await view.greet()
                    await view.hear("tool-result")
                    with pytest.raises(LocalProtocolError, match="serves another view already"):
                        await host.serve(ours)
                    await host.teardown()
    await host.serve(ours)  # a task that begins too late


# --- teardown ------------------------------------------------------------------------------------------------------


async def test_the_view_is_told_before_it_is_torn_down_and_waited_for() -> None:
    """SEP-1865, ui/resource-teardown: "Host MUST send this notification before tearing down the UI resource, for any
    reason", "SHOULD wait for a response"."""
    async with client_of(clock()) as client, shown(AppHost(client, "show")) as scene:
        await scene.view.greet()
        await scene.host.teardown("resource re-allocation")
        await scene.served.wait()
        assert await scene.view.hear("resource-teardown") == {"reason": "resource re-allocation"}


@pytest.mark.parametrize("way", ["leaving", "cancelling the block", "cancelling serve", "an exception"])
async def test_the_view_is_torn_down_however_the_host_ends(way: str) -> None:
    """The call of the tool is cancelled, and the view is told of both, in this order."""
    server = clock()
    async with client_of(server) as client, memory_link_pair(encode=True) as (ours, theirs), View(theirs) as view:
        serving, block = trio.CancelScope(), trio.CancelScope()

        async def serve(host: AppHost) -> None:
            with serving:
                await host.serve(ours)

        try:
            async with trio.open_nursery() as nursery:
                with block:
                    async with AppHost(client, "never") as host:
                        nursery.start_soon(serve, host)
                        await view.greet()
                        await view.hear("tool-input")
                        await eventually(lambda: server.called == ["never"])  # type: ignore[attr-defined]
                        if way == "cancelling the block":
                            block.cancel()
                            await trio.sleep_forever()
                        if way == "cancelling serve":
                            serving.cancel()
                            await view.hear("resource-teardown")
                        if way == "an exception":
                            raise ZeroDivisionError
        except* ZeroDivisionError:
            assert way == "an exception"
        told = ["tool-input", "tool-cancelled", "resource-teardown"]
        assert view.methods == (["tool-input", "resource-teardown"] if way == "cancelling serve" else told)
    assert server.called == ["never", "never was cancelled"]  # type: ignore[attr-defined]


async def test_a_view_that_never_responds_delays_the_end_by_a_bounded_time(
    autojump_clock: trio.testing.MockClock,
) -> None:
    limits = AppLimits(teardown_wait=3.0)
    async with client_of(clock()) as client, shown(AppHost(client, "show", limits=limits)) as scene:
        scene.view.stubborn = True
        await scene.view.greet()
        await scene.view.hear("tool-result")
        started = trio.current_time()
        await scene.host.teardown()
        assert trio.current_time() - started == pytest.approx(3.0)


async def test_a_view_may_ask_for_its_teardown_if_the_host_has_a_hook() -> None:
    """Draft, request-teardown: "Host MAY defer or ignore the teardown request", "MUST follow the graceful termination
    process"."""
    for hook, obeyed in ((None, False), (lambda: False, False), (lambda: True, True), (lambda: None, True)):
        settings: Any = {"on_request_teardown": hook}
        async with client_of(clock()) as client, shown(AppHost(client, "show", **settings)) as scene:
            await scene.view.greet()
            await scene.view.hear("tool-result")
            await scene.view.send_notification("ui/notifications/request-teardown", {})
            await trio.testing.wait_all_tasks_blocked()
            assert ("resource-teardown" in scene.view.methods) is obeyed
            assert scene.served.is_set() is obeyed


async def test_a_view_that_disappears_ends_only_its_own_serving() -> None:
    async with client_of(clock()) as client, AppHost(client, "show") as host:
        async with trio.open_nursery() as nursery, memory_link_pair() as (ours, theirs):
            nursery.start_soon(host.serve, ours)
            async with View(theirs) as view:
                await view.greet()
        assert (await host.result()).structured_content == {"hour": 3}


async def test_cancelled_anywhere_it_leaves_a_client_that_works(autojump_clock: trio.testing.MockClock) -> None:
    """The scenario is that of a whole view, with its teardown."""
    server = clock()
    async with client_of(server) as client:

        async def scenario() -> None:
            async with shown(AppHost(client, "show"), encode=False) as scene:
                await scene.view.greet()
                await scene.view.hear("tool-result")

        async def works() -> None:
            assert (await client.call_tool("now")).text == "3 o'clock"
            assert client.statistics().session.outgoing == 0  # type: ignore[union-attr]

        assert await cancel_everywhere(scenario, works) > 30


# --- the context of the host ---------------------------------------------------------------------------------------


async def test_the_whole_context_is_told_at_first_and_then_only_what_changes() -> None:
    """SEP-1865, Host Context, and host-context-changed: "partial updates"."""
    context = HostContext(
        theme="dark",
        style_variables={"--font-sans": "Inter"},
        fonts="@import url('https://f.example')",
        display_mode="inline",
        available_display_modes=["inline", "pip"],
        width=400,
        max_height=600,
        locale="en-US",
        time_zone="Europe/Berlin",
        user_agent="host",
        platform="web",
        touch=False,
        hover=True,
        safe_area=(1, 2, 3, 4),
    )
    wire = {
        "theme": "dark",
        "styles": {"variables": {"--font-sans": "Inter"}, "css": {"fonts": "@import url('https://f.example')"}},
        "displayMode": "inline",
        "availableDisplayModes": ["inline", "pip"],
        "containerDimensions": {"width": 400, "maxHeight": 600},
        "locale": "en-US",
        "timeZone": "Europe/Berlin",
        "userAgent": "host",
        "platform": "web",
        "deviceCapabilities": {"touch": False, "hover": True},
        "safeAreaInsets": {"top": 1, "right": 2, "bottom": 3, "left": 4},
    }
    info = types.Implementation(name="desk", version="2")
    settings: Any = {"context": context, "host_info": info}
    async with client_of(clock()) as client, shown(AppHost(client, "show", **settings)) as scene:
        hello = await scene.view.greet()
        tool = hello["hostContext"].pop("toolInfo")["tool"]
        assert hello["hostContext"] == wire
        assert tool["name"] == "show"
        assert "inputSchema" in tool
        assert (hello["protocolVersion"], hello["hostInfo"]) == ("2026-01-26", {"name": "desk", "version": "2"})
        scene.host.update_context(theme="dark", max_height=700)
        assert await scene.view.hear("host-context-changed") == {
            "containerDimensions": {"width": 400, "maxHeight": 700}
        }
        scene.host.update_context(theme="dark")  # nothing changes
        await trio.testing.wait_all_tasks_blocked()
        assert scene.view.methods.count("host-context-changed") == 1
        assert scene.host.context.max_height == 700


@pytest.mark.parametrize(
    ("values", "error", "says"),
    [
        ({"theme": "blue"}, ValueError, "theme"),
        ({"platform": "tv"}, ValueError, "platform"),
        ({"display_mode": "tab"}, ValueError, "display_mode"),
        ({"available_display_modes": ["tab"]}, ValueError, "available_display_modes"),
        ({"available_display_modes": "inline"}, TypeError, "must be a list of modes"),
        ({"width": -1}, ValueError, "width must be a length"),
        ({"height": math.inf}, ValueError, "height must be a length"),
        ({"width": 1, "max_width": 2}, ValueError, "exclude each other"),
        ({"touch": 1}, TypeError, "touch"),
        ({"locale": 1}, TypeError, "locale"),
        ({"safe_area": (1, 2, 3)}, TypeError, "must be a tuple"),
        ({"style_variables": {"--mine": "1"}}, ValueError, "'--mine' is not one of the variables"),
        ({"style_variables": "x"}, TypeError, "must map"),
        ({"colour": "red"}, TypeError, "colour"),
    ],
)
async def test_a_mistake_in_the_context_changes_nothing(values: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error, match=says):
        HostContext(**values)
    async with client_of(clock()) as client, AppHost(client, "show") as host:
        with pytest.raises(error, match=says):
            host.update_context(**values)
        assert host.context == HostContext()


def test_there_are_as_many_style_variables_as_the_specification_lists() -> None:
    """SEP-1865, Current Standardized Variables: the official SDK refuses any other name."""
    assert len(STYLE_VARIABLES) == 76
    assert {"--color-text-ghost", "--font-heading-3xl-line-height", "--shadow-hairline"} <= STYLE_VARIABLES


# --- the arguments -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "settings", "error", "says"),
    [
        (["client"], {}, TypeError, "must be a Client or a ClientGroup"),
        ([None, "show", {"zone": object()}], {}, TypeError, "arguments of 'show'"),
        ([None, "show", ["zone"]], {}, TypeError, "arguments must be a mapping"),
        ([None, 3], {}, TypeError, "a tool's name must be a string"),
        ([None, "show", {}], {"streamed": True}, ValueError, "the arguments come later"),
        ([None, "show"], {"on_link": print}, TypeError, "unexpected keyword argument 'on_link'"),
        ([None, "show"], {"on_open_link": "print"}, TypeError, "on_open_link must be callable"),
        ([None, "show"], {"context": {}}, TypeError, "context must be a HostContext"),
        ([None, "show"], {"grant": ["midi"]}, ValueError, "'midi' is not a permission"),
        ([None, "show"], {"limits": {}}, TypeError, "limits must be an AppLimits"),
    ],
)
def test_invalid_arguments_are_refused_at_once(
    arguments: list[Any], settings: Any, error: type[Exception], says: str
) -> None:
    whole = [client_of(clock()) if each is None else each for each in arguments]
    with pytest.raises(error, match=says):
        AppHost(*whole[:1], *(whole[1:] or ["show"]), **settings)


async def test_outside_its_block_a_host_has_neither_page_nor_result() -> None:
    async with client_of(clock()) as client:
        host = AppHost(client, "show")
        for name in ("html", "csp", "tool", "permissions"):
            with pytest.raises(LocalProtocolError, match="only inside"):
                getattr(host, name)
        with pytest.raises(LocalProtocolError, match="only inside"):
            await host.result()
        async with host:
            pass
        with pytest.raises(LocalProtocolError, match="entered only once"):
            async with host:
                pass


async def test_the_limits_of_the_call_are_those_that_were_given(autojump_clock: trio.testing.MockClock) -> None:
    async with client_of(clock()) as client, shown(AppHost(client, "never", call={"timeout": 2})) as scene:
        await scene.view.greet()
        assert await scene.view.hear("tool-cancelled") == {"reason": "the call failed"}


# --- visibility, and groups ----------------------------------------------------------------------------------------


async def test_a_host_can_leave_out_the_tools_that_are_not_for_the_model() -> None:
    """SEP-1865, Visibility: "Host MUST NOT include tools in the agent's tool list when their visibility does not
    include `"model"`"."""
    hostile = Server("hostile")
    for name, visibility in (("word", "app"), ("none", []), ("number", 3)):
        hostile.add_tool(lambda: "", name=name, meta={"ui": {"visibility": visibility}})
    hostile.add_tool(lambda: "", name="odd", meta={"ui": "?"})
    async with client_of(clock()) as client:
        model = ["show", "never", "fails", "secret", "plain"]
        assert [tool.name for tool in await client.list_tools(audience="model")] == model
        assert [tool.name async for tool in client.iter_tools(audience="model")] == model
        assert [t.name async for t in client.iter_tools(audience="app")] == ["show", "never", "fails", "now", "plain"]
        assert len((await client.list_tools()).tools) == 6
        with pytest.raises(ValueError, match="audience must be 'model', 'app' or None, got 'user'"):
            await client.list_tools(audience="user")  # type: ignore[arg-type]
    async with ClientGroup({"c": clock(), "h": hostile}, extensions=[Apps()]) as group:
        listed = await group.list_tools(audience="model")
        assert [tool.name for tool in listed] == [*(f"c__{name}" for name in model), "h__odd"]
        assert len(await group.list_tools()) == 10


async def test_a_page_in_a_group_reaches_its_own_server_alone() -> None:
    """SEP-1865, Visibility: "callable by the app from the same server connection only", "Cross-server tool calls are
    always blocked"."""
    other = Server("other")

    @other.tool
    def steal() -> str:
        raise AssertionError

    other.add_resource("other://secret", lambda: "secret", name="secret")
    servers: Any = {"clock": clock(), "other": other}
    async with ClientGroup(servers, extensions=[Apps()]) as group:
        (tool,) = [each for each in await group.list_tools() if each.name == "clock__show"]
        async with shown(AppHost(group, tool)) as scene:
            await scene.view.greet()
            assert await scene.view.ask("tools/call", name="now") != -32602
            for name in ("steal", "other__steal", "clock__now"):
                assert await scene.view.ask("tools/call", name=name) == -32602, name
            assert await scene.view.ask("resources/read", uri="time://zone") != -32602
            assert await scene.view.ask("resources/read", uri="other://secret") == -32602
            await group.remove("clock")
            await group.add("clock", clock())
            assert await scene.view.ask("tools/call", name="now") == -32000  # its own connection has been closed
        with pytest.raises(LocalProtocolError, match="has no tool or prompt"):
            async with AppHost(group, "missing__show"):
                pass


async def test_a_sandbox_proxy_gets_the_page_when_it_is_ready() -> None:
    """SEP-1865, Sandbox proxy, 4: "Once the Sandbox is ready, the Host MUST send the raw HTML resource to load in a
    `ui/notifications/sandbox-resource-ready` notification"."""
    for sandbox in (True, False):
        async with client_of(clock()) as client, shown(AppHost(client, "show"), sandbox=sandbox) as scene:
            await scene.view.send_notification("ui/notifications/sandbox-proxy-ready", {})
            await trio.testing.wait_all_tasks_blocked()
            page = {
                "html": scene.host.html,
                "csp": {"connectDomains": ["https://time.example"]},
                "permissions": {"camera": {}},
            }
            assert scene.view.heard == ([("sandbox-resource-ready", page)] if sandbox else [])
