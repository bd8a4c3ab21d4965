"""`install` and `config`: what hosts are told, and that nothing else in their files changes."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, strategies as st

from tests.cli.running import ROOT, SHOP
from trio_mcp import Client, HttpServerParameters, StdioServerParameters, load_config
from trio_mcp.cli import main
from trio_mcp.cli.editing import NotEditable, Taken, with_json_entry, with_yaml_entry
from trio_mcp.cli.hosts import HOSTS
from trio_mcp.client.config.text import parsed, without_comments
from trio_mcp.testing.strategies import json_values

URL = "https://host.example/mcp"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty home, and a project in it with a server."""
    for name in ("XDG_CONFIG_HOME", "APPDATA"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    project = tmp_path / "project"
    project.mkdir()
    (project / "shop.py").write_text(SHOP)
    (project / "lib/src").mkdir(parents=True)
    (project / "lib/src/server.py").touch()
    monkeypatch.chdir(project)
    return tmp_path


def process(*words: str, env: dict[str, str] | None = None) -> StdioServerParameters:
    return StdioServerParameters(sys.executable, ["-m", "trio_mcp", *words], env=env)


def read_yaml(text: str) -> dict[str, Any]:
    """Read the YAML that we write: a table of tables, whose values are JSON."""
    content: dict[str, Any] = {}
    for line in text.splitlines():
        key, _, value = line.strip().partition(":")
        if not line.startswith(" "):
            table = content[key] = {}
        elif not line.startswith("   "):
            entry = table[json.loads(key)] = {}
        else:
            entry[key] = json.loads(value)
    return content


# --- each host ----------------------------------------------------------------------------------------------------

FILES = {
    "claude-desktop": (".config/Claude/claude_desktop_config.json", None),
    "claude-code": (".claude.json", ".mcp.json"),
    "cursor": (".cursor/mcp.json", ".cursor/mcp.json"),
    "vscode": (".config/Code/User/mcp.json", ".vscode/mcp.json"),
    "gemini-cli": (".gemini/settings.json", ".gemini/settings.json"),
    "goose": (".config/goose/config.yaml", None),
    "zed": (".config/zed/settings.json", ".zed/settings.json"),
}


@pytest.mark.parametrize("host", HOSTS)
def test_what_a_host_is_told_is_what_our_own_reader_reads(
    host: str, home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "platform", "linux")
    expected = {
        "shop": process("run", str(home / "project/shop.py"), "--", "--root", "/data", env={"KEY": "k"}),
        "far": process("bridge", URL) if host == "claude-desktop" else HttpServerParameters(URL),
        "wide": process("bridge", "wss://host.example"),
    }
    lines = (
        ["shop.py", "--env", "KEY=k", "--", "--root", "/data"],
        [URL, "--name", "far"],
        ["wss://host.example", "--name", "wide"],
    )
    user, project = FILES[host]
    for folder, scope in ((home, []), *([(home / "project", ["--scope", "project"])] if project else [])):
        file = folder / (project if scope and project else user)
        for line in lines:
            assert main(["install", host, *scope, *line]) == 0
            printed = capsys.readouterr().out
            assert str(file) in printed
            name = "shop" if line[0] == "shop.py" else line[2]
            # What is shown to be put there by hand is what --write puts there.
            shown = printed.split("\n\n")[1]
            entry = (read_yaml if HOSTS[host].yaml else json.loads)(shown)
            assert load_config(entry, environ={})[name] == expected[name]
            assert main(["install", host, "--write", *scope, *line]) == 0
            assert f"Added {name!r} to {file}" in capsys.readouterr().out
        there = read_yaml(file.read_text()) if HOSTS[host].yaml else file
        assert load_config(there, environ={}) == expected
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


@pytest.mark.parametrize(
    ("host", "platform", "path"),
    [
        ("claude-desktop", "darwin", "/h/Library/Application Support/Claude/claude_desktop_config.json"),
        ("claude-desktop", "win32", "/a/Claude/claude_desktop_config.json"),
        ("claude-desktop", "linux", "/x/Claude/claude_desktop_config.json"),
        ("vscode", "darwin", "/h/Library/Application Support/Code/User/mcp.json"),
        ("vscode", "win32", "/a/Code/User/mcp.json"),
        ("vscode", "freebsd14", "/x/Code/User/mcp.json"),
        ("goose", "darwin", "/h/.config/goose/config.yaml"),
        ("goose", "win32", "/a/Block/goose/config/config.yaml"),
        ("zed", "darwin", "/h/.config/zed/settings.json"),
        ("zed", "linux", "/x/zed/settings.json"),
        ("cursor", "win32", "/h/.cursor/mcp.json"),
    ],
)
def test_where_the_files_are(host: str, platform: str, path: str) -> None:
    environ = {"HOME": "/h", "APPDATA": "/a", "XDG_CONFIG_HOME": "/x"}
    assert str(HOSTS[host].file("user", platform, environ)) == path


def test_the_page_has_the_files_of_each_host() -> None:
    rows = [line for line in (ROOT / "docs/how-to/hosts.md").read_text().splitlines() if line.startswith("| `")]
    for name, host in HOSTS.items():
        files, keys = (row for row in rows if row.startswith(f"| `{name}` |"))
        for path in (host.user["other"], host.user.get("darwin", ""), host.project):
            shown = path.replace("~/.config", "CONFIG")
            # The name of the file is there once, and then an ellipsis.
            assert (shown.rpartition("/")[0] if shown.startswith("CONFIG") else shown) in files
        assert f"| `{host.table}`" in keys
        assert all(f"`{theirs}`" in keys for theirs in host.names.values())
        assert ("bridge" in keys) == (host.remote is None)


async def test_what_was_written_starts_the_server(home: Path) -> None:
    assert main(["install", "cursor", "shop.py:server", "--name", "Shop-1", "--write"]) == 0
    os.chdir("/")
    async with Client(load_config(home / ".cursor/mcp.json")["Shop-1"]) as client:
        assert (await client.call_tool("price", {"item": "pear"})).data == 45


# --- `config`, and the FILE ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("shop.py", {"shop": process("run", "FOLDER/shop.py")}),
        ("./shop.py:server --name x", {"x": process("run", "FOLDER/shop.py:server")}),
        ("lib/src/server.py", {"lib": process("run", "FOLDER/lib/src/server.py")}),
        ("package.server", {"package": process("run", "package.server")}),
        ("package.module:server", {"module": process("run", "package.module:server")}),
        (
            "https://mcp.example.com:8000/mcp",
            {"mcp-example-com": HttpServerParameters("https://mcp.example.com:8000/mcp")},
        ),
        ("unix:/run/x.sock --env A=b", {"server": process("bridge", "unix:/run/x.sock", env={"A": "b"})}),
        (
            "shop.py --env A=b --env C= -- -v",
            {"shop": process("run", "FOLDER/shop.py", "--", "-v", env={"A": "b", "C": ""})},
        ),
    ],
)
def test_config_prints_what_our_own_reader_reads(
    line: str, found: dict[str, Any], home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["config", *line.split()]) == 0
    printed = load_config(json.loads(capsys.readouterr().out), environ={})
    assert repr(printed) == repr(found).replace("FOLDER", str(home / "project"))


