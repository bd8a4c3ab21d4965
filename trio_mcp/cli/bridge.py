"""``trio-mcp bridge``: serve what another server offers, over another transport or in another era."""

from __future__ import annotations

import argparse

from trio_mcp.cli.exits import Exit
from trio_mcp.cli.run import serve
from trio_mcp.cli.targets import target_of
from trio_mcp.proxy import ProxyServer
from trio_mcp.server.base_server import BaseServer

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    for name in ("root", "timeout", "log_level"):
        if getattr(options, name):
            raise Exit(f"--{name.replace('_', '-')} is not for bridge: that is a matter of the bridge's clients")
    return serve(options, lambda: _proxy(options))


def _proxy(options: argparse.Namespace) -> BaseServer:
    try:
        return ProxyServer(target_of(options), client={"mode": options.mode})
    except (TypeError, ValueError) as exc:
        raise Exit(str(exc)) from None
