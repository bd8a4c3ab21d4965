"""Floor 2 knows no event loop."""

import pkgutil
import subprocess
import sys

import trio_mcp.protocol

SCRIPT = """
import importlib, sys
for name in sys.argv[1:]:
    importlib.import_module(name)
print(sorted({name.partition(".")[0] for name in sys.modules} & {"trio", "anyio", "asyncio", "jsonschema_rs"}))
"""


def test_the_protocol_imports_no_event_loop() -> None:
    """Every module of the floor: no Trio, no AnyIO, no asyncio; nor the schema validator before it is needed."""
    modules = [f"trio_mcp.protocol.{module.name}" for module in pkgutil.iter_modules(trio_mcp.protocol.__path__)]
    assert len(modules) > 5
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, *modules], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.strip() == "[]"
