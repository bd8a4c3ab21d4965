"""The official view SDK in headless Chromium, inside `AppHost`: twelve journeys, and what a page can't reach."""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import attrs
import pytest
import trio

from examples import clock
from tests.waiting import eventually
from trio_mcp import Client, McpError, Server
from trio_mcp.extensions import AppHost, Apps, Csp, HostContext

from .app_frames import Frames, bundled_sdk
from .node_peers import NodePeers
from .support import DEADLINE

pytestmark = pytest.mark.chromium

VIEW = r"""<!doctype html>
<body style="margin: 0"><div id="box" style="height: 120px">clock</div>
<script type="module">
%s
const app = new App({ name: "view", version: "1" }, { availableDisplayModes: ["inline", "fullscreen"] });
const note = (logger, data) => app.sendLog({ level: "info", logger, data });
const attempt = async (logger, act) => {
  try {
    note(logger, { done: (await act()) ?? null });
  } catch (error) {
    note(logger, { failed: `${error}`, code: error.code ?? null });
  }
};
const origin = "%s";
const attacks = {
  parent: () => parent.document.title,
  top: () => top.token,
  storage: () => localStorage.getItem("token") ?? "readable",
  cookie: () => document.cookie,
  fetch: () => fetch(`${origin}/stolen-by-fetch`, { mode: "no-cors" }).then(() => "sent"),
  image: () => new Promise((resolve, reject) => {
    const image = new Image();
    image.onload = image.onerror = () => resolve("tried");
    image.src = `${origin}/stolen-by-image`;
  }),
  script: () => new Promise((resolve, reject) => {
    const script = document.createElement("script");
    script.onload = script.onerror = () => resolve("tried");
    script.src = `${origin}/stolen-by-script`;
    document.head.append(script);
  }),
  frame: () => {
    const frame = document.createElement("iframe");
    frame.src = `${origin}/stolen-by-frame`;
    document.body.append(frame);
  },
};
const acts = {
  call: () => app.callServerTool({ name: "now", arguments: { zone: "UTC" } }),
  modelOnly: () => app.callServerTool({ name: "secret", arguments: {} }),
  fails: () => app.callServerTool({ name: "fails", arguments: {} }),
  resource: () => app.readServerResource({ uri: "time://zone" }),
  link: () => app.openLink({ url: "https://time.example/" }),
  badLink: () => app.openLink({ url: "javascript:alert(1)" }),
  message: () => app.sendMessage({ role: "user", content: [{ type: "text", text: "What time is it?" }] }),
  context: () => app.updateModelContext({ structuredContent: { hour: 3 } }),
  mode: () => app.requestDisplayMode({ mode: "fullscreen" }),
  leave: () => app.requestTeardown(),
  resize: () => { document.getElementById("box").style.height = "240px"; },
};
app.ontoolinputpartial = (params) => note("partial", params);
app.ontoolinput = async (params) => {
  note("input", params);
  for (const act of params.arguments.acts ?? []) await attempt(act, acts[act]);
  if (params.arguments.attack) {
    for (const [name, act] of Object.entries(attacks)) await attempt(name, act);
    location.href = `${origin}/stolen-by-navigation`;
  }
};
app.ontoolresult = (params) => note("result", params);
app.ontoolcancelled = (params) => note("cancelled", params);
app.onhostcontextchanged = (params) => note("changed", params);
app.onteardown = async (params) => {
  await note("teardown", params);
  return {};
};
await app.connect();
note("hello", { host: app.getHostVersion(), can: app.getHostCapabilities(), context: app.getHostContext() });
</script>
"""


@attrs.frozen
class Journey:
    """A view that is shown, and what it has noted.

    Attributes:
        host: The host.
        noted: What the view has noted, by kind, in order.
        sizes: The sizes that the host was told.
        asked: What the hooks were called with.
    """

    host: AppHost
    noted: list[tuple[str, Any]]
    sizes: list[tuple[float | None, float | None]]
    asked: list[Any]

    async def note(self, kind: str) -> Any:
        """Wait for the first note of a kind, and return it."""
        await eventually(lambda: any(each == kind for each, _ in self.noted))
        return next(data for each, data in self.noted if each == kind)