# --- the file of a host -------------------------------------------------------------------------------------------


def test_the_file_as_it_was_is_kept_and_another_server_is_not_replaced(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = home / "dotfiles"
    folder.mkdir()
    file = folder / "cursor.json"
    before = '{"mcpServers": {"shop": {"command": "other"}}} // mine\n'
    file.write_text(before)
    file.chmod(0o640)
    (home / ".cursor").mkdir()
    (home / ".cursor/mcp.json").symlink_to(file)
    line = ["install", "cursor", "shop.py", "--write"]
    assert main(line) == 1
    assert "already has a different server named 'shop'; add --force to replace it" in capsys.readouterr().err
    assert (file.read_text(), os.listdir(folder)) == (before, ["cursor.json"])
    assert main([*line, "--force"]) == 0
    assert f"the previous version is in {file}.bak" in capsys.readouterr().out
    assert (home / ".cursor/mcp.json").is_symlink()
    assert load_config(file)["shop"] == process("run", str(home / "project/shop.py"))
    # Once more: nothing to do, and no further copy.
    assert main(line) == 0
    assert "already contains this server; nothing was changed" in capsys.readouterr().out
    assert main([*line, "--name", "second"]) == 0
    kept = {name: (folder / name).read_text() for name in sorted(os.listdir(folder))}
    assert list(kept) == ["cursor.json", "cursor.json.bak", "cursor.json.bak1"]
    assert kept["cursor.json.bak"] == before
    assert kept["cursor.json"].endswith("}} // mine\n")
    assert {stat.S_IMODE((folder / name).stat().st_mode) for name in kept} == {0o640}


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"{", "it is not valid JSON: line 1"),
        (b"[]", "it must be an object, and so must its 'mcpServers'"),
        (b'{"mcpServers": []}', "it must be an object, and so must its 'mcpServers'"),
        (b'{"mcpServers": {}, "mcpServers": {}}', "it has the key 'mcpServers' twice"),
        (b"\xff", "it is not valid UTF-8"),
        (b"[" * 100_000, "it is not valid JSON: it is nested too deeply"),
        (b'{"n": ' + b"1" * 5000 + b"}", "it is not valid JSON: a number in it has too many digits"),
        (b" " * 10_000_001, "it has more than 10,000,000 bytes"),
    ],
)
def test_a_file_that_can_not_be_edited_is_left_as_it_was(
    content: bytes, said: str, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (home / ".cursor").mkdir()
    file = home / ".cursor/mcp.json"
    file.write_bytes(content)
    assert main(["install", "cursor", "shop.py", "--write"]) == 1
    assert f"is left as it was: {said}" in capsys.readouterr().err
    assert (file.read_bytes(), os.listdir(file.parent)) == (content, ["mcp.json"])


def test_what_a_host_writes_meanwhile_is_not_lost(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = home / ".claude.json"
    file.write_text("{}")
    # Called just before the file is replaced.
    monkeypatch.setattr(os, "fsync", lambda descriptor: file.write_text('{"a": 1}'))
    assert main(["install", "claude-code", "shop.py", "--write"]) == 1
    assert f"{file} has just been changed, perhaps by its host, so it was left as it is" in capsys.readouterr().err
    assert (file.read_text(), sorted(home.glob(".*"))) == ('{"a": 1}', [file])


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ["\udcff.py"],
            "a command-line argument is not valid UTF-8, so it can't be written to a host's configuration file",
        ),
        (["shop.py", "--env", "A=\udcff"], "a command-line argument is not valid UTF-8, so it can't"),
        (["shop.py"], "this user has no home directory; set HOME to the one with the host's files"),
    ],
)
def test_what_can_not_be_told_a_host(
    words: list[str], said: str, home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("\udcff.py").touch()
    if "home" in said:
        monkeypatch.delenv("HOME")
        monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    assert main(["install", "cursor", *words, "--write"]) == 2
    assert said in capsys.readouterr().err
    assert not (home / ".cursor").exists()


def test_a_file_that_can_not_be_written(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (home / ".cursor").write_text("not a folder")
    assert main(["install", "cursor", "shop.py", "--write"]) == 1
    assert f"can't write {home}/.cursor/mcp.json: " in capsys.readouterr().err


# --- editing ------------------------------------------------------------------------------------------------------

ENTRY = {"command": "x", "args": []}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", '{\n  "t": {\n    "n": {\n      "command": "x",\n      "args": []\n    }\n  }\n}\n'),
        ("{}", '{\n  "t": {\n    "n": {\n      "command": "x",\n      "args": []\n    }\n  }\n}'),
        ('{"a":1}', '{"a":1,\n  "t": {\n    "n": {\n      "command": "x",\n      "args": []\n    }\n  }\n}'),
        (
            '// c\n{\n\t"t": {\n\t\t"a": {} /* , */ // last\n\t\t// end\n\t}, // t\n}\n',
            '// c\n{\n\t"t": {\n\t\t"a": {}, /* , */ // last\n\t\t// end\n'
            '\t\t"n": {\n\t\t\t"command": "x",\n\t\t\t"args": []\n\t\t}\n\t}, // t\n}\n',
        ),
        (
            '{\r\n    "t": {\r\n        // none yet\r\n    }\r\n}',
            '{\r\n    "t": {\r\n        // none yet\r\n        "n": {\r\n'
            '            "command": "x",\r\n            "args": []\r\n        }\r\n    }\r\n}',
        ),
        (
            '\ufeff{"t": {"a": 1, }}',
            '\ufeff{"t": {"a": 1,\n  "n": {\n    "command": "x",\n    "args": []\n  }\n }}',
        ),
        (
            '{\n  "t": {\n    "n": {"command": "y"}, // old\n    "b": "}"\n  }\n}',
            '{\n  "t": {\n    "n": {\n      "command": "x",\n      "args": []\n    }, // old\n    "b": "}"\n  }\n}',
        ),
    ],
)
def test_json_is_edited_as_text(before: str, after: str) -> None:
    assert with_json_entry(before, "t", "n", ENTRY, force=True) == after
    assert with_json_entry(after, "t", "n", ENTRY, force=False) == after
    with pytest.raises(Taken):
        with_json_entry(after, "t", "n", {}, force=False)


