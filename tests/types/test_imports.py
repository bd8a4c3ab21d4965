"""Importing loads only what is asked for (design rule: pay for what you use), and no event loop for the protocol."""

import pkgutil
import subprocess
import sys
from pathlib import Path

import pytest

import trio_mcp.types
from trio_mcp.types import WireModel

# Every file with models.
MODULES = {path.stem for path in Path(trio_mcp.types.__path__[0]).glob("*.py")} - {"__init__", "meta"}


def loaded_by(statement: str) -> set[str]:
    """Return the modules that a fresh interpreter has loaded after a statement."""
    code = f"{statement}\nimport sys\nprint(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "module", ["trio_mcp.types", *(f"trio_mcp.types.{name}" for name in ("versions", "methods", "meta", "error_codes"))]
)
def test_tables_and_constants_need_no_pydantic(module: str) -> None:
    loaded = loaded_by(f"import {module}")
    assert module in loaded
    assert loaded.isdisjoint({"pydantic", "pydantic_core", "trio", "httpx", "anyio", "asyncio"})


SANS_IO = (
    *(f"trio_mcp.{folder}." for folder in ("jsonrpc", "eras", "schema", "http.rules")),
    *(f"trio_mcp.{name}" for name in ("errors", "joined_names", "retrying", "trace_context", "uri_templates")),
    *(f"trio_mcp.http.{name}" for name in ("headers", "param_headers", "sse")),
)


def test_the_protocol_and_every_type_know_no_event_loop() -> None:
    """The floors below the sessions are sans-IO; nor do they load the schema validator before it is needed."""
    every = [module.name for module in pkgutil.walk_packages(trio_mcp.__path__, "trio_mcp.")]
    modules = [name for name in every if name.startswith(SANS_IO)]
    assert len(modules) > 15
    types = "import trio_mcp.types as types\nfor name in types.__all__: getattr(types, name)"
    loaded = loaded_by(f"import {', '.join(modules)}\n{types}")
    assert "pydantic" in loaded
    assert loaded.isdisjoint({"trio", "anyio", "asyncio", "httpx", "jsonschema_rs"})


def test_one_name_loads_only_what_it_is_made_of() -> None:
    loaded = loaded_by("from trio_mcp.types import Tool")
    ours = {name.removeprefix("trio_mcp.types.") for name in loaded if name.startswith("trio_mcp.types.")}
    assert "tools" in ours
    assert ours.isdisjoint({"sampling", "prompts", "elicitation", "tasks", "input_required", "unions", "jsonrpc"})


def test_a_method_loads_only_its_own_models() -> None:
    loaded = loaded_by(
        "from trio_mcp.types.methods import method_spec\nmethod_spec('2025-11-25', 'prompts/list').message"
    )
    assert "trio_mcp.types.prompts" in loaded
    assert loaded.isdisjoint({"trio_mcp.types.tools", "trio_mcp.types.sampling", "trio_mcp.types.tasks"})


def test_every_name_is_exported_and_found() -> None:
    """The submodules' lists, `__all__` and `dir` agree.

    A file whose models are not listed would be invisible to ``from trio_mcp import types``.
    """
    listed: dict[str, str] = {}
    for module in MODULES:
        imported = __import__(f"trio_mcp.types.{module}", fromlist=["__all__"])
        names = ["WireModel"] if module == "_base" else imported.__all__
        listed |= dict.fromkeys(names, module)
        assert all(getattr(trio_mcp.types, name) is getattr(imported, name) for name in names)
    assert {"meta", *listed} == set(trio_mcp.types.__all__) <= set(dir(trio_mcp.types))


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="NoSuchConstruct"):
        _ = trio_mcp.types.NoSuchConstruct


def test_models_are_built_on_first_use_only() -> None:
    """Declaring all models must stay cheap; validators are built for the models a program uses."""
    code = (
        "from trio_mcp.types import Tool, CallToolResult\n"
        "assert not Tool.__pydantic_complete__ and not CallToolResult.__pydantic_complete__\n"
        "Tool(name='t', input_schema={})\n"
        "assert Tool.__pydantic_complete__ and not CallToolResult.__pydantic_complete__\n"
    )
    loaded_by(code)
    assert issubclass(trio_mcp.types.Tool, WireModel)