@attrs.define
class Stage:
    """The browser, and a client of the server whose page it shows."""

    frames: Frames
    client: Client

    @contextlib.asynccontextmanager
    async def show(self, tool: str = "show", **settings: Any) -> AsyncIterator[Journey]:
        """Show the page of a tool; the settings are those of `AppHost`, and ``arguments``."""
        arguments = settings.pop("arguments", None)
        noted: list[tuple[str, Any]] = []
        sizes: list[tuple[float | None, float | None]] = []
        async with (
            trio.open_nursery() as nursery,
            AppHost(
                self.client,
                tool,
                arguments,
                on_log=lambda params: noted.append((params.logger or "", params.data)),
                on_size_changed=lambda width, height: sizes.append((width, height)),
                **settings,
            ) as host,
            self.frames.link(host) as link,
        ):
            served = trio.Event()

            async def serve() -> None:
                await host.serve(link, sandbox=True)
                served.set()

            nursery.start_soon(serve)
            yield Journey(host, noted, sizes, [])
            await host.teardown("the journey is over")
            await served.wait()


@pytest.fixture
async def stage(npm: NodePeers) -> AsyncIterator[Stage]:
    """Yield the browser, with a server that has one page."""
    apps = Apps()
    server = Server("clock", extensions=[apps])
    frames = Frames()
    sdk = bundled_sdk(npm.modules)

    @apps.page("ui://clock/face", csp=Csp(connect=["https://time.example"]), permissions=["clipboardWrite"])
    def face() -> str:
        return VIEW % (sdk, frames.origin)

    @server.tool(app="ui://clock/face")
    async def show(acts: list[str] | None = None, attack: bool = False, zone: str = "") -> dict[str, int]:
        return {"hour": 3}

    @server.tool(app="ui://clock/face")
    async def never(acts: list[str] | None = None) -> str:
        await trio.sleep_forever()
        raise AssertionError

    @server.tool(app="ui://clock/face")
    async def fails(acts: list[str] | None = None) -> str:
        raise McpError(-32050, "the clock has stopped")

    @server.tool(visibility=["app"])
    async def now(zone: str) -> str:
        return f"3 o'clock in {zone}"

    @server.tool(visibility=["model"])
    async def secret() -> str:
        return "secret"

    @server.resource("time://zone")
    def zone() -> str:
        return "UTC"

    with trio.fail_after(DEADLINE):
        async with frames.open(), Client(server, extensions=[Apps()]) as client:
            yield Stage(frames, client)


async def input_and_result(stage: Stage) -> None:
    """1 and 2: the input once, then the result."""
    async with stage.show(arguments={"zone": "UTC"}) as journey:
        result = await journey.note("result")
        assert await journey.note("input") == {"arguments": {"zone": "UTC"}}
        assert result["structuredContent"] == {"hour": 3}
        hello = await journey.note("hello")
        assert hello["host"]["name"] == "trio_mcp"
        assert hello["context"]["toolInfo"]["tool"]["name"] == "show"
        kinds = [kind for kind, _ in journey.noted]
        assert kinds.index("input") < kinds.index("result")
        assert kinds.count("input") == 1


async def partial_input(stage: Stage) -> None:
    """3: parts of the input come before it."""
    async with stage.show(streamed=True) as journey:
        journey.host.partial_input({"zone": "U"})
        assert await journey.note("partial") == {"arguments": {"zone": "U"}}
        journey.host.complete_input({"zone": "UTC"})
        assert await journey.note("input") == {"arguments": {"zone": "UTC"}}
        await journey.note("result")


async def cancellation(stage: Stage) -> None:
    """4: a cancelled call, with its reason."""
    async with stage.show("never") as journey:
        await journey.note("input")
        journey.host.cancel("user action")
        assert await journey.note("cancelled") == {"reason": "user action"}


async def error(stage: Stage) -> None:
    """5: a call that fails by a JSON-RPC error has no result either; errors come back to a page that calls."""
    async with stage.show("fails", arguments={"acts": ["fails", "modelOnly", "badLink"]}) as journey:
        assert await journey.note("cancelled") == {"reason": "the clock has stopped"}
        assert (await journey.note("fails"))["code"] == -32050
        assert (await journey.note("modelOnly"))["code"] == -32602
        assert (await journey.note("badLink"))["code"] == -32000


async def calls_and_resources(stage: Stage) -> None:
    """6 and 7: a call back, and a resource."""
    async with stage.show(arguments={"acts": ["call", "resource"]}) as journey:
        called = await journey.note("call")
        assert called["done"]["content"] == [{"type": "text", "text": "3 o'clock in UTC"}]
        read = await journey.note("resource")
        assert read["done"]["contents"][0]["text"] == "UTC"


