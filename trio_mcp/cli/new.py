"""``trio-mcp new``: make a project folder, with a server, its tests, and the files that are needed to install it."""

from __future__ import annotations

import argparse
import importlib.util
import json
import keyword
import re
import shlex
import sys
from importlib import metadata
from pathlib import Path
from string import Template
from urllib.parse import unquote, urlsplit

from trio_mcp.cli.exits import FAILED, OK, Exit

__all__ = ["run"]

# A name that matches this pattern is valid for a package (PEP 508) and, with underscores in place of hyphens, for a
# module: it has no dots, and does not begin with a digit.
NAME = re.compile(r"[A-Za-z]([A-Za-z0-9_-]*[A-Za-z0-9])?")
TAKEN = ("pytest", "pytest_trio", "tests")
"""Modules that the project contains or installs, in addition to this package and its dependencies."""

_CLONE = '"$TRIO_MCP"'
_WHERE = """
`TRIO_MCP` is the folder of a clone of trio_mcp. Leave it out once `trio-mcp` is on the package index.
"""

# A name on GitHub.
OWNER = re.compile(r"[A-Za-z0-9](?:-?[A-Za-z0-9]){0,38}")
_OWNED = """authors = [{ name = "$owner" }]

[project.urls]
Repository = "https://github.com/$owner/$name"
"""
_MARK = """
<!-- mcp-name: io.github.$owner/$lower -->
"""

FILES = {
    "pyproject.toml": """\
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"

[project]
name = "$name"
version = "0.1.0"
description = "An MCP server"
readme = "README.md"
requires-python = ">=3.11"
dependencies = ["trio-mcp"]
$owned
[project.optional-dependencies]
test = ["pytest>=8.4", "pytest-trio>=0.8"]

[project.scripts]
$name = "$module.server:main"

[tool.hatch.build.targets.wheel]
packages = ["src/$module"]

[tool.pytest.ini_options]
testpaths = ["tests"]
trio_mode = true
""",
    "README.md": """\
# $name

An MCP server.
$mark
```console
$$ python3 -m venv .venv
$$ $install
$$ .venv/bin/pytest
$$ .venv/bin/trio-mcp inspect src/$module/server.py
$$ .venv/bin/trio-mcp call src/$module/server.py count text="one two"
```
$where
`.venv/bin/trio-mcp install claude-desktop src/$module/server.py` shows the entry for Claude Desktop's file, and
`--write` puts it there. Claude Code, Cursor, VS Code, Gemini CLI, Goose and Zed are supported as well. For any other
host, the command is the absolute path of `.venv/bin/$name`.

Hosts can also run `.venv/bin/trio-mcp run src/$module/server.py --reload`, which restarts the server whenever a file
changes.

`.venv/bin/trio-mcp publish src/$module/server.py` says what is missing before others can install it.
""",
    ".gitignore": """\
.venv/
__pycache__/
.pytest_cache/
dist/
""",
    "src/$module/__init__.py": '"""An MCP server."""\n',
    "src/$module/server.py": '''\
"""The server. Every function with one of its decorators is offered to its clients."""

from dataclasses import dataclass
from typing import Annotated

from pydantic import Field

from trio_mcp import Context, Server

server = Server("$name", version="0.1.0", instructions="Counts the words of texts.")


@dataclass
class Counts:
    """The result of `count`: clients get it with a schema."""

    words: int
    characters: int


@server.tool
def count(text: Annotated[str, Field(description="The text, of any length.")]) -> Counts:
    """Count the words and characters of a text."""
    return Counts(len(text.split()), len(text))


@server.tool
async def count_all(texts: list[str], ctx: Context) -> int:
    """Count the words of several texts."""
    total = 0
    for number, text in enumerate(texts, 1):
        total += len(text.split())
        await ctx.report_progress(number, len(texts))
    return total


@server.resource("text://example")
def example() -> str:
    """A text to try the tools with."""
    return "The quick brown fox jumps over the lazy dog."


@server.prompt
def shorten(text: str, words: int = 20) -> str:
    """Shorten a text."""
    return f"Shorten this text to {words} words:\\n\\n{text}"


def main() -> None:
    """Serve over standard input and output, as hosts start it."""
    server.run()


if __name__ == "__main__":
    main()
''',
    "tests/test_server.py": '''\
"""The server, as a client sees it: both run in this process."""

from trio_mcp import Client

from $module.server import server


async def test_count() -> None:
    async with Client(server) as client:
        result = await client.call_tool("count", {"text": "one two"})
        assert result.data == {"words": 2, "characters": 7}


async def test_count_all_reports_progress() -> None:
    seen: list[float] = []
    async with Client(server) as client:
        texts = ["one two", "three"]
        result = await client.call_tool(
            "count_all", {"texts": texts}, on_progress=lambda progress: seen.append(progress.progress)
        )
    assert (result.data, seen) == (3, [1, 2])


async def test_everything_is_offered() -> None:
    async with Client(server) as client:
        assert [tool.name async for tool in client.iter_tools()] == ["count", "count_all"]
        assert [resource.uri async for resource in client.iter_resources()] == ["text://example"]
        assert [prompt.name async for prompt in client.iter_prompts()] == ["shorten"]
''',
}


