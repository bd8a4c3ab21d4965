"""What a view asks for, and what a hostile one or a hostile server gets: each attack with a control (SEP-1865)."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import trio
import trio.testing

from tests.waiting import eventually
from trio_mcp import McpError, Server, types
from trio_mcp.extensions import AppHost, AppLimits, HostContext
from trio_mcp.extensions.apps.limits import Budget, problem_with
from trio_mcp.jsonrpc.messages import (
    Batch,
    ErrorData,
    ErrorResponse,
    Malformed,
    Notification,
    Request,
    Response,
    SessionMessage,
)
from trio_mcp.low_level import Link, memory_link_pair

from .test_host import html, raw_server
from .views import ERAS, HELLO, client_of, clock, shown

TEXT = {"type": "text", "text": "hello"}


# --- tools and resources -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("era", ERAS)
async def test_a_view_calls_the_tools_that_are_for_pages_and_no_others(era: str) -> None:
    """SEP-1865, Visibility: "Host MUST reject `tools/call` requests from apps for tools that don't include `"app"` in
    visibility"; without a visibility, a tool is for both."""
    server = clock()
    async with client_of(server, mode=era) as client, shown(AppHost(client, "show")) as scene:
        await scene.view.greet()
        called = await scene.view.send_request("tools/call", {"name": "now", "arguments": {}})
        assert called["content"] == [{"type": "text", "text": "3 o'clock"}]
        assert (await scene.view.send_request("tools/call", {"name": "plain"}))["content"][0]["text"] == "plain"
        for name in ("secret", "missing", ""):
            assert await scene.view.ask("tools/call", name=name) == -32602, name
        for params in ({}, {"name": 3}, {"name": "now", "arguments": []}):
            assert await scene.view.ask("tools/call", **params) == -32602, params
        assert await scene.view.ask("tools/call", name="fails") == -32050  # the server's own error, as it is
    assert "secret" not in server.called  # type: ignore[attr-defined]


async def test_a_tool_that_is_no_longer_for_pages_is_soon_refused(autojump_clock: trio.testing.MockClock) -> None:
    server = clock()
    async with client_of(server) as client, shown(AppHost(client, "show")) as scene:
        await scene.view.greet()
        assert await scene.view.ask("tools/call", name="now") != -32602
        server.remove_tool("now")
        server.add_tool(lambda: "", name="now", visibility=["model"])
        await trio.sleep(1.1)
        assert await scene.view.ask("tools/call", name="now") == -32602


async def test_of_two_tools_with_one_name_the_one_that_is_not_for_pages_counts() -> None:
    server = raw_server()
    called = []

    def tool() -> str:
        called.append(1)
        return ""

    server.add_tool(tool, name="twice")

    async def twin(context: Any, call_next: Any) -> Any:
        result = await call_next()
        if context.method == "tools/list":
            (own,) = [each for each in result["tools"] if each["name"] == "twice"]
            result["tools"].append(own | {"_meta": {"ui": {"visibility": ["model"]}}})
        return result

    doubling = Server("doubling", middleware=[twin])
    doubling.mount(server)
    async with client_of(doubling) as client, shown(AppHost(client, "t")) as scene:
        await scene.view.greet()
        assert await scene.view.ask("tools/call", name="twice") == -32602
    assert called == []


async def test_a_view_reads_resources_of_its_server() -> None:
    async with client_of(clock()) as client, shown(AppHost(client, "show")) as scene:
        await scene.view.greet()
        read = await scene.view.send_request("resources/read", {"uri": "time://zone"})
        assert read["contents"][0]["text"] == "UTC"
        assert await scene.view.ask("resources/read", uri="time://missing") == -32602
        assert await scene.view.ask("resources/read", uri=3) == -32602


