"""The processes that are called: ``python -m tests.soak.serve '{"name": …, "out": …, …}'``."""

from __future__ import annotations

import functools
import gc
import json
import logging
import os
import signal
import sys
from pathlib import Path
from typing import Any

import trio
from hypercorn.config import Config

import trio_mcp
from tests.listening import config_of_held
from tests.soak.figures import on_signal
from tests.soak.record import Ledger
from tests.soak.tools import make_server
from trio_mcp import HttpOptions, MemoryEventStore, ProxyServer, StdioServerParameters


def stdio_parameters(out: str, name: str) -> StdioServerParameters:
    """How the server is started as a child, over stdio."""
    given = json.dumps({"kind": "stdio", "name": name, "out": out})
    root = Path(__file__).resolve().parents[2]
    log = (Path(out) / f"{name}.stderr.log").open("a")

    def kept(line: str) -> None:
        log.write(line + "\n")
        log.flush()

    return StdioServerParameters(sys.executable, ["-m", "tests.soak.serve", given], cwd=str(root), stderr=kept)


async def serve_http(given: dict[str, Any], nursery: trio.Nursery) -> list[Any]:
    """Return the tools over HTTP: with sessions and an event store, with sessions alone, without any, and over TLS."""
    server = make_server(Ledger(Path(given["out"]) / "effects.log"), given["name"])
    runner = given["runner"]
    settings: dict[str, Any] = {"session_timeout": given["session_timeout"], "sse_path": "/sse", "runner": runner}
    store = MemoryEventStore(max_events=given["max_events"], max_age=given["session_timeout"])
    kinds = {
        "stored": HttpOptions(event_store=store, retry=0.2, **settings),
        "plain": HttpOptions(retry=0.2, **settings),
        "stateless": HttpOptions(stateless=True, runner=runner),
        "tls": HttpOptions(retry=0.2, **settings),
    }
    servers: list[Any] = []
    for kind, options in kinds.items():
        if kind not in given["ports"]:
            continue
        config = Config()
        config.bind = config_of_held(given["ports"][kind]).bind
        if kind == "tls":
            config.certfile, config.keyfile = given["certificate"]
            config.keep_alive_timeout = 30  # httpx does not know when a server closes an idle connection
        await nursery.start(functools.partial(server.serve_http, config=config, options=options))
    servers.append(server)
    return servers


async def serve_proxies(given: dict[str, Any], nursery: trio.Nursery) -> list[Any]:
    """Proxies in front of other servers, each over HTTP."""
    servers: list[Any] = []
    for kind, port in given["ports"].items():
        target = given["upstreams"][kind]
        upstream = ProxyServer(
            stdio_parameters(given["out"], f"{given['name']}-{kind}") if target["url"] is None else target["url"],
            name=f"proxy-{kind}",
            client={"mode": target["mode"]},
        )
        options = HttpOptions(session_timeout=given["session_timeout"], retry=0.2, runner=given["runner"])
        # Without its upstream a proxy does not start: the driver has started that before.
        await nursery.start(functools.partial(upstream.serve_http, config=config_of_held(port), options=options))
        servers.append(upstream)
    return servers


async def end_with_the_driver(nursery: trio.Nursery) -> None:
    """Wait until the driver has ended, for whatever reason."""
    async with trio.lowlevel.FdStream(os.dup(0)) as stream:
        await stream.receive_some()
    nursery.cancel_scope.cancel()


async def main(given: dict[str, Any]) -> None:
    """Serve until SIGTERM comes."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    logging.info("serving %s", trio_mcp.__file__)
    out = Path(given["out"])
    if given["kind"] == "stdio":
        await make_server(Ledger(out / "effects.log"), given["name"]).serve_stdio()
        return
    gc.collect()
    async with trio.open_nursery() as nursery:
        serve = serve_proxies if given["kind"] == "proxies" else serve_http
        servers = await serve(given, nursery)
        await nursery.start(on_signal, out / f"{given['name']}.figures.jsonl", servers)
        nursery.start_soon(end_with_the_driver, nursery)
        with trio.open_signal_receiver(signal.SIGTERM) as signals:
            (out / f"{given['name']}.ready").touch()
            async for _ in signals:
                nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main, json.loads(sys.argv[1]))
