"""A tool with a page, and a host that shows it. A few lines of Python stand in for the page's script.

$ python examples/clock.py
"""

import trio
from pydantic import BaseModel

from trio_mcp import Client, Context, McpError, Notification, Server
from trio_mcp.extensions import AppHost, Apps, Csp, HostContext
from trio_mcp.low_level import BaseSession, Link, RequestContext, memory_link_pair

FACE = """<!doctype html>
<meta charset="utf-8">
<title>clock</title>
<style>
  body { margin: 0; padding: 14px; display: flex; gap: 26px; align-items: center; font: 15px system-ui, sans-serif }
  body.dark { color: #e8e8ea; color-scheme: dark }
  svg { width: 200px; stroke: currentColor; stroke-linecap: round; fill: none; stroke-width: 3 }
  #time { font-size: 44px; margin: 0 }
</style>
<svg viewBox="-50 -50 100 100">
  <circle r="46"/><g id="marks"></g><path id="hour" d="M0 0V-24"/><path d="M0 0V-36"/>
</svg>
<div><p id="time"></p><p id="zone"></p></div>
<script type="module">
  // The official SDK does this: npm install @modelcontextprotocol/ext-apps
  const say = (message) => parent.postMessage({ jsonrpc: "2.0", ...message }, "*");
  const get = (id) => document.getElementById(id);
  for (let angle = 0; angle < 360; angle += 30) {
    get("marks").innerHTML += `<path d="M0 -41V-39" transform="rotate(${angle})"/>`;
  }
  let hour;
  addEventListener("message", ({ data: { id, method, params, result } }) => {
    if (id === 1 && result) {
      document.body.className = result.hostContext.theme;
      say({ method: "ui/notifications/initialized" });
    } else if (method === "ui/notifications/tool-result") {
      ({ hour } = params.structuredContent);
      get("hour").setAttribute("transform", `rotate(${hour * 30})`);
      get("zone").textContent = params.structuredContent.zone;
      say({ id: 2, method: "tools/call", params: { name: "tick" } });
    } else if (id === 2 && result) {
      get("time").textContent = `${hour}:00:${result.structuredContent.result}`;
    } else if (method === "ui/resource-teardown") say({ id, result: {} });
  });
  const params = { protocolVersion: "2026-01-26", appInfo: { name: "face", version: "1" }, appCapabilities: {} };
  say({ id: 1, method: "ui/initialize", params });
</script>
"""

apps = Apps()
server = Server("clock", version="1.0.0", extensions=[apps])


class Time(BaseModel):
    hour: int
    zone: str


@apps.page("ui://clock/face", csp=Csp(connect=["https://time.example"]), prefers_border=True)
def face() -> str:
    """The face of a clock."""
    return FACE


@server.tool(app="ui://clock/face")
async def show(zone: str, ctx: Context) -> Time:
    """Show what time it is."""
    return Time(hour=3 if ctx.client_renders_apps else 4, zone=zone)


@server.tool(visibility=["app"])
async def tick() -> int:
    """Return the second; only the page calls this."""
    return 59


@server.tool(visibility=["model"])
async def wind_up() -> str:
    """Wind up the clock; only the model may."""
    return "done"


class Page(BaseSession):
    """The page's side of the conversation."""

    def __init__(self, link: Link) -> None:
        super().__init__(*link)
        self.shown = trio.Event()

    async def received_notification(self, notification: Notification) -> None:
        if notification.method == "ui/notifications/tool-result":
            print("the page shows", (notification.params or {})["structuredContent"])
            self.shown.set()

    async def received_request(self, context: RequestContext) -> None:
        print("the page is told:", context.params["reason"])

    async def run(self) -> None:
        """Do what the script would do."""
        me = {"protocolVersion": "2026-01-26", "appInfo": {"name": "face", "version": "1"}, "appCapabilities": {}}
        hello = await self.send_request("ui/initialize", me)
        print("the page has the theme", hello["hostContext"]["theme"])
        await self.send_notification("ui/notifications/initialized")
        await self.shown.wait()
        ticked = await self.send_request("tools/call", {"name": "tick"})
        print("the page calls tick:", ticked["structuredContent"]["result"])
        for method, params in (("tools/call", {"name": "wind_up"}), ("ui/open-link", {"url": "javascript:alert(1)"})):
            try:
                await self.send_request(method, params)
            except McpError as exc:
                print("the page is refused:", exc)


async def main() -> None:
    async with Client(server, extensions=[Apps()]) as client:
        print("the model sees", [tool.name for tool in await client.list_tools(audience="model")])
        host = AppHost(client, "show", {"zone": "UTC"}, context=HostContext(theme="dark"), on_open_link=print)
        # The host comes last, so that leaving it tears the view down before the nursery waits for `serve`.
        async with (
            trio.open_nursery() as nursery,
            memory_link_pair(encode=True) as (ours, theirs),
            Page(theirs) as page,
            host,
        ):
            print("its policy has", host.csp_domains)
            nursery.start_soon(host.serve, ours)
            await page.run()
            print("the model reads", (await host.result()).text)
            await host.teardown("the conversation has moved on")


if __name__ == "__main__":
    trio.run(main)