@pytest.mark.parametrize(
    "method",
    [
        "ui/anything",
        "ui/resource-teardown",
        "tools/list",
        "resources/list",
        "prompts/get",
        "initialize",
        "server/discover",
        "sampling/createMessage",
        "subscriptions/listen",
        "tasks/get",
        "x" * 1000,
    ],
)
async def test_a_method_that_the_specification_does_not_list_goes_nowhere(method: str) -> None:
    """SEP-1865, Standard MCP Messages, and Sandbox proxy, 8: what begins with `ui/` never goes to the server."""
    passed: list[str] = []

    async def watch(context: Any, call_next: Any) -> Any:
        passed.append(context.method)
        return await call_next()

    async with client_of(clock(middleware=[watch])) as client, shown(AppHost(client, "show")) as scene:
        await scene.view.greet()
        await scene.view.hear("tool-result")
        passed.clear()
        assert await scene.view.ask(method, name="now", uri="time://zone") == -32601
        assert passed == []
        await scene.view.send_request("tools/call", {"name": "now"})  # the control
        assert "tools/call" in passed


# --- hooks ---------------------------------------------------------------------------------------------------------

ASKS: list[tuple[str, str, dict[str, Any], Any]] = [
    ("on_open_link", "ui/open-link", {"url": "https://a.example/x?y#z"}, ("https://a.example/x?y#z",)),
    ("on_message", "ui/message", {"role": "user", "content": TEXT}, ([types.TextContent(text="hello")],)),
    ("on_message", "ui/message", {"role": "user", "content": [TEXT]}, ([types.TextContent(text="hello")],)),
    (
        "on_model_context",
        "ui/update-model-context",
        {"content": [TEXT], "structuredContent": {"a": 1}},
        ([types.TextContent(text="hello")], {"a": 1}),
    ),
    ("on_model_context", "ui/update-model-context", {}, ([], None)),
    (
        "on_download_file",
        "ui/download-file",
        {"contents": [{"type": "resource_link", "uri": "time://zone", "name": "zone"}]},
        ([types.ResourceLink(uri="time://zone", name="zone")],),
    ),
]


@pytest.mark.parametrize(("hook", "method", "params", "expected"), ASKS)
async def test_a_host_refuses_without_a_hook_and_asks_it_otherwise(
    hook: str, method: str, params: dict[str, Any], expected: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """SEP-1865, MCP Apps Specific Messages: an empty result, or an error with -32000."""
    asked: list[Any] = []

    def fails(*_: Any) -> None:
        raise ZeroDivisionError("a secret")

    def refuses(*_: Any) -> None:
        raise McpError(-32077, "ask me later")

    async def agrees(*arguments: Any) -> None:
        asked.append(arguments)
        await trio.lowlevel.checkpoint()

    cases: list[tuple[Any, Any]] = [(None, -32000), (lambda *_: False, -32000), (fails, -32000), (refuses, -32077)]
    for own, outcome in [*cases, (agrees, {})]:
        settings: Any = {} if own is None else {hook: own}
        async with client_of(clock()) as client, shown(AppHost(client, "show", **settings)) as scene:
            declared = (await scene.view.greet())["hostCapabilities"]
            names = {"on_open_link": "openLinks", "on_message": "message", "on_download_file": "downloadFile"}
            assert (names.get(hook, "updateModelContext") in declared) is (own is not None)
            assert await scene.view.ask(method, **params) == outcome
    assert asked == [expected]
    assert "a secret" in caplog.text


@pytest.mark.parametrize(
    "url",
    [
        "javascript:alert(1)",
        "JAVASCRIPT:alert(1)",
        "file:///etc/passwd",
        "data:text/html,x",
        "https:",
        "https://",
        "https:///path",
        "//a.example",
        "ftp://a.example",
        " https://a.example",
        "https://a.example/\n",
        "java\nscript:alert(1)",
        "https://a.example\\@b.example",
        "https://[::1",
        "https://a.example/" + "x" * 9000,
        None,
        3,
    ],
)
async def test_only_web_addresses_reach_the_hook_for_links(url: Any) -> None:
    opened: list[str] = []
    async with client_of(clock()) as client, shown(AppHost(client, "show", on_open_link=opened.append)) as scene:
        await scene.view.greet()
        assert await scene.view.ask("ui/open-link", url=url) == -32000
        assert await scene.view.ask("ui/open-link", url="http://a.example") == {}
    assert opened == ["http://a.example"]


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("ui/message", {"content": TEXT}),
        ("ui/message", {"role": "assistant", "content": TEXT}),
        ("ui/message", {"role": "user"}),
        ("ui/message", {"role": "user", "content": [{"type": "text"}]}),
        ("ui/update-model-context", {"content": TEXT}),
        ("ui/update-model-context", {"structuredContent": [1]}),
        ("ui/download-file", {"contents": [TEXT]}),
        ("ui/download-file", {}),
    ],
)
async def test_malformed_content_does_not_reach_a_hook(method: str, params: dict[str, Any]) -> None:
    """SEP-1865, Auditable Communication: "Reject malformed message types"."""
    asked: list[Any] = []
    hooks: Any = dict.fromkeys(("on_message", "on_model_context", "on_download_file"), lambda *_: asked.append(1))
    async with client_of(clock()) as client, shown(AppHost(client, "show", **hooks)) as scene:
        await scene.view.greet()
        assert await scene.view.ask(method, **params) == -32000
    assert asked == []