def run(options: argparse.Namespace) -> int:
    """Make the project's folder and its files."""
    name = options.name
    module = _module(name)
    folder = Path(name)
    source = _own_source()
    quoted = source and shlex.quote(source)
    # The README names no folder of this machine, because it may be read on other machines.
    local = source.startswith("/")
    owner = options.github
    if owner is not None and not OWNER.fullmatch(owner):
        raise Exit(f"--github: {owner!r:.100} can't be the name of a user or an organization on GitHub")
    values = {
        "name": name,
        "lower": name.lower(),
        "module": module,
        "owner": owner,
        "install": _install(_CLONE if local else quoted),
        "where": _WHERE if local else "",
    }
    values |= {"owned": Template(_OWNED if owner else "").substitute(values)}
    values |= {"mark": Template(_MARK if owner else "").substitute(values)}
    try:
        folder.mkdir()
        for path, text in FILES.items():
            file = folder / Template(path).substitute(values)
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(Template(text).substitute(values), encoding="utf-8")
        if owner:
            _add_publishing(folder, f"io.github.{owner}/{name.lower()}", f"src/{module}/server.py")
    except FileExistsError:
        raise Exit(f"there is already a file or folder {name}: choose another name, or remove it") from None
    except OSError as exc:
        raise Exit(f"can't make {name}: {exc.strerror or exc}", FAILED) from None
    lines = [
        f"{name}/ has a server, its tests, and a README. What to do next:",
        f"cd {name}",
        "python3 -m venv .venv",
        _install(quoted),
        ".venv/bin/pytest",
        f".venv/bin/trio-mcp inspect src/{module}/server.py",
    ]
    print("\n  ".join(lines))
    return OK


def _add_publishing(folder: Path, name: str, target: str) -> None:
    """Write the ``server.json`` and the workflow of a project, as `trio-mcp publish` would."""
    from trio_mcp._files import write_all  # imported late: few projects are made for publishing
    from trio_mcp.cli.publishing.documents import as_text, server_document
    from trio_mcp.cli.publishing.project import read_project
    from trio_mcp.cli.publishing.workflow import WORKFLOW_PATH, workflow
    from trio_mcp.types.common import Implementation

    project = read_project(folder)
    info = Implementation(name=project.name, version=project.text("version"))
    document = server_document(name, info.version, project, info)
    write_all({folder / "server.json": as_text(document), folder / WORKFLOW_PATH: workflow(target)})


def _module(name: str) -> str:
    """Convert the name of a project to the name of its module.

    Raises:
        Exit: If the project can't have that name.
    """
    if not NAME.fullmatch(name):
        raise Exit(
            f"a project can't be called {name!r}: its name must begin with a letter, end with a letter or digit, and"
            " contain only letters, digits, - and _ in between"
        )
    module = name.lower().replace("-", "_")
    # The name of an installed module is refused, too: either the project would hide that module from this package, or
    # the module would hide the project.
    known = module in (*TAKEN, *sys.stdlib_module_names) or keyword.iskeyword(module)
    if known or importlib.util.find_spec(module) is not None:
        raise Exit(f"a project can't be called {name!r}, as the name {module} is already in use")
    return module


def _install(source: str) -> str:
    return f'.venv/bin/pip install {source} -e ".[test]"' if source else '.venv/bin/pip install -e ".[test]"'


def _own_source() -> str:
    """Return where this package was installed from, in the form that pip accepts; "" means a package index."""
    try:
        found = json.loads(metadata.distribution("trio-mcp").read_text("direct_url.json") or "{}")
        url = found.get("url", "")
        if "vcs_info" in found:
            return f"{found['vcs_info']['vcs']}+{url}@{found['vcs_info']['commit_id']}"
        # The URL may refer to a file, such as a wheel, or to a folder, such as a clone.
        return unquote(urlsplit(url).path) if url.startswith("file:") else url
    except (metadata.PackageNotFoundError, ValueError, KeyError):
        return ""
