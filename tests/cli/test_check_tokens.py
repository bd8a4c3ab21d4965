"""The tokens of `trio-mcp check`: read from where the command line says, and never shown; a mistake is one line."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.running import environment, run
from tests.cli.test_check import KIT
from tests.listening import hold, port_of
from trio_mcp.cli import main
from trio_mcp.cli.exits import USAGE

URL = "http://127.0.0.1:9/mcp"
SECRET = "a-secret-that-must-not-be-shown"

WRONG: dict[str, tuple[list[str], str]] = {
    "the token itself": (["--auth-a", SECRET], "--auth-a must be env:NAME or file:PATH, where the token is, or login"),
    "the second token itself": (
        ["--auth-a", "env:TOKEN", "--auth-b", SECRET],
        "--auth-b must be env:NAME or file:PATH",
    ),
    "no source": (["--auth-a", "env:"], "--auth-a must be env:NAME or file:PATH"),
    "a second login": (["--auth-a", "env:TOKEN", "--auth-b", "login"], "--auth-b must be env:NAME or file:PATH"),
    "an unset variable": (["--auth-a", "env:NO_TOKEN"], "the environment has no variable 'NO_TOKEN', or it is empty"),
    "an empty variable": (["--auth-a", "env:EMPTY"], "the environment has no variable 'EMPTY', or it is empty"),
    "a missing file": (["--auth-a", "file:gone"], "can't read gone: No such file or directory"),
    "a folder": (["--auth-a", "file:."], "can't read .: Is a directory"),
    "a file of bytes": (["--auth-a", "file:bytes"], "bytes must contain a token, and nothing else"),
    "an empty file": (["--auth-a", "file:empty"], "empty must contain a token, and nothing else"),
    "a file of lines": (["--auth-a", "file:lines"], "lines must contain a token, and nothing else"),
    "a huge file": (["--auth-a", "file:huge"], "huge is too large; the limit is 65536 bytes"),
    "a path with NUL": (["--auth-a", "file:a\0b"], "is not a path"),
    "one user twice": (["--auth-a", "env:TOKEN", "--auth-b", "env:TOKEN"], "are tokens of the same user"),
    "no first user": (["--auth-b", "env:TOKEN"], "--auth-b needs --auth-a"),
    "no login": (["--auth-a", "login"], f"there is no stored login at {URL}; run trio-mcp login first"),
    "both": (["--auth-a", "env:TOKEN", "--auth-server", "9"], "--auth-server makes the tokens of all users"),
    "a header as well": (
        ["--auth-a", "env:TOKEN", "--header", "Authorization: Bearer other"],
        "the headers of the target have an Authorization already",
    ),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name, data in {"bytes": b"\xff\x00" * 50, "empty": b"", "lines": b"one\ntwo\n", "huge": b"x" * 70_000}.items():
        (tmp_path / name).write_bytes(data)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOKEN", SECRET)
    monkeypatch.setenv("EMPTY", " ")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


@pytest.mark.parametrize("name", WRONG)
def test_a_token_that_can_not_be_used_is_one_line(name: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words, said = WRONG[name]
    assert main(["check", URL, *words]) == USAGE
    output, error = capsys.readouterr()
    assert output == ""
    assert said in error
    assert error.count("\n") == 1
    assert SECRET not in error


@pytest.mark.parametrize("target", [["ws://127.0.0.1:9/mcp"], ["tcp://127.0.0.1:9"], ["--", "python", "server.py"]])
@pytest.mark.parametrize("option", [["--auth-a", "env:TOKEN"], ["--auth-server", "9"]])
def test_tokens_are_for_http_only(
    target: list[str], option: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", *option, *target]) == USAGE
    error = capsys.readouterr().err
    assert f"{option[0]}: only for a server with an http: or https: URL" in error
    assert error.count("\n") == 1


def test_a_client_has_no_tokens(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "--client", "--auth-a", "env:TOKEN", "--", "python", "client.py"]) == USAGE
    assert "--auth-a is for checks of servers, not of clients" in capsys.readouterr().err


SERVER = """
from trio_mcp import Server

server = Server("files")

@server.tool(annotations={"read_only_hint": True})
async def read(path: str) -> str:
    return path
"""


@contextlib.contextmanager
def served(folder: Path, issuer: str) -> Iterator[str]:
    """Serve a protected server as a user does."""
    (folder / "files.py").write_text(textwrap.dedent(SERVER))
    # Tokens are for a URL, which the server's own need not be.
    line = ["run", "files.py", "--transport", "http", "--port", "0", "--auth-resource", URL]
    line += ["--auth-issuer", issuer, "--auth-scope", "read"]
    command = [sys.executable, "-m", "trio_mcp", *line]
    with subprocess.Popen(command, cwd=folder, env=environment(), stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        try:
            said = process.stderr.readline().decode()
            assert "serves" in said
            yield said.split()[-1]
        finally:
            process.terminate()


@pytest.mark.again
def test_an_authorization_server_makes_all_tokens(tmp_path: Path) -> None:
    with hold() as held:
        port = str(port_of(held))
        with served(tmp_path, f"http://127.0.0.1:{port}") as url:
            held.close()
            options = [
                "--auth-server",
                port,
                "--rules",
                "*-token-refused,foreign-*,unauthorized-401",
                "--examples",
                "60",
            ]
            ended = run(tmp_path, "check", url, *options, "--report", "report.json", imported=KIT)
    assert ended.returncode == 0, ended.stderr + ended.stdout
    assert f"the authorization server is http://127.0.0.1:{port}" in ended.stderr
    assert "All" in ended.stdout.splitlines()[-1]
    assert "eyJ" not in ended.stdout + ended.stderr + (tmp_path / "report.json").read_text()