@pytest.mark.parametrize(
    ("supports", "offers", "wants", "hook", "gets"),
    [
        (["inline", "pip"], ["inline", "pip"], "pip", lambda mode: mode, "pip"),
        (["inline", "pip"], ["inline", "pip"], "pip", lambda mode: None, "pip"),
        (["inline", "pip"], ["inline", "pip"], "pip", lambda mode: False, "inline"),
        (["inline", "pip"], ["inline", "pip"], "pip", lambda mode: "fullscreen", "inline"),
        (["inline", "pip"], ["inline", "pip"], "pip", None, "inline"),
        (["inline"], ["inline", "pip"], "pip", lambda mode: mode, "inline"),
        (["inline", "pip"], ["inline"], "pip", lambda mode: mode, "inline"),
        (None, ["inline", "pip"], "pip", lambda mode: mode, "pip"),
    ],
)
async def test_the_display_mode_is_one_that_both_sides_support(
    supports: Any, offers: list[str], wants: str, hook: Any, gets: str
) -> None:
    """SEP-1865, Display Modes: "Host MUST NOT switch the View to a display mode that does not appear in its
    `appCapabilities.availableDisplayModes`, if set", "Host MUST return the resulting mode (whether updated or not)"."""
    context = HostContext(display_mode="inline", available_display_modes=offers)
    settings: Any = {"context": context, "on_display_mode": hook}
    async with client_of(clock()) as client, shown(AppHost(client, "show", **settings)) as scene:
        await scene.view.greet(appCapabilities={} if supports is None else {"availableDisplayModes": supports})
        assert await scene.view.ask("ui/request-display-mode", mode=wants) == {"mode": gets}
        assert scene.host.context.display_mode == gets
        assert await scene.view.ask("ui/request-display-mode", mode="tab") == -32602
        if supports is not None:
            with pytest.raises(Exception, match="the view does not support the display mode 'fullscreen'"):
                scene.host.update_context(display_mode="fullscreen")
        await trio.testing.wait_all_tasks_blocked()
        changes = [params for method, params in scene.view.heard if method == "host-context-changed"]
        assert changes == ([{"displayMode": gets}] if gets != "inline" else [])


async def test_log_messages_and_sizes_reach_their_hooks_and_nonsense_does_not() -> None:
    logged, sizes = [], []
    settings: Any = {
        "on_log": lambda params: logged.append((params.level, params.data)),
        "on_size_changed": lambda width, height: sizes.append((width, height)),
    }
    async with client_of(clock()) as client, shown(AppHost(client, "show", **settings)) as scene:
        assert "logging" in (await scene.view.greet())["hostCapabilities"]
        for params in ({"level": "info", "data": 1}, {"level": "loud", "data": 2}, {}):
            await scene.view.send_notification("notifications/message", params)
        for width, height in ((1, 2.5), (-1, "tall"), (None, 1e12)):
            await scene.view.send_notification("ui/notifications/size-changed", {"width": width, "height": height})
        await scene.view.send_notification("ui/notifications/unknown", {})
        await scene.view.send_request("ping")
        await trio.testing.wait_all_tasks_blocked()
    assert logged == [("info", 1)]
    assert sizes == [(1, 2.5), (None, None), (None, None)]