async def links_and_messages(stage: Stage) -> None:
    """8 and 9: a link and a message, to hooks; without hooks, the host refuses."""
    asked: list[Any] = []
    hooks: dict[str, Any] = {
        "on_open_link": asked.append,
        "on_message": lambda blocks: asked.append([block.text for block in blocks]),
        "on_model_context": lambda blocks, structured: asked.append(structured),
    }
    acts = ["link", "message", "context"]
    async with stage.show(arguments={"acts": acts}, **hooks) as journey:
        for act in acts:
            assert "done" in await journey.note(act)
        assert asked == ["https://time.example/", ["What time is it?"], {"hour": 3}]
        assert "openLinks" in (await journey.note("hello"))["can"]
    async with stage.show(arguments={"acts": acts}) as journey:
        for act in acts:
            assert "failed" in await journey.note(act)
        assert "openLinks" not in (await journey.note("hello"))["can"]


async def size(stage: Stage) -> None:
    """10: the size of the content, again when it changes."""
    async with stage.show(arguments={"acts": ["resize"]}) as journey:
        await eventually(lambda: any(height == 240 for _, height in journey.sizes))


async def theme(stage: Stage) -> None:
    """11: the theme at first, its change, and a display mode that the page asks for."""
    context = HostContext(
        theme="dark",
        style_variables={"--color-text-primary": "#fafafa"},
        display_mode="inline",
        available_display_modes=["inline", "fullscreen"],
        max_height=600,
    )
    settings: dict[str, Any] = {"context": context, "on_display_mode": lambda mode: mode}
    async with stage.show(arguments={"acts": ["mode"]}, **settings) as journey:
        told = (await journey.note("hello"))["context"]
        assert told["theme"] == "dark"
        assert told["styles"]["variables"] == {"--color-text-primary": "#fafafa"}
        assert (await journey.note("mode"))["done"]["mode"] == "fullscreen"
        journey.host.update_context(theme="light")
        await eventually(lambda: ("changed", {"theme": "light"}) in journey.noted)
        assert ("changed", {"displayMode": "fullscreen"}) in journey.noted


async def teardown(stage: Stage) -> None:
    """12: the teardown, by the host, and because the page has asked for it."""
    async with stage.show() as journey:
        await journey.note("result")
        assert "teardown" not in dict(journey.noted)
    await journey.note("teardown")  # the SDK leaves out the reason
    async with stage.show(arguments={"acts": ["leave"]}, on_request_teardown=lambda: True) as journey:
        await journey.note("teardown")


JOURNEYS: list[Callable[[Stage], Awaitable[None]]] = [
    input_and_result,
    partial_input,
    cancellation,
    error,
    calls_and_resources,
    links_and_messages,
    size,
    theme,
    teardown,
]


async def test_the_official_view_sdk_makes_every_journey(stage: Stage) -> None:
    for journey in JOURNEYS:
        print(journey.__name__)  # a failure shows it
        await journey(stage)


async def test_the_page_of_the_example_calls_a_tool(caplog: pytest.LogCaptureFixture) -> None:
    """The page of examples/clock.py calls `tick` once it has shown the result."""
    caplog.set_level("INFO", "trio_mcp")
    frames = Frames()
    with trio.fail_after(DEADLINE):
        async with (
            frames.open(),
            Client(clock.server, extensions=[Apps()]) as client,
            Stage(frames, client).show(arguments={"zone": "UTC"}),
        ):
            await eventually(lambda: "asks for 'tools/call'" in caplog.text)


@pytest.mark.parametrize("lenient", [False, True], ids=["guarded", "control"])
async def test_a_page_reaches_neither_its_parent_nor_a_token_nor_the_network(stage: Stage, lenient: bool) -> None:
    """SEP-1865, Iframe Sandboxing, Content Security Policy Enforcement. Without the policy and the opaque origin,
    everything succeeds but reaching the top, which has another origin."""
    stage.frames.lenient = lenient
    async with stage.show(arguments={"attack": True}) as journey:
        await stage.frames.left.wait()  # navigating elsewhere is the last attack
    found = dict(journey.noted)
    assert "failed" in found["top"]
    stolen = [each for each in stage.frames.asked if each.startswith("/stolen")]
    if lenient:
        assert "done" in found["parent"]
        assert "done" in found["storage"]
        ways = ("fetch", "image", "script", "frame", "navigation")
        assert set(stolen) == {f"/stolen-by-{way}" for way in ways}
    else:
        for way in ("parent", "storage", "cookie", "fetch"):
            assert "failed" in found[way], way
        assert stolen == []
