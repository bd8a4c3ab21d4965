"""Configuration files of servers: what hosts write is read, and everything that is wrong is said at once."""

from __future__ import annotations

import json
import os
import re
import time
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio.testing
from hypothesis import given, strategies as st

from trio_mcp import (
    Client,
    ClientGroup,
    ConfigError,
    FailoverParameters,
    HttpServerParameters,
    StdioServerParameters,
    TransportError,
)
from trio_mcp.client.config.reading import load_config
from trio_mcp.client.config.text import DEEPEST, locate
from trio_mcp.client.config.variables import expand, read_env_file
from trio_mcp.client.targets import target_name
from trio_mcp.testing.strategies import json_values


def problems(source: Any, **environ: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load_config(source, environ=environ)
    assert str(caught.value) == "\n".join(caught.value.problems)
    return list(caught.value.problems)


def written(folder: Path, text: str) -> Path:
    path = folder / "mcp.json"
    path.write_text(text)
    return path


# --- what hosts write ---------------------------------------------------------------------------------------------


def test_the_file_of_a_host(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """
        {
          "globalShortcut": "Ctrl+Space",
          "mcpServers": {
            "files": {
              "command": "npx",
              "args": ["-y", "@modelcontextprotocol/server-filesystem", "${HOME}/notes"],
              "env": {"LEVEL": "${LEVEL:-info}", "TOKEN": "${env:TOKEN}"},
              "cwd": "${HOME}",
              "autoApprove": [],
              "timeout": 60
            },
            "old": {"command": "${NOT_SET}", "disabled": true},
            "docs": {"type": "http", "url": "https://x.example/${TOKEN}", "headers": {"Authorization": "${TOKEN}"}},
            "stream": {"type": "streamable-http", "url": "https://x.example"},
            "events": {"type": "sse", "url": "https://x.example"},
            "socket": {"url": "wss://x.example"},
            "plain": {"url": "http://localhost:80/mcp", "disabled": false}
          }
        }
        """,
    )
    assert load_config(path, environ={"HOME": "/home/me", "TOKEN": "t0"}) == {
        "files": StdioServerParameters(
            "npx",
            ["-y", "@modelcontextprotocol/server-filesystem", "/home/me/notes"],
            env={"LEVEL": "info", "TOKEN": "t0"},
            cwd="/home/me",
        ),
        "docs": HttpServerParameters("https://x.example/t0", headers={"Authorization": "t0"}),
        "stream": HttpServerParameters("https://x.example"),
        "events": HttpServerParameters("https://x.example", kind="sse"),
        "socket": HttpServerParameters("wss://x.example", kind="ws"),
        "plain": HttpServerParameters("http://localhost:80/mcp"),
    }


def test_sockets_and_several_ways_to_a_server() -> None:
    entries = {
        "a": {"url": "tcp://localhost:${PORT}"},
        "b": {"type": "tcp", "url": "tls://host.example:8000"},
        "c": {"type": "unix", "url": "unix:${RUN}/mcp.sock"},
        "d": {"type": "websocket", "url": "ws://x.example/mcp", "headers": {"A": "b"}},
        "e": {
            "description": "three ways",
            "failover": [
                {"url": "wss://x.example/mcp"},
                {"command": "x", "disabled": True},
                {"url": "unix:/mcp.sock"},
                {"command": "x"},
            ],
        },
        "f": {"disabled": True, "failover": []},
    }
    assert load_config({"mcpServers": entries}, environ={"PORT": "80", "RUN": "/run"}) == {
        "a": "tcp://localhost:80",
        "b": "tls://host.example:8000",
        "c": "unix:/run/mcp.sock",
        "d": HttpServerParameters("ws://x.example/mcp", headers={"A": "b"}, kind="ws"),
        "e": FailoverParameters(
            [
                HttpServerParameters("wss://x.example/mcp", kind="ws"),
                "unix:/mcp.sock",
                StdioServerParameters("x"),
            ]
        ),
    }


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"url": "tcp://host"}, "'tcp://host' is not a valid URL: write tcp://HOST:PORT"),
        ({"type": "unix", "url": "http://host"}, "the URL of a socket must begin with tcp://, tls:// or unix:"),
        ({"url": "unix:/x", "headers": {"A": "b"}}, "a server on a socket takes no 'headers'"),
        ({"type": "tcp", "command": "x"}, "needs 'url', as its type is 'tcp'"),
        ({"failover": []}, "failover: needs at least one entry that is not disabled"),
        ({"failover": [{"command": "x", "disabled": True}]}, "failover: needs at least one entry that is not dis"),
        ({"failover": {}}, "failover: must be an array, not an object"),
        ({"failover": ["http://x"]}, "failover[0]: must be an object, not a string"),
        ({"failover": [{"failover": []}]}, "failover[0]: can't contain another failover list"),
        ({"failover": [{"command": "x", "arg": 1}]}, "failover[0].arg: unknown key"),
        ({"failover": [{"command": "x"}], "url": "http://x"}, "url: not allowed beside 'failover'"),
    ],
)
def test_what_is_wrong_with_sockets_and_lists_of_ways(entry: dict[str, Any], said: str) -> None:
    (found,) = problems({"mcpServers": {"a": entry}})
    assert f"server 'a': {said}" in found