COMMENTS = st.sampled_from(["", " ", "\n", "\r\n\t", "/* , } */", "// ]\n", "/* \n */"])


@given(st.dictionaries(st.sampled_from(["t", "a", '"//']) | st.text(max_size=3), json_values(4), max_size=3), st.data())
def test_any_json_keeps_the_rest_and_its_comments(content: dict[str, Any], data: st.DataObject) -> None:
    if "t" in content:
        content["t"] = {"a": content["t"]}
    text = json.dumps(content, indent=data.draw(st.sampled_from([None, 0, 2, "\t"])))
    # Comments wherever no string is: around the braces, which no key or value here begins or ends with.
    first, last = data.draw(COMMENTS), data.draw(COMMENTS)
    comma = "," if content and data.draw(st.booleans()) else ""
    text = f"{first}{{{last}{text[1:-1]}{comma}{first}}}{last}"
    edited = with_json_entry(text, "t", "n", ENTRY, force=False)
    table = {**content.get("t", {}), "n": ENTRY}
    assert parsed(without_comments(edited))[0] == {**content, "t": table}
    # Everything that was there is there, in its order.
    rest = iter(edited)
    assert all(character in rest for character in text)


GOOSE = """# mine
GOOSE_MODEL: x
extensions:   # of goose
  developer:
    enabled: true
    description: |
      extensions:

      n: no

  # the second
  'n':
    cmd: y
    # inside
    args:
    - a

  # the last
  memory: {enabled: true}
other: 1
"""
LINES = '  "n":\n    command: "x"\n    args: []\n'


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("", f"extensions:\n{LINES}"),
        ("a: 1", f"a: 1\nextensions:\n{LINES}"),
        ("extensions: {}\n# end\n", f"extensions:\n{LINES}# end\n"),
        ("extensions:\r\n  a:\r\n    b: 1\r\n", f"extensions:\n{LINES}  a:\n    b: 1\n".replace("\n", "\r\n")),
        ("extensions:\n    a: 1\n", 'extensions:\n    "n":\n        command: "x"\n        args: []\n    a: 1\n'),
        (GOOSE, GOOSE.replace("  'n':\n    cmd: y\n    # inside\n    args:\n    - a\n", LINES)),
    ],
)
def test_yaml_is_edited_as_lines(before: str, after: str) -> None:
    assert with_yaml_entry(before, "extensions", "n", ENTRY, force=True) == after
    assert with_yaml_entry(after, "extensions", "n", ENTRY, force=False) == after
    with pytest.raises(Taken):
        with_yaml_entry(after, "extensions", "n", {}, force=False)


@pytest.mark.parametrize(
    "text",
    [
        "extensions: {a: 1}\n",
        "extensions: &x\n  a: 1\n",
        "extensions:\n  - a\n",
        "extensions:\n\ta: 1\n",
        '{"extensions": {}}\n',
        "extensions:\n  a: 1\n---\nextensions:\n  b: 1\n",
        "extensions:\n  a: 1\nextensions:\n  b: 1\n",
    ],
)
def test_yaml_of_another_layout_is_not_touched(text: str) -> None:
    with pytest.raises(NotEditable):
        with_yaml_entry(text, "extensions", "n", ENTRY, force=True)
