"""The public face: names, lazy imports, what importing costs; exceptions."""

from __future__ import annotations

import ast
import copy
import importlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import trio_mcp
import trio_mcp.errors as errors
from tests.docs.pages import pages
from tests.public_names import PACKAGE
from trio_mcp._door import DOORS
from trio_mcp._renamed import ATTRIBUTES, NAMES
from trio_mcp.server.features.resources import ResourceNotFound

PUBLIC_MODULES = {
    f"trio_mcp.{name}"
    for name in (
        *("low_level", "statistics", "types", "jsonrpc", "middleware", "otel", "auth", "auth.testing", "schema"),
        *("blocking", "extensions", "server_card", "stores"),
        *("testing", "testing.strategies", "conformance", "conformance.transcript"),
    )
}
"""Those whose names are not in `trio_mcp`: sessions and links, statistics, the many types, what writers of transports
need, middleware, authorization, the client without async, extensions, server cards, stores, tests."""

HTTP = ("hypercorn", "httpx", "trio_websocket")
AUTH = ("trio_mcp.auth", "joserfc", "keyring")


def modules_after(code: str) -> set[str]:
    program = f"{code}\nimport sys\nprint('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.splitlines())


@pytest.mark.parametrize("door", DOORS)
def test_every_public_name_is_written_once_with_the_module_that_defines_it(door: str) -> None:
    package = importlib.import_module(door)
    listed = [
        (node.module, alias)
        for node in ast.walk(ast.parse(Path(str(package.__file__)).read_text()))
        if isinstance(node, ast.ImportFrom) and node.module not in ("typing", "trio_mcp._door")
        for alias in node.names
    ]
    assert package.__all__ == [alias.name for _, alias in listed]
    assert len(set(package.__all__)) == len(package.__all__)
    for home, alias in listed:
        defined = getattr(getattr(package, alias.name), "__module__", None) or home
        assert alias.asname == alias.name  # exported, to type checkers
        # Aliases of types are of the standard library's.
        assert defined in (home, "builtins", "types", "typing"), alias.name


@pytest.mark.parametrize("door", DOORS)
def test_a_door_suggests_names_that_have_not_been_imported_yet(door: str) -> None:
    name = importlib.import_module(door).__all__[-1]
    code = f"import {door} as door; door.{name}x"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert f"Did you mean: {name!r}?" in done.stderr


def test_public_names_are_found_in_every_way() -> None:
    everything: dict[str, object] = {}
    exec("from trio_mcp import *", everything)
    assert everything.keys() >= set(trio_mcp.__all__)
    assert set(trio_mcp.__all__) <= set(dir(trio_mcp))
    with pytest.raises(AttributeError, match="no attribute 'Clientt'") as caught:
        _ = trio_mcp.Clientt  # type: ignore[attr-defined]
    assert (caught.value.name, caught.value.obj) == ("Clientt", trio_mcp)  # what Python needs to suggest `Client`
    done = subprocess.run([sys.executable, "-c", "import trio_mcp; trio_mcp.Clientt"], capture_output=True, text=True)
    assert "Did you mean: 'Client'?" in done.stderr


IMPORTS = {
    "trio_mcp FastMCP": "write `from trio_mcp import Server`",
    "trio_mcp MCPServer": "write `from trio_mcp import Server`",
    "trio_mcp streamablehttp_client": "write Client('https://…/mcp'); trio_mcp.low_level has streamable_http_client",
    "trio_mcp.server FastMCP": "write `from trio_mcp import Server`",
    "trio_mcp.server Server": "write `from trio_mcp import Server`",
    "trio_mcp.client ClientSession": "write `from trio_mcp.low_level import ClientSession`",
    "trio_mcp TextContent": "write `from trio_mcp.types import TextContent`",
    "trio_mcp OAuth": "write `from trio_mcp.auth import OAuth`",
    "trio_mcp.auth Server": "write `from trio_mcp import Server`",
    "trio_mcp.types OAuth": "write `from trio_mcp.auth import OAuth`",
    "trio_mcp.testing FastMCP": "write `from trio_mcp import Server`",
    "trio_mcp Logging": "write `from trio_mcp.middleware import Logging`",
    "trio_mcp SessionStatistics": "write `from trio_mcp.statistics import SessionStatistics`",
    "trio_mcp stdio_client": "write `from trio_mcp.low_level import stdio_client`",
}


