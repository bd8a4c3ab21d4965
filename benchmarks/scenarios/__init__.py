"""The scenarios, by their names on the command line, in the order in which they run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import (
    blocking,
    cancellation,
    commits,
    hops,
    http,
    http_client,
    idle_connections,
    idle_sessions,
    imports,
    listeners,
    load,
    memory,
    payloads,
    processes,
    protected,
    proxies,
    replicas,
    rss,
    signals,
    slow_clients,
    startup,
    stdio,
    stores,
    streams,
    tasks,
    tools,
    transports,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.measure.samples import Group
    from benchmarks.options import Options

SCENARIOS: dict[str, Callable[[Options], Iterator[Group]]] = {
    "memory": memory.run,
    "stdio": stdio.run,
    "http": http.run,
    "transports": transports.run,
    "http-client": http_client.run_client,
    "http-both": http_client.run_both,
    "blocking": blocking.run,
    "stores": stores.run,
    "commits": commits.run,
    "tasks": tasks.run,
    "proxies": proxies.run,
    "processes": processes.run,
    "replicas": replicas.run,
    "idle": idle_sessions.run,
    "connections": idle_connections.run,
    "slow": slow_clients.run,
    "rss": rss.run,
    "startup": startup.run,
    "import": imports.run,
    "tools": tools.run,
    "payloads": payloads.run,
    "signals": signals.run,
    "load": load.run,
    "streams": streams.run,
    "cancellation": cancellation.run,
    "listeners": listeners.run,
    "protected": protected.run,
    "hops": hops.run,
}
