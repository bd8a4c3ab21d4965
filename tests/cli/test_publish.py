"""`trio-mcp publish`: what a registry and a host need to know of a server, checked before anybody else does."""

from __future__ import annotations

import io
import json
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import trio
from ruamel.yaml import YAML

from tests.cli.running import ROOT
from trio_mcp import Client, StdioServerParameters, _files as files
from trio_mcp.cli import main
from trio_mcp.cli.exits import FAILED, OK, USAGE
from trio_mcp.cli.publishing.bundle import MOST_BYTES
from trio_mcp.cli.publishing.documents import SCHEMA, document_problems

SERVER = "src/counter/server.py"
NAME = "io.github.octocat/counter"


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Iterator[Path]:
    """The current folder: a project that is ready to be published, without a ``server.json``."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert main(["new", "counter", "--github", "octocat"]) == OK
    folder = tmp_path / "counter"
    (folder / "server.json").unlink()
    shutil.rmtree(folder / ".github")
    monkeypatch.chdir(folder)
    capsys.readouterr()
    yield folder
    forget()


def forget() -> None:
    """Forget the server's module, of which each test has another version."""
    for name in [name for name in sys.modules if name in ("server", "_served_server") or name.startswith("counter")]:
        del sys.modules[name]


def edit(file: str, old: str, new: str) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / file
        text = path.read_text()
        assert old in text
        path.write_text(text.replace(old, new))

    return change


def put(file: str, content: str | bytes) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())

    return change


def toml(old: str, new: str) -> Callable[[Path], None]:
    return edit("pyproject.toml", old, new)


def document(**members: Any) -> Callable[[Path], None]:
    """Write a ``server.json`` that is right but for some members."""
    return put("server.json", json.dumps({**RIGHT, **members}))


def content_of(folder: Path) -> dict[str, bytes | str]:
    """Everything in a folder, but what Python has compiled."""
    found = {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else "not a file"
        for path in folder.rglob("*")
    }
    return {name: content for name, content in found.items() if "__pycache__" not in name}


PACKAGE: dict[str, Any] = {
    "registryType": "pypi",
    "identifier": "counter",
    "version": "0.1.0",
    "runtimeHint": "uvx",
    "transport": {"type": "stdio"},
}
RIGHT: dict[str, Any] = {
    "$schema": SCHEMA,
    "name": NAME,
    "description": "An MCP server",
    "version": "0.1.0",
    "repository": {"url": "https://github.com/octocat/counter", "source": "github"},
    "packages": [PACKAGE],
}


# --- what is made ------------------------------------------------------------------------------------------------


