"""Import time of the package, and what importing the client must not load."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from benchmarks.measure.processes import run_python
from benchmarks.measure.samples import Comparison, Group, Target, interleave
from benchmarks.options import peer_installed

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.options import Options

PYDANTIC = "from pydantic import BaseModel"
TYPES = "trio_mcp.types and all its names"
CLIENT = "from trio_mcp import Client"
PEER_CLIENT = "from mcp import Client"

STATEMENTS = {
    statement: statement for statement in (PYDANTIC, CLIENT, "from trio_mcp import Server", "import trio, httpx")
}
STATEMENTS[TYPES] = "import trio_mcp.types as t; [getattr(t, name) for name in t.__all__]"
PEER_STATEMENTS = {
    PEER_CLIENT: "from mcp import Client",
    "from mcp import ClientSession": "from mcp import ClientSession",
}

# Design rule: importing the client does not import the server, the HTTP server or the CLI.
UNWANTED = ("trio_mcp.server", "hypercorn", "trio_mcp.cli")


def _import_time(statement: str) -> float:
    """Return the milliseconds that `statement` takes in a new interpreter, without the interpreter's own start."""
    code = f"import time; started = time.perf_counter(); {statement}; print(time.perf_counter() - started)"
    return float(run_python("-c", code)) * 1000


def _dragged_in() -> list[str]:
    """Return the modules among UNWANTED that importing the client loads."""
    loaded = run_python("-c", "import sys; from trio_mcp import Client; print(*sys.modules, sep='\\n')").split()
    return [name for name in loaded if any(name == root or name.startswith(root + ".") for root in UNWANTED)]


def run(options: Options) -> Iterator[Group]:
    """Measure a new interpreter for each sample. Unless for a quick look, an unmeasured run caches byte code first."""
    options.progress("import")
    statements = {**STATEMENTS, **(PEER_STATEMENTS if peer_installed() else {})}
    contenders = {label: partial(_import_time, statement) for label, statement in statements.items()}
    if not options.quick:
        for contender in contenders.values():
            contender()
    samples = interleave(contenders, options.short_rounds, options.progress)
    comparisons = [Comparison(TYPES, PYDANTIC, Target("<=", 2.5))]
    if PEER_CLIENT in samples:
        comparisons.append(Comparison(CLIENT, PEER_CLIENT))
    dragged = _dragged_in()
    verdict = f"it does: {', '.join(dragged)}" if dragged else "it loads none of them"
    note = f"check: importing trio_mcp.Client must load none of {', '.join(UNWANTED)}: {verdict}"
    yield Group("import", "time of the statement in a fresh interpreter", "ms", samples, comparisons, notes=[note])
