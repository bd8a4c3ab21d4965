"""Pages in headless Chromium that try to act as the user, through what `trio-mcp record` adds to each request."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from tests.http_peer import peer
from tests.kit.recorders import recording
from trio_mcp import Context, Server
from trio_mcp._nursery import background_nursery

from .pages import FOREIGN, Pages, chromium
from .support import DEADLINE

pytestmark = pytest.mark.chromium

TOKEN = "Bearer of-the-command-line"

PAGE = r"""
<iframe name="frame"></iframe>
<script type="module">
const task = %s;
const call = { jsonrpc: "2.0", id: 1, method: "tools/call", params: { name: "act", arguments: {} } };
const report = (found) =>
  fetch(task.report ?? "/found", { method: "POST", mode: "no-cors", body: JSON.stringify(found) });

const attacks = {
  // As text/plain, which needs no leave of the other origin.
  async fetch() {
    await fetch(task.url, { method: "POST", mode: "no-cors", body: JSON.stringify(call) });
    report("answered");
  },

  // A GET, which has no Origin.
  image() {
    Object.assign(new Image(), { onerror: () => report("answered"), src: task.url });
  },

  // A form sends NAME=VALUE: the equals sign is put where JSON does not mind it.
  form() {
    const form = document.createElement("form");
    const field = document.createElement("input");
    Object.assign(form, { method: "POST", action: task.url, target: "frame", enctype: "text/plain" });
    Object.assign(field, { name: JSON.stringify(call).slice(0, -1) + ', "rest": "', value: '"}' });
    form.append(field);
    document.body.append(form);
    document.querySelector("iframe").onload = () => report("answered");
    form.submit();
  },

  websocket() {
    const socket = new WebSocket(task.url, "mcp");
    const send = (message) => socket.send(JSON.stringify({ jsonrpc: "2.0", ...message }));
    const params = { protocolVersion: "2025-11-25", capabilities: {}, clientInfo: { name: "page", version: "1" } };
    socket.onopen = () => send({ id: 0, method: "initialize", params });
    socket.onmessage = ({ data }) => {
      if (JSON.parse(data).id === 1) socket.close();
      if (JSON.parse(data).id !== 0) return;
      send({ method: "notifications/initialized" });
      send(call);
    };
    socket.onclose = () => report("closed");
  },

  // To its own origin, where the recorder has come in place of the server of this page.
  async rebinding() {
    const asked = { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(call) };
    for (;;) {
      try {
        await report((await fetch("/mcp", asked)).status);
        return;
      } catch {
        await new Promise((resolve) => setTimeout(resolve, 50));
      }
    }
  },
};
attacks[task.attack]();
</script>
"""


@asynccontextmanager
async def over_http() -> AsyncIterator[tuple[str, list[str]]]:
    """Serve as a server that looks at nothing but the token; yield its URL, and the tokens with which its tool ran."""
    acted: list[str] = []

    async def act(asked: Any) -> None:
        acted.append(asked.headers.get("authorization"))
        await asked.status(200, {})

    async with peer({"tools/call": act, "GET": act}) as behind:
        yield behind.url, acted


@asynccontextmanager
async def over_websocket() -> AsyncIterator[tuple[str, list[str]]]:
    """Do the same over WebSocket."""
    acted: list[str] = []
    server = Server("behind")

    @server.tool
    def act(ctx: Context) -> None:
        acted.append(ctx.transport_metadata["headers"].get("authorization"))

    async with background_nursery() as nursery:
        yield await nursery.start(partial(server.serve_websocket, port=0, allowed_origins=["*"])), acted


@pytest.mark.parametrize("guarded", [True, False], ids=["guarded", "with the guard taken out"])
@pytest.mark.parametrize("attack", ["fetch", "image", "form", "websocket", "rebinding"])
async def test_no_foreign_page_acts_through_a_recorder(attack: str, guarded: bool, tmp_path: Path) -> None:
    """Without the guard each of them acts with the credentials of the command line, or this would prove nothing."""
    behind = over_websocket() if attack == "websocket" else over_http()
    pages = Pages(PAGE)
    with trio.fail_after(DEADLINE):
        async with behind as (target, acted), background_nursery() as nursery:
            await nursery.start(pages.serve)
            record = partial(recording, tmp_path, target, "--header", f"Authorization: {TOKEN}", guarded=guarded)
            if attack == "rebinding":
                found = await _rebound(pages, record)
            else:
                async with record() as url:
                    found = await pages.visit(FOREIGN, attack=attack, url=url)
    assert found == {"websocket": "closed", "rebinding": 200 if not guarded else 403}.get(attack, "answered")
    assert acted == ([] if guarded else [TOKEN])


async def _rebound(pages: Pages, record: Any) -> Any:
    """Let a page open at a port that is the recorder's from then on; return what it has found."""
    opener = Pages(PAGE)
    opener.task = {"attack": "rebinding", "report": f"http://127.0.0.1:{pages.port}/found"}
    # It keeps the port for the time between the two, and never listens.
    with socket.socket() as kept:
        kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        kept.bind(("127.0.0.1", 0))
        opener.port = kept.getsockname()[1]
        (listener,) = await trio.open_tcp_listeners(opener.port, host="127.0.0.1")
        async with chromium(f"{FOREIGN}:{opener.port}/"):
            async with listener:
                while opener.opened == 0:
                    await opener.answer(await listener.accept())
            async with record("--port", str(opener.port)):
                return await pages.found()
