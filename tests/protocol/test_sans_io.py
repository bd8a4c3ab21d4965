"""The protocol packages use no event loop."""

import pkgutil
import subprocess
import sys

import trio_mcp

SCRIPT = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
print(sorted({name.partition(".")[0] for name in sys.modules} & {"trio", "anyio", "asyncio", "jsonschema_rs"}))
"""

SANS_IO = (
    *(f"trio_mcp.{folder}." for folder in ("jsonrpc", "eras", "schema", "http.rules")),
    *(f"trio_mcp.{name}" for name in ("errors", "joined_names", "retrying", "trace_context", "uri_templates")),
    *(f"trio_mcp.http.{name}" for name in ("headers", "param_headers", "sse")),
)


def test_the_protocol_imports_no_event_loop() -> None:
    """Every module of the floor: no Trio, no AnyIO, no asyncio; nor the schema validator before it is needed."""
    every = [module.name for module in pkgutil.walk_packages(trio_mcp.__path__, "trio_mcp.")]
    modules = [name for name in every if name.startswith(SANS_IO)]
    assert len(modules) > 15
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *modules], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"