def test_the_file_of_an_editor_with_servers_and_a_byte_order_mark(tmp_path: Path) -> None:
    path = tmp_path / "mcp.json"
    path.write_bytes(b'\xef\xbb\xbf{"servers": {"a": {"type": "stdio", "command": "x"}}, "inputs": []}')
    assert load_config(str(path)) == {"a": StdioServerParameters("x")}


def test_a_dict_is_read_like_a_file_with_the_variables_of_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRIO_MCP_TEST", "x")
    assert load_config({"mcpServers": {"a": {"command": "${TRIO_MCP_TEST}"}}}) == {"a": StdioServerParameters("x")}
    assert load_config({"mcpServers": {}}) == {}


# --- what is wrong ------------------------------------------------------------------------------------------------


def test_everything_that_is_wrong_is_said_at_once_with_its_line(tmp_path: Path) -> None:
    path = written(
        tmp_path,
        """{
  "mcpServers": {
    "a": {"command": "x",
          "arg": ["1"],
          "env": {"PORT": 8080, "KEY": "${NO_KEY}"}},
    "b": {"url": "https://x",
          "args": [],
          "type": "htp"},
    "c": {"type": "http",
          "command": "x"},
    "d": {},
    "e": {"command": "x", "args": ["ok",
                                   null,
                                   7]},
    "f": {"command": "x", "args": ["${NO_KEY}",
                                   "${1x}"], "cwd": "${NO_DIR}"},
    "g": "npx",
    "": {"command": "x"},
    "h": {"url": "ftp://x"},
    "i": {"command": "x", "url": "https://x"},
    "j": {"command": "x", "disabled": "no"},
    "d": {"command": ""}
  }
}""",
    )
    assert [each.removeprefix(f"{path}:") for each in problems(path)] == [
        "4: server 'a': arg: unknown key; did you mean 'args'?",
        "5: server 'a': env.PORT: must be a string, not a number",
        "8: server 'b': type: must be one of stdio, http, streamable-http, streamableHttp, streamable_http, sse, ws, "
        "websocket, tcp, unix; did you mean 'http'?",
        "9: server 'c': needs 'url', as its type is 'http'",
        "13: server 'e': args[1]: must be a string, not null",
        "14: server 'e': args[2]: must be a string, not a number",
        "15: server 'f': args[0]: the variable NO_KEY is not set; set it, or give a default: ${NO_KEY:-default}",
        "16: server 'f': args[1]: ${1x} can't be filled in; the forms are ${NAME}, ${NAME:-default} and ${env:NAME}",
        "16: server 'f': cwd: the variable NO_DIR is not set; set it, or give a default: ${NO_DIR:-default}",
        "17: server 'g': must be an object, not a string",
        "18: server '': a server's name must be a non-empty string",
        "19: server 'h': url must begin with http:// or https:// and name a host",
        "20: server 'i': url: not allowed for a server with a command",
        "21: server 'j': disabled: must be true or false, not a string",
        "22: server 'd': command (the program; its arguments go into args) must be a non-empty string, got ''",
        "22: server 'd': the key appears twice",
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"mcpServers": {\n  "a": {"command": "x",,}\n}}', r":2:\d+: not valid JSON: "),
        ('{\n // mine\n "mcpServers": {} /* and', r":3:\d+: not valid JSON"),
        ("", r":1:1: not valid JSON"),
        ("[]", r":1: must be an object with the key 'mcpServers', not an array"),
        ('{\n"mcpServer": {}}', r":2: mcpServer: there is no key 'mcpServers' \(or 'servers', 'context_servers'\)"),
        ('{"other": {}}', r":1: there is no key 'mcpServers' \(or 'servers', 'context_servers'\)"),
        ('{"mcpServers": {},\n "servers": {}}', r":2: servers: there are both 'mcpServers' and 'servers'"),
        ('{"mcpServers": [1]}', r":1: mcpServers: must be an object, not an array"),
        ('{"mcpServers": {},\n "mcpServers": {}}', r":2: mcpServers: the key appears twice"),
        ("[" * 100_000, r": not a valid configuration: it is nested too deeply"),
        ("1" * 5000, r": not a valid configuration: a number in it has too many digits"),
    ],
)
def test_a_file_that_is_not_a_configuration(text: str, message: str, tmp_path: Path) -> None:
    path = written(tmp_path, text)
    (problem,) = problems(path)
    assert re.match(re.escape(str(path)) + message, problem), problem


