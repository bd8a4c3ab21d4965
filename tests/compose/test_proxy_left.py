"""A proxy over HTTP whose client leaves a call: what the upstream then asks can't be passed on."""

from __future__ import annotations

import logging
from functools import partial

import httpx
import pytest
import trio
from pydantic import BaseModel

from tests.http_peer import Raw
from trio_mcp import Context, McpError, ProxyServer, Server

pytestmark = pytest.mark.legacy


class Name(BaseModel):
    name: str


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_a_question_after_the_client_left_is_refused_without_a_traceback(
    mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The client is gone, and the proxy is not to blame: the upstream gets an error, and the log no traceback."""
    upstream, started, go, refused = Server("upstream"), trio.Event(), trio.Event(), trio.Event()

    @upstream.tool
    async def ask(ctx: Context) -> str:
        await ctx.report_progress(1)
        started.set()
        await go.wait()
        try:
            await ctx.elicit("Who?", Name)
        except McpError:
            refused.set()
            raise
        return "answered"

    proxy = ProxyServer(upstream, client={"mode": mode})
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            url = await nursery.start(partial(proxy.serve_http, port=0))
            async with httpx.AsyncClient(base_url=url.removesuffix("/mcp"), timeout=30) as http:
                raw = Raw(http)
                await raw.initialize(elicitation={})
                async with raw.call("ask"):
                    await started.wait()
                with caplog.at_level(logging.ERROR, "trio_mcp"):
                    while proxy.statistics().http[0].exchanges:
                        await trio.lowlevel.checkpoint()
                    go.set()
                    if mode == "legacy":
                        await refused.wait()
                    while proxy.statistics().http[0].requests:
                        await trio.lowlevel.checkpoint()
            nursery.cancel_scope.cancel()
    assert not caplog.records