@pytest.mark.parametrize("wanted", IMPORTS)
def test_importing_a_name_of_another_library_or_module_says_what_to_write(wanted: str) -> None:
    module, name = wanted.split()
    with pytest.raises(ImportError) as caught:
        exec(f"from {module} import {name}")
    assert str(caught.value) == f"cannot import name {name!r} from {module!r}: {IMPORTS[wanted]}"


def test_an_advised_name_is_no_name_of_ours_and_its_advice_names_some() -> None:
    ours = {*trio_mcp.__all__, *trio_mcp.types.__all__, *trio_mcp.middleware.__all__}
    assert not ours & NAMES.keys()
    for name, advice in NAMES.items():
        assert ours & set(re.findall(r"\w+", advice)) or "server" in advice, name


def test_what_is_not_there_is_an_attribute_error_and_modules_below_are_found() -> None:
    """The import system itself asks for attributes, and looks for a module if there are none."""
    for module in ("trio_mcp", "trio_mcp.server", "trio_mcp.client"):
        assert not hasattr(importlib.import_module(module), "Clientt")
    for code in (
        "from trio_mcp import memory",
        "from trio_mcp.server import context",
        "from trio_mcp.client import cache",
    ):
        assert code.split()[1] + "." + code.split()[-1] in modules_after(code)


ABSENT = {(cls, name): advice for cls, names in ATTRIBUTES.items() for name, advice in names.items()}
CLASSES = {"BaseServer": trio_mcp.Server, "Context": trio_mcp.Context, "Client": trio_mcp.Client}


@pytest.mark.parametrize(("cls", "name"), ABSENT)
def test_an_attribute_of_another_library_says_what_to_write_and_is_not_offered(cls: str, name: str) -> None:
    owner = CLASSES[cls]
    with pytest.raises(AttributeError) as caught:
        getattr(owner, name)
    assert str(caught.value) == f"{owner.__name__!r} object has no attribute {name!r}: {ABSENT[cls, name]}"
    if cls == "BaseServer":
        server = trio_mcp.Server("s")
        assert name not in dir(server)
        assert not hasattr(server, name)
        assert "tool" in dir(server)


def test_such_advice_names_nothing_that_is_not_public() -> None:
    """What it says to write must work, and be what an editor offers."""
    owners = {"ctx": trio_mcp.Context, "client": trio_mcp.Client, "server": trio_mcp.Server}
    named = {
        (variable, name)
        for advice in (*ABSENT.values(), *NAMES.values())
        for variable, name in re.findall(r"\b(ctx|client|server)\.([a-z_]+)", advice)
    }
    assert {variable for variable, _ in named} == owners.keys()
    assert not [each for each in named if not hasattr(owners[each[0]], each[1]) and each != ("server", "py")]


def test_a_subclass_may_have_such_a_name_and_an_editor_offers_it() -> None:
    class Own(trio_mcp.Server):
        def custom_route(self) -> int:
            return 1

    own = Own("s")
    assert own.custom_route() == 1
    assert "custom_route" in dir(own)
    assert "sse_app" not in dir(own)


def test_python_adds_no_guess_to_such_advice() -> None:
    code = "from trio_mcp import Server; Server('s').call_tool"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stderr.endswith("await client.call_tool(name, arguments)\n")


def test_the_documentation_imports_public_names_from_the_top() -> None:
    """Where a module lies is our business, and may change."""
    found = [
        f"{page.name}: {module}"
        for page in pages()
        for pattern in (r"(?:from|import) (trio_mcp\.[\w.]+)", r"auto\w+:: (trio_mcp\.[\w.]+)\.\w+")
        for module in re.findall(pattern, page.read_text())
        if module not in PUBLIC_MODULES
    ]
    assert found == []


def test_a_frozen_or_zipped_package_has_the_names(tmp_path: Path) -> None:
    """The list is read as code, so neither its source nor a file beside it is needed."""
    archive = shutil.make_archive(str(tmp_path / "packed"), "zip", PACKAGE.parent, "trio_mcp")
    code = "import trio_mcp.low_level; print(trio_mcp.__file__, trio_mcp.low_level.Link)"
    environment = {**os.environ, "PYTHONPATH": archive}
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True, env=environment
    )
    assert done.stdout.startswith(archive)


@pytest.mark.parametrize(
    "code", ["import trio_mcp", "from trio_mcp import Client", "from trio_mcp.low_level import stdio_client"]
)
def test_a_client_loads_no_server_no_http_server_and_no_command_line(code: str) -> None:
    loaded = modules_after(code)
    for unwanted in (
        *HTTP,
        *AUTH,
        "trio_mcp.server",
        "trio_mcp.blocking",
        "trio_mcp.cli",
        "jsonschema_rs",
        "asyncio",
        "anyio",
    ):
        assert unwanted not in loaded, unwanted