def test_a_file_that_can_not_be_read(tmp_path: Path) -> None:
    assert problems(tmp_path / "no.json") == [f"{tmp_path / 'no.json'}: can't be read: No such file or directory"]
    assert problems(tmp_path) == [f"{tmp_path}: is not a regular file"]
    os.mkfifo(tmp_path / "pipe")
    for each in (tmp_path / "pipe", Path("/dev/zero")):  # neither of which ends
        assert problems(each) == [f"{each}: is not a regular file"]
    assert problems(written(tmp_path, " " * 10_000_001)) == [f"{tmp_path / 'mcp.json'}: has more than 10,000,000 bytes"]
    (tmp_path / "mcp.json").write_bytes(b'{"\xff": 1}')
    assert "not valid UTF-8" in problems(tmp_path / "mcp.json")[0]
    with pytest.raises(TypeError, match="the path of a file or a mapping, got int"):
        load_config(5)  # type: ignore[arg-type]


def test_a_user_without_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HOME")
    monkeypatch.setattr("pwd.getpwuid", {}.__getitem__)
    servers: Any = {"a": {"command": "x"}, "b": {"command": "${userHome}"}}
    assert list(load_config({"mcpServers": servers}, only=["a"])) == ["a"]
    assert "needs a value" in problems({"mcpServers": servers})[0]


DEEP = '{"mcpServers": {"a": {"command": "x"}}, "b": ' + "[" * 900 + "1" + ",1" * 50_000 + "]" * 900 + "}"
MANY = {f"s{number}": {"command": "x"} for number in range(5000)}


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ('{"mcpServers": {"a": {"command": "x", "args": ["' + "${" * 100_000 + '"]}}}', 1),
        (DEEP, 1),
        (json.dumps({"mcpServers": MANY}), len(MANY)),
        ('{"mcpServers": {' + '"gone": {"disabled": true},' * 5000 + json.dumps(MANY)[1:] + "}", len(MANY)),
    ],
    ids=["references", "depth", "servers", "repeated"],
)
def test_a_hostile_file_is_read_at_once(text: str, count: int, tmp_path: Path) -> None:
    path = written(tmp_path, text)
    began = time.process_time()
    assert len(load_config(path, environ={})) == count
    assert time.process_time() - began < 3  # each took from ten seconds to minutes, or gigabytes


def test_values_are_never_shown_as_they_may_be_secrets() -> None:
    entry = {"command": "x", "env": {"KEY": ["secret"], "A=B": "secret"}, "type": "stdio", "headers": "secret"}
    assert "secret" not in "".join(problems({"mcpServers": {"a": entry, "b": {"url": "secret"}, "c": "secret"}}))
    # Nor what stands for a variable, while what is wrong with the rest is told.
    for url, said in (("tcp://${K}", "'tcp://${K}' is not a valid URL"), ("${K}", "must begin with http")):
        (problem,) = problems({"mcpServers": {"a": {"url": url}}}, K="secret\n")
        assert said in problem
        assert "secret" not in problem
    entry = {"command": "${input:key}"}
    with pytest.raises(ConfigError, match="not valid once its variables are filled in"):
        load_config({"mcpServers": {"a": entry}}, variables={"input:key": "secret\0"})


# --- what hosts add -----------------------------------------------------------------------------------------------

PROCESS = StdioServerParameters("x")
REMOTE = HttpServerParameters("https://x.example")