@pytest.mark.parametrize("left_out", ["protocolVersion", "appInfo", "appCapabilities"])
async def test_a_view_must_say_who_it_is_and_what_it_can(left_out: str) -> None:
    """SEP-1865, App Capabilities: "it MUST include its capabilities in the `appCapabilities` field"."""
    async with client_of(clock()) as client, shown(AppHost(client, "show")) as scene:
        params = {name: value for name, value in HELLO.items() if name != left_out}
        assert await scene.view.ask("ui/initialize", **params) == -32602
        await scene.view.send_notification("ui/notifications/initialized")
        await trio.testing.wait_all_tasks_blocked()
        assert scene.view.heard == []
        assert (await scene.view.greet())["protocolVersion"] == "2026-01-26"
        await scene.view.hear("tool-result")


async def test_what_a_view_asks_for_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """SEP-1865, Auditable Communication: "Log View-initiated RPC calls for security review"."""
    caplog.set_level(logging.INFO, "trio_mcp")
    async with client_of(clock()) as client, shown(AppHost(client, "show")) as scene:
        await scene.view.greet()
        await scene.view.send_request("tools/call", {"name": "now"})
    assert "the page 'ui://clock/face' asks for 'tools/call'" in caplog.text


# --- floods and garbage --------------------------------------------------------------------------------------------