def test_it_shows_what_it_would_write_and_writes_nothing(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = content_of(project)
    assert main(["publish", SERVER]) == OK
    out = capsys.readouterr().out
    assert json.loads(out[out.index("{") : out.rindex("}") + 1]) == RIGHT
    assert content_of(project) == before


def test_it_writes_what_is_asked_for(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = content_of(project)
    words = [word for each in ("server.json", "mcpb", "workflow") for word in ("--write", each)]
    assert main(["publish", SERVER, *words]) == OK
    made = content_of(project)
    assert {name for name, content in made.items() if content != before.get(name)} == {
        *("server.json", "dist", "dist/counter-0.1.0.mcpb"),
        *(".github", ".github/workflows", ".github/workflows/publish-mcp.yml"),
    }
    assert json.loads((project / "server.json").read_text()) == RIGHT
    assert (project / "server.json").stat().st_mode & 0o077 == 0o044 & ~_umask()
    # Once more, nothing is left to do, so nothing is refused.
    forget()
    assert main(["publish", SERVER, *words]) == OK
    assert content_of(project) == made
    assert "up to date" in capsys.readouterr().out


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_what_new_makes_for_a_repository_is_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert main(["new", "Counter", "--github", "octocat"]) == OK
    before = content_of(tmp_path)
    assert main(["publish", "Counter/" + SERVER, "--write", "server.json", "--write", "workflow"]) == OK
    assert content_of(tmp_path) == before
    assert "up to date" in capsys.readouterr().out
    forget()


def test_new_without_a_repository_has_nothing_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", "counter"]) == OK
    text = "".join(map(str, content_of(tmp_path).values()))
    assert "github" not in text
    assert "$" not in (tmp_path / "counter/pyproject.toml").read_text()


@pytest.mark.parametrize("owner", ["", "-x", "x-", "a--b", "a/b", "a.b", "é", "x" * 40, "\x1b[31m", "a\n"])
def test_an_owner_that_github_would_not_have(
    owner: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", "counter", f"--github={owner}"]) == USAGE
    assert "can't be the name of a user or an organization on GitHub" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_what_was_added_by_hand_is_kept(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    key = {"name": "API_KEY", "isSecret": True}
    mine = {**PACKAGE, "version": "0.0.9", "environmentVariables": [key]}
    remote = {"type": "streamable-http", "url": "https://counter.example/mcp"}
    document(version="0.0.9", packages=[mine], remotes=[remote], title="Counter")(project)
    assert main(["publish", SERVER]) == FAILED
    assert "is not up to date: its version, packages would change" in capsys.readouterr().err
    forget()
    assert main(["publish", SERVER, "--write=server.json"]) == FAILED
    assert "server.json is there already, with another content: add --force to replace it; what you" in (
        capsys.readouterr().err
    )
    forget()
    assert main(["publish", SERVER, "--write=server.json", "--force"]) == OK
    packages = [{**mine, "version": "0.1.0"}]
    assert json.loads((project / "server.json").read_text()) == {
        **RIGHT,
        "packages": packages,
        "remotes": [remote],
        "title": "Counter",
    }


def test_what_the_server_says_about_itself_is_in_it(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit(
        SERVER,
        'Server("counter", version="0.1.0"',
        'Server(Implementation(name="counter", version="0.1.0", title="Counter", description="Counts.",'
        ' website_url="https://counter.example", icons=[Icon(src="https://counter.example/i.png", sizes=["48x48"])])',
    )(project)
    edit(SERVER, "from trio_mcp import", "from trio_mcp.types import Icon, Implementation\nfrom trio_mcp import")(
        project
    )
    assert main(["publish", SERVER, "--write=server.json"]) == OK
    found = json.loads((project / "server.json").read_text())
    assert (found["title"], found["description"], found["websiteUrl"], found["icons"]) == (
        "Counter",
        "Counts.",
        "https://counter.example",
        [{"src": "https://counter.example/i.png", "sizes": ["48x48"]}],
    )


def test_the_name_is_that_of_the_option_or_the_file_or_the_mark(project: Path) -> None:
    edit("README.md", NAME, "com.example/counter")(project)
    assert main(["publish", SERVER, "--write=server.json"]) == OK
    assert json.loads((project / "server.json").read_text())["name"] == "com.example/counter"


@pytest.mark.parametrize("target", ["counter.server", "counter.server:server", "src/../" + SERVER, "./" + SERVER])
def test_the_server_may_be_named_in_any_way(
    target: str, project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.syspath_prepend(str(project / "src"))
    assert main(["publish", target, "--write=server.json", "--write=workflow", "--write=mcpb"]) == OK
    assert json.loads((project / "server.json").read_text()) == RIGHT
    named = target if "/" not in target else SERVER
    assert f"trio-mcp publish {named}\n" in (project / ".github/workflows/publish-mcp.yml").read_text()


def test_a_dynamic_version_is_that_of_the_installed_package(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    toml('version = "0.1.0"\n', 'dynamic = ["version"]\n')(project)
    toml('name = "counter"\n', 'name = "attrs"\n')(project)
    toml("\ncounter =", "\nattrs =")(project)
    assert main(["publish", SERVER]) == FAILED
    assert f"but pyproject.toml says {metadata.version('attrs')!r}" in capsys.readouterr().err


def test_the_workflow_has_the_rights_that_it_needs_and_no_more(project: Path) -> None:
    assert main(["publish", SERVER, "--write=workflow"]) == OK
    made = YAML(typ="safe").load((project / ".github/workflows/publish-mcp.yml").read_text())
    assert made["permissions"] == {}
    assert {name: job["permissions"] for name, job in made["jobs"].items()} == {
        "build": {"contents": "read"},
        "pypi": {"id-token": "write"},
        "registry": {"contents": "read", "id-token": "write"},
    }
    steps = [step for job in made["jobs"].values() for step in job["steps"]]
    # Those of our own release, which are kept up to date.
    ours = (ROOT / ".github/workflows/release.yml").read_text()
    pins = [step["uses"] for step in steps if "uses" in step]
    assert [pin for pin in pins if len(pin.partition("@")[2]) != 40 or pin not in ours] == []
    assert sum(f"trio-mcp publish {SERVER}" in step.get("run", "") for step in steps) == 1


# --- the bundle --------------------------------------------------------------------------------------------------


def test_the_bundle_holds_the_package_and_nothing_hidden_and_is_always_the_same(project: Path) -> None:
    for name in (".env", "src/counter/.secret", "src/counter/__pycache__/x.pyc", "src/counter/x.pyc", "notes.txt"):
        put(name, "secret")(project)
    put("LICENSE", "MIT")(project)
    put("src/counter/data/words.txt", "one")(project)
    assert main(["publish", SERVER, "--write=mcpb"]) == OK
    packed = (project / "dist/counter-0.1.0.mcpb").read_bytes()
    with zipfile.ZipFile(io.BytesIO(packed)) as archive:
        assert archive.namelist() == [
            *("manifest.json", "pyproject.toml", "README.md", "LICENSE"),
            *("src/counter/__init__.py", "src/counter/data/words.txt", "src/counter/server.py"),
        ]
        found = json.loads(archive.read("manifest.json"))
    assert found["manifest_version"] == "0.4"
    assert found["server"] == {
        "type": "uv",
        "entry_point": SERVER,
        "mcp_config": {"command": "uv", "args": ["run", "--directory", "${__dirname}", "counter"]},
    }
    assert [tool["name"] for tool in found["tools"]] == ["count", "count_all"]
    os.utime(project / SERVER, (0, 0))
    (project / "dist/counter-0.1.0.mcpb").unlink()
    forget()
    assert main(["publish", SERVER, "--write=mcpb"]) == OK
    assert (project / "dist/counter-0.1.0.mcpb").read_bytes() == packed


@pytest.mark.again
def test_a_bundle_is_one_to_those_who_made_the_format(project: Path, tmp_path: Path) -> None:
    """The npm package @anthropic-ai/mcpb, over the manifest and the zip file."""
    from tests.interop.node_peers import NODE, install

    peers = install(print, Path(__file__).with_name("package.json"), "again")
    tool = [NODE, peers.modules / "node_modules/@anthropic-ai/mcpb/dist/cli/cli.js"]
    assert main(["publish", SERVER, "--write=mcpb"]) == OK
    unpacked = tmp_path / "unpacked"
    for words in (["unpack", project / "dist/counter-0.1.0.mcpb", unpacked], ["validate", unpacked / "manifest.json"]):
        done = subprocess.run([*tool, *words], capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    assert "Manifest schema validation passes" in done.stdout
    # It says no where there is a fault: what it says above means something.
    edit("manifest.json", '"type": "uv"', '"type": "trio"')(unpacked)
    assert subprocess.run([*tool, "validate", unpacked / "manifest.json"], capture_output=True).returncode == 1


@pytest.mark.again
async def test_a_wheel_starts_in_an_empty_environment_by_the_name_of_its_package(project: Path, tmp_path: Path) -> None:
    """As `uvx counter` does: what is checked of the script is what makes this work."""
    assert main(["publish", SERVER, "--write=server.json"]) == OK
    folder = tmp_path / "environment"
    venv.create(folder, with_pip=True)
    pip = [folder / "bin/python", "-m", "pip", "-q", "--disable-pip-version-check"]
    wheels = tmp_path / "wheels"
    await trio.run_process([*pip, "wheel", "--no-deps", "--wheel-dir", wheels, project, ROOT], cwd=tmp_path)
    await trio.run_process([*pip, "install", *wheels.iterdir()], cwd=tmp_path)
    identifier = json.loads((project / "server.json").read_text())["packages"][0]["identifier"]
    async with Client(StdioServerParameters(str(folder / "bin" / identifier), [])) as client:
        assert client.server_info is not None
        assert client.server_info.version == "0.1.0"
        assert (await client.call_tool("count", {"text": "one two"})).data == {"words": 2, "characters": 7}


# --- wrong inputs ------------------------------------------------------------------------------------------------

Wrong = tuple[Callable[[Path], object], list[str], int, str]


def nothing(folder: Path) -> None:
    pass


def linked(folder: Path) -> None:
    (folder / "src/counter/link.txt").symlink_to("/etc/hostname")


def huge(folder: Path) -> None:
    with (folder / "src/counter/data.bin").open("wb") as file:
        file.truncate(MOST_BYTES + 1)


def as_folder(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).mkdir(parents=True)


def as_pipe(name: str) -> Callable[[Path], None]:
    return lambda folder: os.mkfifo(folder / name)


def gone(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


JSON, MCPB, FLOW = ["--write=server.json"], ["--write=mcpb"], ["--write=workflow"]
MARK = f"<!-- mcp-name: {NAME} -->"

WRONG: dict[str, Wrong] = {
    "no file": (nothing, ["src/nothing.py"], USAGE, "there is no file 'src/nothing.py'"),
    "no server in the file": (nothing, ["src/counter/__init__.py"], USAGE, "has no Server at its top level"),
    "no server of that name": (nothing, [f"{SERVER}:other"], USAGE, "has no 'other'; the servers in it: server"),
    "a file that fails": (put(SERVER, "1 / 0"), [], FAILED, "can't be imported: ZeroDivisionError"),
    "force alone": (nothing, ["--force"], USAGE, "--force does not apply without --write"),
    "an unknown thing to write": (nothing, ["--write", "toml"], USAGE, "must be one of server.json, mcpb, workflow"),
    "a name without a slash": (nothing, ["--name=counter"], USAGE, "--name: 'counter' is not of the form namespace/"),
    "a name with two slashes": (nothing, ["--name=io.github/octocat/counter"], USAGE, "is not of the form"),
    "a name with a space": (nothing, ["--name=io.github.octocat/a b"], USAGE, "is not of the form"),
    "a name of one letter": (nothing, ["--name=io.github.octocat/x"], USAGE, "a letter or digit at either end"),
    "a name that ends with a dot": (nothing, ["--name=io.github.octocat/xy."], USAGE, "is not of the form"),
    "an empty name": (nothing, ["--name="], USAGE, "--name: '' is not of the form"),
    "a name that is too long": (
        nothing,
        [f"--name=io.github.octocat/{'x' * 200}"],
        USAGE,
        "has 218 characters; at most",
    ),
    "a name with control characters": (nothing, ["--name=\x1b[31m/x\ny"], USAGE, "is not of the form"),
    "the name of another owner": (
        edit("README.md", NAME, "io.github.hubot/counter"),
        [],
        FAILED,
        "belongs to 'hubot', but the repository in pyproject.toml to 'octocat'",
    ),
    "an owner in other letters": (
        edit("README.md", NAME, "io.github.Octocat/counter"),
        [],
        FAILED,
        "publish only names of its own owner, as GitHub spells it",
    ),
    "no way to know the name": (
        lambda folder: (edit("README.md", MARK, "")(folder), toml("Repository =", "Docs =")(folder)),
        [],
        USAGE,
        "the name of the server in the registry is not known: give --name",
    ),
    "no project": (gone("pyproject.toml"), [], FAILED, "there is no pyproject.toml beside server.py or in a folder"),
    "no TOML": (put("pyproject.toml", "[project"), [], FAILED, "pyproject.toml is not valid TOML: "),
    "TOML of another coding": (put("pyproject.toml", b"\xff"), [], FAILED, "pyproject.toml is not valid UTF-8"),
    "TOML that is huge": (put("pyproject.toml", "#" * 1_000_001), [], FAILED, "has more than 1,000,000 bytes"),
    "TOML that goes deep": (put("pyproject.toml", f"x = {'[' * 5000}"), [], FAILED, "pyproject.toml is not valid TOML"),
    "no package in it": (put("pyproject.toml", "[tool.x]"), [], FAILED, "has no table [project]"),
    "a project that is a list": (put("pyproject.toml", "project = []"), [], FAILED, "has no table [project]"),
    "no name of the package": (
        toml('name = "counter"\n', "name = 3\n"),
        [],
        FAILED,
        "'' can't be the name of a package",
    ),
    "a name that no package has": (
        toml('name = "counter"\n', 'name = "-x"\n'),
        [],
        FAILED,
        "'-x' can't be the name of",
    ),
    "no version": (toml('version = "0.1.0"\n', ""), [], FAILED, "the version '' is not one that can be released"),
    "a version that is a word": (toml('"0.1.0"', '"latest"'), [], FAILED, "the version 'latest' is not one that can"),
    "a version that is a span": (toml('"0.1.0"', '">=1.0"'), [], FAILED, "the version '>=1.0' is not one that can be"),
    "a version with a wildcard": (toml('"0.1.0"', '"1.x"'), [], FAILED, "the version '1.x' is not one that can be"),
    "a local version": (toml('"0.1.0"', '"1.0+mine"'), [], FAILED, "the version '1.0+mine' is not one that can be"),
    "a version that PyPI writes in another way": (toml('"0.1.0"', '"v1.0-beta"'), [], FAILED, "as PyPI does, such as"),
    "a version twice": (
        toml('"0.1.0"', '"0.2.0"'),
        [],
        FAILED,
        "the server says its version is '0.1.0', but pyproject.toml says '0.2.0'",
    ),
    "a version that is not installed": (
        toml('version = "0.1.0"\n', 'dynamic = ["version"]\n'),
        [],
        FAILED,
        "the version of 'counter' is dynamic, and the package is not installed here",
    ),
    "no description": (toml('description = "An MCP server"\n', ""), [], FAILED, "server.json: description: is empty"),
    "a description that is too long": (
        toml('"An MCP server"', f'"{"x" * 101}"'),
        [],
        FAILED,
        "server.json: description: has 101 characters; at most 100 are allowed",
    ),
    "a title that is too long": (document(title="x" * 101), [], FAILED, "title: has 101 characters; at most 100"),
    "no readme": (toml('readme = "README.md"\n', ""), [f"--name={NAME}"], FAILED, "pyproject.toml: there is no readme"),
    "a readme that is not there": (gone("README.md"), [], FAILED, "names 'README.md' as its readme, but there is no"),
    "a readme of another coding": (put("README.md", b"\xff"), [], FAILED, "README.md is not valid UTF-8"),
    "a readme that is a folder": (
        lambda folder: (gone("README.md")(folder), as_folder("README.md")(folder)),
        [],
        FAILED,
        "README.md is not a regular file",
    ),
    "no mark": (edit("README.md", MARK, ""), [], FAILED, "README.md: lacks the mark that proves to the registry"),
    "a mark without its space": (edit("README.md", "mcp-name: ", "mcp-name:"), [], FAILED, f"add the line {MARK}"),
    "the mark of another": (
        nothing,
        ["--name=io.github.octocat/other"],
        FAILED,
        f"says 'mcp-name: {NAME}', but the name is io.github.octocat/other; write",
    ),
    "a mark that goes on": (edit("README.md", f"{NAME} ", f"{NAME}."), [], FAILED, "nothing may follow the name in"),
    "no scripts": (
        toml('[project.scripts]\ncounter = "counter.server:main"\n', ""),
        [],
        FAILED,
        "`uvx counter` would start nothing, because [project.scripts] has no 'counter', none",
    ),
    "a script of another name": (
        toml("\ncounter =", "\ncount-server ="),
        [],
        FAILED,
        "only 'count-server': add counter =",
    ),
    "a script that is a module": (
        toml("server:main", "server"),
        [],
        FAILED,
        "is not of the form package.module:function",
    ),
    "a script that is a number": (toml('"counter.server:main"', "3"), [], FAILED, "has no 'counter', none"),
    "a script in no module": (
        toml("counter.server:main", "counter.cli:main"),
        [],
        FAILED,
        "the project has no such module",
    ),
    "a script that is not there": (toml("server:main", "server:start"), [], FAILED, "which has none of that name"),
    "a script that is async": (
        edit(SERVER, "def main(", "async def main("),
        [],
        FAILED,
        "main is async, but a script calls",
    ),
    "a classifier against it": (
        toml("authors", 'classifiers = ["Private :: Do Not Upload"]\nauthors'),
        [],
        FAILED,
        "PyPI refuses packages with a classifier that begins with 'Private ::'",
    ),
    "a dependency from a URL": (
        toml('["trio-mcp"]', '["trio-mcp @ git+https://host.example/x"]'),
        [],
        FAILED,
        "PyPI refuses packages that depend on a URL: 'trio-mcp @ git+",
    ),
    "a malformed server.json": (put("server.json", "{"), [], FAILED, "server.json is not valid JSON: line 1: "),
    "a server.json that is a list": (put("server.json", "[]"), [], FAILED, "server.json must be a JSON object"),
    "a server.json with a key twice": (put("server.json", '{"a": 1, "a": 2}'), [], FAILED, "has the key 'a' twice"),
    "a server.json that goes deep": (put("server.json", "[" * 100_000), [], FAILED, "it is nested too deeply"),
    "a server.json of another coding": (put("server.json", b"\xff"), [], FAILED, "server.json is not valid UTF-8"),
    "a server.json that is huge": (put("server.json", " " * 1_000_001), [], FAILED, "has more than 1,000,000 bytes"),
    "a server.json that is a folder": (as_folder("server.json"), [], FAILED, "server.json is not a regular file"),
    "a server.json that is a pipe": (as_pipe("server.json"), [], FAILED, "server.json is not a regular file"),
    "a server.json that is old": (document(version="0.0.1"), [], FAILED, "is not up to date: its version would change"),
    "a server.json that is there": (document(version="0.0.1"), JSON, FAILED, "is there already, with another content"),
    "a package of no known type": (
        document(packages=[{**PACKAGE, "registryType": "conda"}, PACKAGE]),
        JSON,
        FAILED,
        "packages[0].registryType: 'conda' is not one of",
    ),
    "a bundle that is there": (put("dist/counter-0.1.0.mcpb", "x"), MCPB, FAILED, "is there already, with another"),
    "a bundle that is a folder": (as_folder("dist/counter-0.1.0.mcpb"), MCPB, FAILED, "it is not a regular file"),
    "no folder for the bundle": (put("dist", "x"), MCPB, FAILED, "can't write "),
    "a link in the bundle": (linked, MCPB, FAILED, "link.txt is a symbolic link, which is not packed"),
    "a readme outside of the project": (
        lambda folder: (
            toml('"README.md"', '"../README.md"')(folder),
            (folder / "README.md").rename(folder.parent / "README.md"),
        ),
        MCPB,
        FAILED,
        "the readme, or the module of the script, is outside the project's folder",
    ),
    "a readme at the root": (
        lambda folder: toml('"README.md"', f'"{folder}/../x.md"')(folder) or put("../x.md", MARK)(folder),
        MCPB,
        FAILED,
        "the readme, or the module of the script, is outside the project's folder",
    ),
    "a bundle that is huge": (huge, MCPB, FAILED, "is there a folder of data in it?"),
    "a bundle without an author": (
        lambda folder: (
            toml('authors = [{ name = "octocat" }]\n', "")(folder),
            edit("README.md", NAME, "com.example/counter")(folder),
        ),
        MCPB,
        FAILED,
        "a bundle names its author: add authors",
    ),
    "a workflow that is there": (put(".github/workflows/publish-mcp.yml", "x"), FLOW, FAILED, "is there already, with"),
    "a workflow for a domain": (
        edit("README.md", NAME, "com.example/counter"),
        FLOW,
        FAILED,
        "signs in as a repository of GitHub, whose names begin with io.github.OWNER/",
    ),
    "no folder for the workflow": (put(".github", "x"), [*JSON, *MCPB, *FLOW], FAILED, "can't write "),
}


def test_there_are_sixty_wrong_inputs_and_more() -> None:
    assert len(WRONG) >= 60


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_input_is_one_line_and_leaves_everything_as_it_was(
    name: str, project: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    change, words, status, said = WRONG[name]
    change(project)
    before = content_of(project)
    target = [] if words and not words[0].startswith("-") else [SERVER]
    try:
        found: object = main(["publish", *target, *words])
    except SystemExit as exc:
        found = exc.code
    out, error = capsys.readouterr()
    last = error.splitlines()[-1]
    assert (found, out) == (status, "")
    assert last.startswith("trio-mcp publish: ")
    assert said in last
    # The traceback of an exception in the user's own file is printed before the line.
    assert error.count("\n") == 1 or "ZeroDivisionError" in error
    assert "\x1b" not in error
    assert content_of(project) == before


def test_several_problems_are_told_together(project: Path, capsys: pytest.CaptureFixture[str]) -> None:
    edit("README.md", MARK, "")(project)
    toml("\ncounter =", "\nother =")(project)
    assert main(["publish", SERVER]) == FAILED
    error = capsys.readouterr().err
    assert error.count("\n") == 2
    assert "lacks the mark" in error
    assert "uvx counter" in error


@pytest.mark.parametrize("step", ["replace", "fsync", "chmod"])
def test_a_disk_that_fails_leaves_nothing_half_written(
    step: str, project: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    before = content_of(project)
    calls = []
    real = getattr(os, step)

    def fail(*arguments: Any) -> None:
        calls.append(arguments)
        # The first file is written in any case; for the step that renames, all have been.
        if len(calls) == (1 if step == "replace" else 2):
            raise OSError(28, "No space left on device", "server.json")
        real(*arguments)

    monkeypatch.setattr(files.os, step, fail)
    assert main(["publish", SERVER, *JSON, *MCPB, *FLOW]) == FAILED
    assert capsys.readouterr().err == "trio-mcp publish: can't write server.json: No space left on device\n"
    assert content_of(project) == before


# --- the rules of server.json ------------------------------------------------------------------------------------


def of(**members: Any) -> dict[str, Any]:
    return {**RIGHT, **members}


def package(**members: Any) -> dict[str, Any]:
    return of(packages=[{**PACKAGE, **members}])


def argument(**members: Any) -> dict[str, Any]:
    return package(packageArguments=[members])


def remote(**members: Any) -> dict[str, Any]:
    return of(remotes=[{"type": "streamable-http", "url": "https://counter.example/mcp", **members}])


BUNDLE = {
    "registryType": "mcpb",
    "identifier": "https://github.com/octocat/counter/releases/download/v0.1.0/counter.mcpb",
    "fileSha256": "0" * 64,
    "transport": {"type": "stdio"},
}
VALID: dict[str, dict[str, Any]] = {
    "the least": {key: RIGHT[key] for key in ("$schema", "name", "description", "version", "packages")},
    "a remote alone": {key: value for key, value in remote().items() if key != "packages"},
    "both": remote(),
    "a title and a page": of(title="Counter", websiteUrl="https://counter.example"),
    "100 characters": of(title="é" * 100, description="é" * 100),
    "an icon": of(icons=[{"src": "https://x.example/i.png", "mimeType": "image/png", "sizes": ["48x48", "any"]}]),
    "a folder of a repository": of(repository={**RIGHT["repository"], "subfolder": "servers/counter"}),
    "GitLab": of(repository={"url": "https://gitlab.com/group/sub/counter", "source": "gitlab"}),
    "a bundle": of(packages=[BUNDLE]),
    "an image": of(packages=[{"registryType": "oci", "identifier": "ghcr.io/a/b:1", "transport": {"type": "stdio"}}]),
    "npm": package(registryType="npm", identifier="@octocat/counter"),
    "a secret variable": package(environmentVariables=[{"name": "KEY", "isRequired": True, "isSecret": True}]),
    "an argument with a value": argument(type="positional", value="serve"),
    "an argument with a hint": argument(type="positional", valueHint="folder", isRepeated=True, format="filepath"),
    "an option": argument(type="named", name="--port", default="8000", format="number", choices=["8000", "8001"]),
    "a port of its own": package(
        transport={"type": "streamable-http", "url": "http://localhost:{--port}/mcp"},
        packageArguments=[{"type": "named", "name": "--port", "default": "8000"}],
    ),
    "a tenant": remote(url="https://{tenant}.counter.example/mcp", variables={"tenant": {"isRequired": True}}),
    "a header": remote(headers=[{"name": "X-Key", "value": "Bearer {key}", "variables": {"key": {"isSecret": True}}}]),
    "HTTP+SSE": remote(type="sse"),
    "members of others": of(_meta={"io.modelcontextprotocol.registry/publisher-provided": {"a": None}}, other=None),
}
INVALID: dict[str, tuple[object, str]] = {
    "no object": ([], "the document: "),
    "no name": ({key: value for key, value in RIGHT.items() if key != "name"}, "name: is missing"),
    "no description": ({key: value for key, value in RIGHT.items() if key != "description"}, "description: is missing"),
    "a null": (of(title=None), "title: is null; leave it out instead"),
    "an older schema": (of(**{"$schema": SCHEMA.replace("2025-12-11", "2025-07-09")}), "$schema: is "),
    "a name with no slash": (of(name="counter"), "name: 'counter' is not of the form namespace/name"),
    "a name with an end that is refused": (of(name="io.github.octocat/-x"), "name: 'io.github.octocat/-x' is not of"),
    "101 characters": (of(description="x" * 101), "description: has 101 characters; at most 100 are allowed"),
    "a blank title": (of(title="  "), "title: is blank"),
    "the latest": (of(version="latest"), "version: 'latest' is not one version"),
    "a range": (package(version="^1.2.3"), "packages[0].version: '^1.2.3' is not one version"),
    "a wildcard": (package(version="1.2.*"), "packages[0].version: '1.2.*' is not one version"),
    "alternatives": (package(version="1.2 || 1.3"), "packages[0].version: '1.2 || 1.3' is not one version"),
    "no transport": (package(transport={}), "packages[0].transport: "),
    "stdio at a URL": (package(transport={"type": "stdio", "url": "http://x"}), "transport.url: must be left out"),
    "another index": (package(registryBaseUrl="https://x.example"), "registryBaseUrl: leave it out"),
    "a bundle without its hash": (
        of(packages=[{key: value for key, value in BUNDLE.items() if key != "fileSha256"}]),
        "packages[0].fileSha256: is missing",
    ),
    "a hash that is too short": (of(packages=[{**BUNDLE, "fileSha256": "0" * 63}]), "packages[0].fileSha256: "),
    "a hint that is missing": (argument(type="positional"), "packageArguments[0]: a positional argument needs a value"),
    "an option with its value": (argument(type="named", name="--port 8000"), "must be that of an option alone"),
    "an option that repeats itself": (argument(type="named", name="--a", value="--a=1"), "which would be there twice"),
    "a flag that is a word": (
        argument(type="positional", value="x", isRepeated="yes"),
        "packageArguments[0].isRepeated: ",
    ),
    "a format of its own": (argument(type="positional", value="x", format="date"), "packageArguments[0].format: "),
    "a variable that is not declared": (remote(url="https://{t}.x.example/mcp"), "variables that are not declared: t"),
    "a remote on this machine": (remote(url="http://127.0.0.1/mcp"), "leads to the machine of each reader"),
    "a remote over stdio": (of(remotes=[{"type": "stdio", "url": "https://x"}]), "remotes[0].type: "),
    "an icon over HTTP": (of(icons=[{"src": "http://x.example/i.png"}]), "does not begin with https://"),
    "an icon without a size": (of(icons=[{"src": "https://x/i.png", "sizes": ["big"]}]), "icons[0].sizes[0]: "),
    "another forge": (of(repository={"url": "https://x.example/a/b", "source": "gitea"}), "repository.source: 'gitea'"),
    "a folder above": (of(repository={**RIGHT["repository"], "subfolder": "../x"}), "repository.subfolder: '../x' is"),
    "nothing to connect to": (of(packages=[]), "has neither packages nor remotes"),
    "a word of its own": (of(_meta={"io.modelcontextprotocol.registry/publisher-provided": "x"}), "must be an object"),
    "much of its own": (
        of(_meta={"io.modelcontextprotocol.registry/publisher-provided": {"a": "x" * 4090}}),
        "has 4098 bytes; at most 4096 are allowed",
    ),
}


@pytest.mark.parametrize("name", VALID)
def test_a_document_that_the_registry_takes(name: str) -> None:
    assert document_problems(VALID[name]) == []


@pytest.mark.parametrize("name", INVALID)
def test_a_document_that_the_registry_refuses(name: str) -> None:
    given, said = INVALID[name]
    problems = document_problems(given)
    assert len(problems) == 1
    assert said in problems[0]