@pytest.mark.parametrize(
    ("content", "found", "warned"),
    [
        # VS Code
        ({"servers": {"a": {"type": "stdio", "command": "x", "dev": {}, "sandboxEnabled": True}}}, PROCESS, ""),
        # Claude Code
        (
            {"a": {"type": "http", "url": "https://x.example", "oauth": {"clientId": "y"}}},
            REMOTE,
            "a': oauth: this key is ignored",
        ),
        ({"a": {"url": "https://x.example", "headersHelper": "y"}}, REMOTE, "headersHelper: this key is ignored; to"),
        # Gemini CLI
        ({"a": {"httpUrl": "https://x.example", "trust": True, "includeTools": []}}, REMOTE, ""),
        (
            {"a": {"command": "x", "env": {"A": "$B"}}},
            attrs.evolve(PROCESS, env={"A": "$B"}),
            "env.A: a variable without br",
        ),
        # Windsurf, FastMCP
        ({"a": {"serverUrl": "https://x.example"}}, REMOTE, ""),
        ({"a": {"transport": "streamable_http", "url": "https://x.example"}}, REMOTE, ""),
        # Zed
        ({"context_servers": {"a": {"source": "custom", "command": "x", "enabled": True}}}, PROCESS, ""),
        ({"context_servers": {"a": {"command": "x", "enabled": False}}}, None, ""),
        ({"context_servers": {"a": {"enabled": True, "settings": {}}}}, None, ""),
        # Goose, whose YAML has been parsed
        ({"extensions": {"a": {"type": "stdio", "cmd": "x", "envs": {}, "bundled": None}}}, PROCESS, ""),
        ({"extensions": {"a": {"type": "streamable_http", "uri": "https://x.example", "envs": {}}}}, REMOTE, ""),
        ({"extensions": {"a": {"type": "builtin", "name": "developer"}}}, None, ""),
        # No host
        (
            {"a": {"command": "x", "colour": "red"}},
            PROCESS,
            "the configuration: server 'a': colour: unknown key; it is",
        ),
        ({"a": {"command": "x", "args": [], "tags": []}}, PROCESS, "tags: unknown key; it is ignored"),
        ({"a": {"command": "x", "args": [], "\x1b[2J": 1}}, PROCESS, "'\\x1b[2J': unknown key; it is ignored"),
    ],
)
def test_the_keys_of_hosts(
    content: dict[str, Any], found: object, warned: str, caplog: pytest.LogCaptureFixture
) -> None:
    content = {"mcpServers": content} if "a" in content else content
    assert load_config(content, environ={}).get("a") == found
    assert warned in caplog.text
    assert bool(warned) == bool(caplog.text)


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"command": "x", "tags": []}, "tags: unknown key; did you mean 'args'?"),
        ({"cmd": "x"}, "cmd: unknown key; did you mean 'command'?"),
        ({"httpUrl": "https://x", "url": "https://x"}, "httpUrl: means the same as 'url'; keep one"),
        ({"command": "x", "enabled": "no"}, "enabled: must be true or false, not a string"),
        ({"url": "https://x", "envFile": ".env"}, "envFile: not allowed for a server with a url"),
        ({"command": "x", "envFile": "no.env"}, "envFile: can't be read: No such file or directory"),
        ({"command": "x", "envFile": "."}, "envFile: is not a regular file"),
    ],
)
def test_what_is_wrong_with_the_keys_of_hosts(entry: dict[str, Any], said: str) -> None:
    assert f"server 'a': {said}" in problems({"mcpServers": {"a": entry}})[0]