class Raw:
    """The view's end of a link, without a session: sends anything, and collects what comes."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self.got: list[Any] = []

    async def send(self, message: Any) -> None:
        await self._link.write.send(SessionMessage(message))

    async def collect(self) -> None:
        try:
            async for item in self._link.read:
                self.got.append(item.message)
        except trio.ClosedResourceError:
            pass

    def codes(self) -> list[int]:
        """Return the codes of the errors that have come."""
        return [each.error.code for each in self.got if isinstance(each, ErrorResponse)]


async def flood(limits: AppLimits, count: int, pause: float = 0.0, message: Any = None) -> tuple[Raw, bool]:
    """Let a view send many messages; return it, and whether it has been ended."""
    server = clock()
    async with (
        client_of(server) as client,
        AppHost(client, "show", limits=limits) as host,
        memory_link_pair() as (ours, theirs),
        trio.open_nursery() as nursery,
    ):
        raw, served = Raw(theirs), trio.Event()

        async def serve() -> None:
            await host.serve(ours)
            served.set()

        nursery.start_soon(serve)
        nursery.start_soon(raw.collect)
        await raw.send(Request(0, "ui/initialize", HELLO))
        await trio.testing.wait_all_tasks_blocked()
        try:
            for number in range(1, count + 1):
                await raw.send(Request(number, "ping") if message is None else message(number))
                await trio.sleep(pause)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        await trio.testing.wait_all_tasks_blocked()
        ended = served.is_set()
        await host.teardown()
        nursery.cancel_scope.cancel()
    return raw, ended


async def test_a_view_that_floods_is_refused_and_then_ended(
    autojump_clock: trio.testing.MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    """The control sends as many messages, but no faster than it may."""
    limits = AppLimits(rate=10, burst=20)
    raw, ended = await flood(limits, 1000)
    assert ended
    assert raw.codes() == [-31429] * 19
    assert "ending the view: the view has sent more than 10 messages a second" in caplog.text
    raw, ended = await flood(limits, 100, pause=0.1)
    assert (raw.codes(), ended) == ([], False)
    raw, ended = await flood(limits, 30)  # more than a burst, but not twice as many
    assert (raw.codes(), ended) == ([-31429] * 11, False)


async def test_a_flood_of_notifications_reaches_no_hook_beyond_the_limit(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """The teardown of such a view still completes, because its response is accepted."""
    logged: list[Any] = []
    limits = AppLimits(rate=0.001, burst=5)
    settings: Any = {"limits": limits, "on_log": lambda params: logged.append(params.data)}
    async with client_of(clock()) as client, shown(AppHost(client, "show", **settings)) as scene:
        await scene.view.greet()
        for number in range(5):
            await scene.view.send_notification("notifications/message", {"level": "info", "data": number})
        await scene.view.hear("tool-result")
        started = trio.current_time()
        await scene.host.teardown()
        assert trio.current_time() == started
    assert logged == [0, 1, 2]


async def test_calls_that_never_end_are_limited_in_number() -> None:
    """As many as may run, as many again that wait, and an error for the others."""
    server = clock()
    limits = AppLimits(max_calls=3)

    def call(number: int) -> Request:
        return Request(number, "tools/call", {"name": "never"})

    async with (
        client_of(server) as client,
        AppHost(client, "show", limits=limits) as host,
        memory_link_pair() as (ours, theirs),
        trio.open_nursery() as nursery,
    ):
        raw = Raw(theirs)
        nursery.start_soon(host.serve, ours)
        nursery.start_soon(raw.collect)
        await raw.send(Request(0, "ui/initialize", HELLO))
        for number in range(1, 11):
            await raw.send(call(number))
        called = ["show", "never", "never", "never"]
        await eventually(lambda: server.called == called)  # type: ignore[attr-defined]
        await raw.send(Notification("notifications/cancelled", {"requestId": 1}))
        called += ["never was cancelled", "never"]  # the fourth has its place
        await eventually(lambda: server.called == called)  # type: ignore[attr-defined]
        assert raw.codes() == [-31429] * 4
        await raw.send(Request(99, "ping"))  # is still answered
        await trio.testing.wait_all_tasks_blocked()
        assert Response(99, {}) in raw.got
        await host.teardown()
        nursery.cancel_scope.cancel()


async def test_a_view_that_does_not_read_holds_up_neither_the_call_nor_the_end(
    autojump_clock: trio.testing.MockClock,
) -> None:
    """Its link has room for 64 messages, and it asks for more than that."""
    server = clock()
    limits = AppLimits(rate=1e6, burst=10_000, teardown_wait=2.0)
    async with client_of(server) as client, memory_link_pair() as (ours, theirs), trio.open_nursery() as nursery:
        async with AppHost(client, "show", limits=limits) as host:
            nursery.start_soon(host.serve, ours)
            raw = Raw(theirs)
            await raw.send(Request(0, "ui/initialize", HELLO))
            await raw.send(Notification("ui/notifications/initialized"))
            for number in range(1, 1001):
                await raw.send(Request(number, "ping"))
            assert (await host.result()).structured_content == {"hour": 3}
            started = trio.current_time()
        assert trio.current_time() - started <= 3.5


def nested(depth: int) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for _ in range(depth):
        value = {"a": [value]}
    return value


@pytest.mark.parametrize(
    ("message", "code"),
    [
        (Malformed(-32700, "not JSON"), -32700),
        (Malformed(-32600, "no method", id=7), -32600),
        (Batch((Request(1, "ping"),)), -32600),
        (Request(1, "tools/call", {"name": "now", "arguments": {"a": "x" * 2000}}), -32600),
        (Request(1, "tools/call", {"name": "now", "arguments": nested(100)}), -32600),
        (Request(1, "tools/call", {"name": "now", "arguments": {"x" * 2000: 1}}), -32600),
        (Request(1, "tools/call", {"name": "now"}, size=1001), -32600),
        (Request(1, "tools/call", None), -32602),
    ],
)
async def test_garbage_is_answered_as_json_rpc_says_and_harms_nothing(message: Any, code: int) -> None:
    raw, ended = await flood(AppLimits(max_message=1000), 1, message=lambda number: message)
    assert (raw.codes(), ended) == ([code], False)


@pytest.mark.parametrize(
    "message",
    [
        Notification("notifications/message", {"level": "info", "data": nested(200)}),
        Notification("notifications/message", {"level": "info", "data": "x" * 2000}),
        Response(77, {}),
        ErrorResponse(77, ErrorData(1, "x")),
        Malformed(-32600, "a broken notification", expects_answer=False),
    ],
)
async def test_what_needs_no_response_is_dropped(message: Any) -> None:
    raw, ended = await flood(AppLimits(max_message=1000), 1, message=lambda number: message)
    assert (raw.codes(), ended) == ([], False)


async def test_garbage_without_an_end_ends_the_view() -> None:
    raw, ended = await flood(
        AppLimits(rate=1e6, burst=100_000), 1000, message=lambda number: Malformed(-32700, "not JSON")
    )
    assert ended
    assert raw.codes() == [-32700] * 99


def test_the_budget_refills_up_to_its_burst() -> None:
    budget = Budget(rate=10, burst=5)
    assert [budget.spend(0.0) for _ in range(11)] == ["take"] * 5 + ["refuse"] * 4 + ["end"] * 2
    budget = Budget(rate=10, burst=5)
    assert [budget.spend(0.0) for _ in range(5)] == ["take"] * 5
    assert [budget.spend(100.0) for _ in range(6)] == ["take"] * 5 + ["refuse"]


@pytest.mark.parametrize(
    ("params", "size", "problem"),
    [
        (None, 0, None),
        ({"a": "x" * 900}, 0, None),
        ({"a": "x" * 1100}, 0, "larger than 1000 bytes"),
        ({"a": "x" * 1100}, 900, None),  # a parsed message has its true size
        ({"a": ["x"] * 1100}, 0, "larger than 1000 bytes"),
        ({"a": [0] * 1100}, 0, "larger than 1000 bytes"),
        (nested(40), 10, None),
        (nested(60), 10, "more than 100 levels deep"),
    ],
)
def test_the_size_and_the_depth_of_a_message_are_measured(params: Any, size: int, problem: str | None) -> None:
    found = problem_with(params, size, 1000)
    assert found is None if problem is None else problem in (found or "")


# --- hostile servers -----------------------------------------------------------------------------------------------

HOSTILE: list[Any] = [
    "https://a; script-src *",
    "https://a.example\r\nSet-Cookie: x",
    "'unsafe-eval'",
    "*",
    "https://*",
    "data:",
    {"a": 1},
    None,
]


@pytest.mark.parametrize("field", ["connectDomains", "resourceDomains", "frameDomains", "baseUriDomains"])
async def test_a_hostile_policy_loses_what_is_not_an_origin(field: str, caplog: pytest.LogCaptureFixture) -> None:
    """SEP-1865, CSP Enforcement, for servers of other makers, which check nothing. The proper origin is the control."""
    ui = {"csp": {field: [*HOSTILE, "https://a.example"]}}
    async with client_of(raw_server(html("", ui=ui))) as client, AppHost(client, "t") as host:
        assert host.csp_domains == {field: ["https://a.example"]}
        assert len(host.refused_origins) == len(HOSTILE)
        assert host.csp.count("https://") == (5 if field == "resourceDomains" else 1)
        for part in ("unsafe-eval", "*", "\n", "Set-Cookie"):
            assert part not in host.csp
        assert (host.csp.count("script-src"), host.csp.count("data:")) == (1, 2)
    assert "declares origins that it does not get" in caplog.text


@pytest.mark.parametrize(
    "ui",
    [
        {"csp": "x", "permissions": "camera", "prefersBorder": "yes", "domain": 3},
        {"csp": {"connectDomains": "https://a.example"}, "permissions": ["camera"]},
        {"csp": {"connectDomains": {"https://a.example": 1}}, "permissions": {"camera": True, "usb": {}}},
        {"csp": None, "permissions": None},
    ],
)
async def test_malformed_metadata_counts_as_none(ui: Any) -> None:
    async with client_of(raw_server(html("", ui=ui))) as client, AppHost(client, "t") as host:
        assert (host.csp_domains, host.permissions, host.allow) == ({}, {}, "")
        assert (host.prefers_border, host.domain) == (None, None)


async def test_a_policy_has_a_maximum_number_of_origins() -> None:
    ui = {"csp": {"connectDomains": [f"https://a{number}.example" for number in range(1000)]}}
    async with client_of(raw_server(html("", ui=ui))) as client, AppHost(client, "t") as host:
        assert len(host.csp_domains["connectDomains"]) == 100
        assert len(host.refused_origins) == 100
