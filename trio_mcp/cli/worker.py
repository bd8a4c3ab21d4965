"""``trio-mcp worker``: run the tasks of the server in a file or module, without clients."""

from __future__ import annotations

import argparse
import signal
import sys

import trio

from trio_mcp.cli.exits import FAILED, INTERRUPTED, OK, Exit
from trio_mcp.cli.loading import check_keys, load_server, use_stores
from trio_mcp.cli.reporting import until_signalled
from trio_mcp.server.base_server import BaseServer, core_of
from trio_mcp.stores.contract import StoreError

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    """Run tasks that wait in the server's stores, until SIGINT or SIGTERM.

    On a signal, a task whose tool may run again is left for another process at once; see `TaskPolicy.on_loss`.
    """
    server = use_stores(load_server(options.server, options.file_arguments), options.stores)
    _check_shares_tasks(server)
    check_keys(server)

    async def work() -> None:
        async with core_of(server).open_run():
            print(f"trio-mcp worker: running the tasks of {server.info.name}; press Ctrl-C to stop", file=sys.stderr)
            await trio.sleep_forever()

    try:
        received = trio.run(until_signalled, work)
    except StoreError as exc:
        raise Exit(f"can't use the stores of {options.server}: {exc}", FAILED) from None
    return INTERRUPTED if received == signal.SIGINT else OK


def _check_shares_tasks(server: BaseServer) -> None:
    """Refuse a server for which a worker would wait forever.

    Raises:
        Exit: If the server has no tasks, or no stores that other processes can reach, or if it is a proxy.
    """
    from trio_mcp.extensions.tasks.errors import IDENTIFIER
    from trio_mcp.proxy.proxy_server import ProxyServer

    if isinstance(server, ProxyServer):
        raise Exit(f"{server.info.name!r} is a proxy, and its tasks run in the upstream server: run the worker of that")
    core = core_of(server)
    extensions = core.settings.extensions
    if extensions is None or IDENTIFIER not in extensions:
        raise Exit(f"the server {server.info.name!r} has no tasks: make it with extensions=[Tasks()]")
    from trio_mcp.stores.memory_stores import MemoryStores

    if core.stores is None or isinstance(core.stores, MemoryStores):
        raise Exit(
            f"the tasks of the server {server.info.name!r} are in the memory of each process, so a worker gets none: "
            "make it with stores=, such as the path of a file, or add --stores PLACE"
        )