def test_an_editors_file_has_comments_inputs_and_the_workspace_folder(tmp_path: Path) -> None:
    (tmp_path / ".vscode").mkdir()
    path = written(
        tmp_path / ".vscode",
        """// The servers of this project.
        {
          "inputs": [
            {"id": "key", "type": "promptString", "password": true},
            {"id": "level", "type": "pickString", "options": ["low", "high"], "default": "low"}, /* , */
          ],
          "servers": {
            "a": {
              "command": "${workspaceFolder}${pathSeparator}run", // not "command": "//"
              "args": ["--key=${input:key}", "${input:level}", "${workspaceFolderBasename}", "http://x", ",]"],
              "envFile": "${workspaceFolder}/a.env",
              "env": {"B": "from the file of the editor"},
            },
            "b": {"command": "${input:other}", "args": ["${command:x}", "${workspaceRoot}"]},
          },
        }""",
    )
    (tmp_path / "a.env").write_text("A=one\nB=two\n")
    variables = {"input:key": "k3y"}
    assert load_config(path, only="a", variables=variables) == {
        "a": StdioServerParameters(
            f"{tmp_path}/run",
            ["--key=k3y", "low", tmp_path.name, "http://x", ",]"],
            env={"A": "one", "B": "from the file of the editor"},
        )
    }
    high = load_config(path, only="a", variables={**variables, "input:level": "high"})["a"]
    assert isinstance(high, StdioServerParameters)
    assert high.args[1] == "high"
    # Only an editor's own folder says where the workspace is.
    other = written(tmp_path, '{"servers": {"a": {"command": "${workspaceFolder}"}}}')
    assert "${workspaceFolder} needs a value; pass variables={'workspaceFolder': …}" in problems(other)[0]
    variables["workspaceFolder"] = "/elsewhere"
    with pytest.raises(ConfigError, match=r":11: server 'a': envFile: can't be read: No such file"):
        load_config(path, only=["a"], variables=variables)
    with pytest.raises(ConfigError) as caught:
        load_config(path, variables={})
    assert [each.removeprefix(f"{path}:") for each in caught.value.problems] == [
        "10: server 'a': args[0]: ${input:key} needs a value; pass variables={'input:key': …}, or --variable "
        "input:key=…",
        "14: server 'b': args[0]: ${command:x} needs a value; pass variables={'command:x': …}, or --variable "
        "command:x=…",
        "14: server 'b': args[1]: the variable workspaceRoot is not set; set it, or give a default: "
        "${workspaceRoot:-default}",
        "14: server 'b': command: ${input:other} needs a value; pass variables={'input:other': …}, or --variable "
        "input:other=…",
    ]


@pytest.mark.parametrize(
    ("entry", "said"),
    [
        ({"command": "false", "args": ["--key=${input:key}"]}, "the server process \"false '--key=${input:key}'\" "),
        ({"command": "no-such-${input:key}"}, "can't start 'no-such-${input:key}'"),
        ({"url": "http://127.0.0.1:9/${input:key}?a=${input:key}"}, "POST http://127.0.0.1:9/${input:key} failed"),
        ({"url": "${input:all}"}, "POST ${input:all} failed"),
        ({"url": "ws://127.0.0.1:9/${input:key}"}, "can't connect to ws://127.0.0.1:9/${input:key}"),
    ],
)
async def test_an_input_is_shown_in_no_message(entry: dict[str, Any], said: str) -> None:
    variables = {"input:key": "s3cret", "input:all": "http://127.0.0.1:9/s3cret"}
    targets = load_config({"servers": {"a": entry}}, variables=variables)
    assert "s3cret" not in repr(targets)
    assert "s3cret" not in target_name(targets["a"])
    with pytest.raises(TransportError) as caught:
        async with Client(targets["a"]):
            raise AssertionError
    assert said in str(caught.value)
    assert "s3cret" not in str(caught.value)


def test_only_the_chosen_servers_are_judged() -> None:
    content = {"mcpServers": {"a": {"command": "x"}, "b": 5, "c": {"command": "${NO}"}, "d": {"enabled": False}}}
    assert load_config(content, only=["a"]) == {"a": PROCESS}
    assert [len(problems(content)), problems({"mcpServers": {"b": 5}})] == [
        2,
        ["the configuration: server 'b': must be an object, not a number"],
    ]
    for name in ("d", "e"):
        with pytest.raises(ConfigError, match=f"no enabled server '{name}'; its servers are: a, b, c"):
            load_config(content, only=[name])


@pytest.mark.parametrize("mode", ["any", "none"])
async def test_an_invalid_entry_is_a_failed_member_of_a_group_that_can_do_without(mode: Any) -> None:
    content = {"mcpServers": {"a": {"command": "x", "arg": []}}}
    with pytest.raises(ConfigError, match="did you mean 'args'"):
        ClientGroup.from_config(content)
    if mode == "any":
        with pytest.raises(ConfigError, match="did you mean 'args'"):
            async with ClientGroup.from_config(content, require=mode):
                raise AssertionError
        return
    async with ClientGroup.from_config(content, require=mode) as group:
        await trio.testing.wait_all_tasks_blocked()
        status = group.status["a"]
        assert (status.state, status.retry_at) == ("failed", None)
        assert "did you mean 'args'" in str(status.cause)