@pytest.mark.parametrize("code", ["from trio_mcp import Server", "from trio_mcp.low_level import stdio_server"])
def test_a_server_loads_no_client_and_no_http(code: str) -> None:
    loaded = modules_after(code)
    for unwanted in (*HTTP, *AUTH, "trio_mcp.client", "trio_mcp.cli", "trio_mcp.stores", "asyncio", "anyio"):
        assert unwanted not in loaded, unwanted


def test_an_http_server_without_stores_loads_nothing_of_them_but_an_interface() -> None:
    loaded = modules_after("from trio_mcp import HttpOptions; HttpOptions(); import trio_mcp.http.server.app")
    assert {name for name in loaded if name.startswith(("trio_mcp.stores", "sqlite3"))} == {
        "trio_mcp.stores",
        "trio_mcp.stores.event_store",
    }


UNEXTENDED = {
    "everything": "from trio_mcp import *",
    "a server": "from trio_mcp import Server; Server('x')",
    "a client": "from trio_mcp import Client; Client('http://127.0.0.1:1/mcp')",
    "a proxy": "from trio_mcp import ProxyServer; ProxyServer('http://127.0.0.1:1/mcp')",
}


@pytest.mark.parametrize("what", UNEXTENDED)
def test_without_extensions_nothing_of_them_is_loaded(what: str) -> None:
    loaded = modules_after(UNEXTENDED[what])
    assert not {name for name in loaded if name.startswith("trio_mcp.extensions")}
    assert "trio_mcp.server.extensions" not in loaded


@pytest.mark.parametrize(
    "what", ["from trio_mcp import *", "from trio_mcp.auth import ResourceServer; import trio_mcp.auth.server.jwt"]
)
def test_without_an_exchange_of_tokens_nothing_of_it_is_loaded(what: str) -> None:
    loaded = modules_after(what)
    assert not {name for name in loaded if name.endswith((".exchange", ".caller", ".caller_auth"))} - {
        "trio_mcp.http.server.exchange"
    }


def test_what_helps_to_test_needs_no_extra_until_it_is_used() -> None:
    assert not {"hypothesis", "pytest"} & modules_after("import trio_mcp.testing")


# --- exceptions are copied for each caller that waits for the same thing, so each must survive that -------------------


RAISED = [
    errors.TrioMcpError("text"),
    errors.McpError(-32602, "no such tool", {"name": "x"}),
    errors.UnknownTool("prise", ("price",), "no tool: prise", {"name": "prise"}),
    errors.ToolNotApproved("price", ("description",), ("reads: description was 'a', is 'b'",)),
    errors.ToolError("text"),
    errors.SamplingError("text"),
    errors.RequestTimeout("tools/call", 0.5, "total_timeout"),
    errors.TransportError("text"),
    errors.AuthorizationError("refresh", "the token is gone", issuer="https://id.example.com", error="invalid_grant"),
    errors.LoginRequired("authorization", "no browser here", advice="run this on a terminal"),
    errors.OutcomeUnknown("tools/call", "ws://localhost", "the link is broken"),
    errors.SessionClosed("text"),
    errors.ProcessExited("python server.py", -9, "tail"),
    errors.HttpError("POST http://x/mcp", 503, "Busy", {"retry-after": "1"}, "later", "busy", 1.0),
    errors.LocalProtocolError("text"),
    errors.CapabilityError("tools/list", "tools", "server"),
    errors.RemoteProtocolError("text", -32602),
    errors.InputError("roots/list", "key", "ValueError: no"),
    errors.MessageTooLarge(5),
    errors.NegotiationError("text", ("2025-11-25",)),
    errors.ConfigError("mcp.json", ("line 1: no", "line 2: no")),
    ResourceNotFound("file:///x"),
    errors.Disconnected("text"),
]


def test_every_public_exception_is_here() -> None:
    assert {getattr(errors, name) for name in errors.__all__ if name != "HttpTrouble"} <= set(map(type, RAISED))


@pytest.mark.parametrize("error", RAISED, ids=lambda each: type(each).__name__)
def test_a_copy_says_the_same(error: errors.TrioMcpError) -> None:
    error.server = "weather"
    twin = copy.copy(error)
    assert type(twin) is type(error)
    assert str(twin) == str(error)
    assert vars(twin) == vars(error)