def test_yaml_is_for_other_parsers(tmp_path: Path) -> None:
    assert "YAML is not supported" in problems(tmp_path / "config.yaml")[0]


# --- files of variables -------------------------------------------------------------------------------------------


def test_the_syntax_of_a_file_of_variables(tmp_path: Path) -> None:
    path = tmp_path / ".env"
    path.write_bytes(
        b'\xef\xbb\xbf# comment\r\n\r\nA=1\r\n export B = two words # comment\nC=\'$A # \\n\'\nD="a\\n\\"b\n c" # x\n'
        b"E=\nF= a=b \n\t#G=1\nH=it's"
    )
    assert read_env_file(path) == {
        "A": "1",
        "B": "two words",
        "C": "$A # \\n",
        "D": 'a\n"b\n c',
        "E": "",
        "F": "a=b",
        "H": "it's",
    }


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"A=1\nsecret\n", "line 2 must have the form NAME=value"),
        (b'A="secret', "line 1 must have"),
        (b"A='x' secret", "line 1 must have"),
        (b"1A=secret", "line 1 must have"),
        (b"A=\xff", "not valid UTF-8"),
        (b"A=" + b"x" * 1_000_000, "more than 1,000,000 bytes"),
    ],
)
def test_what_is_wrong_with_a_file_of_variables(content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / ".env").write_bytes(content)
    with pytest.raises(ValueError, match=said) as caught:
        read_env_file(tmp_path / ".env")
    assert "secret" not in str(caught.value)


# --- variables ----------------------------------------------------------------------------------------------------

VARIABLES = {"A": "one", "B_2": "${A}", "EMPTY": "", "_c": "} ${ $"}
LITERALS = st.text(st.characters(exclude_characters="$"), max_size=10) | st.sampled_from(["$A", "$", "$$", "{A}", "}"])
REFERENCES = st.one_of(
    *(
        st.sampled_from([(f"${{{prefix}{name}}}", value) for name, value in VARIABLES.items()])
        for prefix in ("", "env:")
    ),
    st.text(st.characters(exclude_characters="}"), max_size=8).map(lambda default: (f"${{UNSET:-{default}}}", default)),
    st.sampled_from([("${A:-other}", "one"), ("${EMPTY:-other}", "other"), ("${env:A:-other}", "one")]),
)


@given(st.lists(st.one_of(LITERALS.map(lambda text: (text, text)), REFERENCES)))
def test_variables_are_filled_in_once_and_the_rest_stays(parts: list[tuple[str, str]]) -> None:
    # With a space between, as a "$" and a "{" after it would make another reference.
    text, expected = " ".join(part[0] for part in parts), " ".join(part[1] for part in parts)
    assert expand(text, VARIABLES) == (expected, [])


@given(st.text("${}:-AenvU", max_size=30))
def test_any_text_expands_or_says_why_not(text: str) -> None:
    filled, found = expand(text, {"A": "x"})
    assert isinstance(filled, str)
    if "${" not in text:
        assert (filled, found) == (text, [])
    for problem in found:
        assert "${" in problem


# --- places -------------------------------------------------------------------------------------------------------


def paths(value: Any, path: tuple[str | int, ...] = ()) -> Any:
    """Yield the path of everything in a value, in the order in which it is written."""
    yield path
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in entries:
        yield from paths(inner, (*path, key))


@given(json_values(20), st.sampled_from([None, 0, 2]))
def test_everything_in_a_text_has_its_line(value: Any, indent: int | None) -> None:
    places = locate(json.dumps(value, indent=indent))
    everything = [path for path in paths(value) if len(path) <= DEEPEST]
    assert list(places.lines) == everything or set(places.lines) == set(everything)
    assert places.repeated == []
    lines = [places.lines[path] for path in everything]
    assert lines == sorted(lines)
    if indent is not None:
        assert len(set(lines)) == len(lines)  # json.dumps gives each its own line


def test_repeated_keys_are_found_where_they_are() -> None:
    places = locate('{"a": 1,\n"b": {"a": 2,\n"\\u0061": 3},\n"b": {"a": 4}}')
    assert places.repeated == [(("b", "a"), 3), (("b",), 4)]
    assert places.line(("b", "zzz")) == 4
    assert places.line(("zzz",)) == 1
