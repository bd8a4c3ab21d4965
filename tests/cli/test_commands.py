"""The commands, run as a user runs them: those that talk to a server, and `run` over HTTP."""

from __future__ import annotations

import contextlib
import json
import shlex
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import httpx
import pytest
import trio

from tests.cli.running import FASTMCP, ROOT, command, config, environment, run
from tests.server.http.certificate import over_tls
from trio_mcp import Client, __version__
from trio_mcp.cli.parser import COMMANDS
from trio_mcp.low_level import tcp_client


def test_list_shows_names_parameters_and_descriptions(shop: Path) -> None:
    done = run(shop, "list", "shop.py")
    assert done.returncode == 0, done.stderr
    assert "  price(item: string, pieces?: integer)\n      What some pieces of an item cost.\n" in done.stdout
    assert "  pack(items: array of string)\n" in done.stdout
    assert "  ad(item)\n" in done.stdout
    assert "  shop://hours\n      hours, text/plain\n" in done.stdout
    assert all(len(line) <= 80 for line in done.stdout.splitlines())
    assert "\x1b" not in done.stdout, "what a server says controls the terminal"


def test_list_filters_and_prints_json_only(shop: Path) -> None:
    done = run(shop, "list", "shop.py", "--prompts", "--json")
    assert list(json.loads(done.stdout)) == ["prompts"]
    assert "imported" not in done.stdout


def test_inspect_shows_who_it_is_and_everything_it_offers(shop: Path) -> None:
    text = run(shop, "inspect", "shop.py").stdout
    for part in (
        "shop 1.0.0\n",
        "  protocol: 2026-07-28",
        "    tools: listChanged",
        "    Prices are in cents.",
        "ad(item)",
    ):
        assert part in text
    data = json.loads(run(shop, "inspect", "shop.py", "--json", "--mode", "2025-06-18").stdout)
    assert data["serverInfo"]["name"] == "shop"
    assert data["protocolVersion"] == "2025-06-18"
    assert [tool["name"] for tool in data["tools"]] == ["price", "pack", "escape", "sleep"]


@pytest.mark.parametrize(
    ("words", "stdin"),
    [
        (["item=pear", "pieces=2"], ""),
        (["item=pear", "pieces:=2"], ""),
        (['{"item": "pear", "pieces": 2}'], ""),
        (["-"], '{"item": "pear", "pieces": 2}'),
    ],
)
def test_call_takes_arguments_as_words_or_json(shop: Path, words: list[str], stdin: str) -> None:
    done = run(shop, "call", "shop.py", "price", *words, stdin=stdin)
    assert (done.returncode, done.stdout) == (0, "90\n"), done.stderr


def test_options_may_stand_between_arguments(shop: Path) -> None:
    done = run(shop, "call", "shop.py", "pack", "items=a", "--json", "items=b")
    assert json.loads(done.stdout)["structuredContent"] == {"result": "a parcel of 2"}


def test_read_gives_text_and_bytes_as_they_are(shop: Path) -> None:
    assert run(shop, "read", "shop.py", "shop://hours").stdout == "9 to 5"
    done = run(shop, "read", "shop.py", "shop://logo", "--output", "logo.png")
    assert done.stdout == ""
    assert (shop / "logo.png").read_bytes() == b"\x89PNG\x00\xff"
    raw = subprocess.run(command("read", "shop.py", "shop://logo"), cwd=shop, env=environment(), capture_output=True)
    assert raw.stdout == b"\x89PNG\x00\xff"


def test_prompt_fills_in_and_prints_the_messages(shop: Path) -> None:
    assert run(shop, "prompt", "shop.py", "ad", "item=pears").stdout == "user: Write about pears.\n"


@pytest.mark.parametrize("before", [["list", "--tools"], ["inspect"]])
def test_a_command_after_two_dashes_is_the_server(shop: Path, before: list[str]) -> None:
    variable = f"PYTHONPATH={ROOT}"
    done = run(shop, *before, "--env", variable, "--", sys.executable, "-m", "trio_mcp", "run", "shop.py:server")
    assert "price(item" in done.stdout, done.stderr


def test_a_target_may_be_an_entry_of_a_configuration(shop: Path) -> None:
    entry = {"command": sys.executable, "args": ["-m", "trio_mcp", "run", "shop.py"], "env": {"PYTHONPATH": str(ROOT)}}
    config(shop, one=entry)
    assert "price(" in run(shop, "list", "mcp.json").stdout
    config(shop, one=entry, two=entry)
    assert "price(" in run(shop, "list", "mcp.json#two").stdout
    assert "its servers are: one, two" in run(shop, "list", "mcp.json").stderr
    assert "no enabled server 'three'" in run(shop, "list", "mcp.json#three").stderr


HTTP = ["run", "shop.py", "--transport", "http"]
FAILS = {
    "an unknown argument": (
        ["call", "shop.py", "price", "itm=pear"],
        2,
        "the tool has no argument 'itm'; did you mean 'item'? To send it anyway, write itm:=JSON",
    ),
    "no integer": (
        ["call", "shop.py", "price", "item=pear", "pieces=two"],
        2,
        "pieces: must be of type integer; got 'two'",
    ),
    "twice": (["call", "shop.py", "price", "item=a", "item=b"], 2, "given twice"),
    "an unknown tool, JSON": (["call", "shop.py", "prize", "{}"], 1, "unknown tool: 'prize'; did you mean 'price'?"),
    "a failed tool": (["call", "shop.py", "price", "item=melon"], 1, "melon"),
    "an unknown tool": (["call", "shop.py", "prize", "item=pear"], 1, "no tool 'prize'; did you mean 'price'?"),
    "a tool like no other": (["call", "shop.py", "xyz"], 1, "unknown tool: 'xyz'"),
    "an unknown prompt": (["prompt", "shop.py", "and"], 1, "; did you mean 'ad'?"),
    "an unknown resource": (
        ["read", "shop.py", "shop://hour"],
        1,
        "not found (error -32602); did you mean 'shop://hours'?",
    ),
    "a file without a server": (["list", "empty.py"], 2, "trio-mcp run: empty.py has no Server at its top level"),
    "a file that breaks": (["list", "broken.py"], 1, "trio-mcp run: broken.py can't be imported: ValueError: enough"),
    "a file of FastMCP": (["list", "fast.py"], 2, "`trio-mcp inspect -- python fast.py`"),
    "a server that ends": (["list", "--", "false"], 3, "false"),
    "a server that is not there": (["list", "--", "no-such-command"], 3, "no-such-command"),
    "no answer in time": (
        ["call", "shop.py", "sleep", "--total-timeout", "0.2"],
        4,
        "no response to 'tools/call' within total_timeout=0.2",
    ),
}


@pytest.mark.parametrize(("words", "status", "message"), FAILS.values(), ids=FAILS)
def test_what_fails_has_a_status_of_its_own(shop: Path, words: list[str], status: int, message: str) -> None:
    (shop / "empty.py").touch()
    (shop / "fast.py").write_text(FASTMCP)
    (shop / "broken.py").write_text("raise ValueError('enough')")
    said = fails(shop, words, status, message)
    assert "Traceback" not in said or words[-1] in ("item=melon", "broken.py")  # which are the server's


def fails(folder: Path, words: list[str], status: int, message: str) -> str:
    """Run a command that must fail, and return what it says; the message must be in its last line."""
    done = run(folder, *words)
    assert (done.returncode, done.stdout) == (status, "")
    # After all that the server has said.
    assert message in done.stderr.splitlines()[-1]
    assert done.stderr.splitlines()[-1].startswith("trio-mcp ")
    return done.stderr


def test_ctrl_c_ends_with_130_and_no_traceback(shop: Path) -> None:
    source = (shop / "shop.py").read_text()
    source = source.replace("await trio.sleep_forever()", "print('asleep', flush=True); await trio.sleep_forever()")
    (shop / "shop.py").write_text(source)
    with subprocess.Popen(
        command("call", "shop.py", "sleep"), cwd=shop, env=environment(), stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        said = ""
        while "asleep" not in said:
            said = process.stderr.readline()
            assert said, "it ended before the tool began"
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
        assert process.wait(30) == 130
    assert "Traceback" not in rest


@pytest.mark.parametrize(
    "words", [["list", "shop.py"], ["call", "shop.py", "price", "item=pear"], ["completion", "bash"]]
)
def test_a_full_disk_under_the_output_is_a_line_and_a_status(shop: Path, words: list[str]) -> None:
    """As in `trio-mcp list ... > file`."""
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            command(*words), cwd=shop, env=environment(), stdout=full, stderr=subprocess.PIPE, timeout=60, check=False
        )
    assert done.returncode == 1
    said = done.stderr.decode().splitlines()
    assert said[-1] == f"trio-mcp {words[0]}: can't write the output: No space left on device"
    assert "Traceback" not in done.stderr.decode()


def test_a_reader_that_closes_the_pipe_is_not_an_error(shop: Path) -> None:
    """As in `trio-mcp list ... | head`."""
    with subprocess.Popen(
        command("list", "shop.py"),
        cwd=shop,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.wait(60) == 141
        assert "Broken" not in process.stderr.read()


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys; from trio_mcp.cli.parser import parse\n"
        "try: parse(['call', '--help'])\n"
        "except SystemExit: pass\n"
        "print([name for name in ('trio', 'pydantic', 'trio_mcp.server', 'trio_mcp.client', 'attr') "
        "if name in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, timeout=60)
    assert done.stderr.strip() in ("[]", "['attr']")


def test_a_client_command_loads_no_groups() -> None:
    """They are looked into only to say why a URI was not found."""
    code = "import sys, trio_mcp.cli.client_commands; print('trio_mcp.client.group' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, timeout=60)
    assert done.stdout == "False\n"


def test_the_demo_shows_every_transport_and_succeeds(tmp_path: Path) -> None:
    done = run(tmp_path, "demo")
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    together = [" ".join(line.split()) for line in lines]  # the columns are as wide as they have to be
    closed = "cancelled: the client closed the response stream"  # a modern cancellation over HTTP has no reason
    modern, seen = "demo, revision 2026-07-28", "cancelled: the demo has seen enough"
    expected = {
        "memory": (modern, seen),
        "stdio": (modern, seen),
        "http": (modern, closed),
        "sse": ("demo, revision 2025-11-25", seen),
        "websocket": (modern, seen),
        "tcp": (modern, seen),
    }
    for transport, (greeting, cancellation) in expected.items():
        rows = {line.split("  ")[1].strip(): line for line in lines if line.startswith(transport)}
        assert greeting in next(line for line in lines if line.startswith(transport))
        assert any("add(2, 3) = 5" in row for row in lines if row.startswith(transport))
        assert any("5 notifications, then the result 5" in row for row in lines if row.startswith(transport))
        assert any(cancellation in row for row in lines if row.startswith(transport))
        assert rows
    assert any("tcp ends, call again add(2, 3) = 5, over ws" in row for row in together)
    assert any("expire, call again add(2, 3) = 5, tokens renewed: 1" in row for row in together)
    assert "Traceback" not in done.stderr


def test_version(tmp_path: Path) -> None:
    assert run(tmp_path, "--version").stdout.strip() == f"trio-mcp {__version__}"


# --- the scripts that complete commands and options ---


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_script_names_every_command_and_option(tmp_path: Path, shell: str) -> None:
    script = run(tmp_path, "completion", shell).stdout
    for word in (*COMMANDS, "json", "output", "log-level", "transport"):
        assert word in script


@pytest.mark.parametrize(
    ("words", "completed"),
    [
        (["trio-mcp", "li"], {"list"}),
        (["trio-mcp", "call", "--to"], {"--total-timeout"}),
        (["trio-mcp", "completion", ""], {"--help", "bash", "fish", "zsh"}),
        (["trio-mcp", "list", "--mode", "leg"], {"legacy"}),
    ],
)
def test_bash_completes(tmp_path: Path, words: list[str], completed: set[str]) -> None:
    (tmp_path / "script").write_text(run(tmp_path, "completion", "bash").stdout)
    asking = 'source ./script; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _trio_mcp; printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(
        ["bash", "-c", asking, "bash", *words], cwd=tmp_path, capture_output=True, text=True, timeout=30
    )
    assert (set(done.stdout.split()), done.stderr) == (completed, "")


def test_the_zsh_script_has_one_word_for_each_command(tmp_path: Path) -> None:
    """Some helps have an apostrophe, which must not end their quotes."""
    listed = run(tmp_path, "completion", "zsh").stdout.partition("commands=(\n")[2].partition("\n    )")[0]
    words = [word.partition(":") for word in shlex.split(listed)]
    assert {name: help_ for name, _, help_ in words} == {name: command.help for name, command in COMMANDS.items()}
    assert any("'" in command.help for command in COMMANDS.values())


# --- trio-mcp run over HTTP: each option reaches the endpoint ---------------------------------------------------------


HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": {"name": "c", "version": "1"}},
}
ANY_PORT = ("--port", "0", "--transport")
ACCEPT = {"Accept": "application/json, text/event-stream"}


@contextlib.asynccontextmanager
async def serving(folder: Path, *words: str) -> AsyncIterator[str]:
    """Yield the URL of the shop, served by a process that ends without a fault."""
    process = await trio.lowlevel.open_process(
        command("run", "shop.py", *words), cwd=folder, env=environment(), stderr=subprocess.PIPE
    )
    assert process.stderr is not None
    try:
        with trio.fail_after(60):
            said = b""
            while b" serves " not in said or not said.endswith(b"\n"):
                said += await process.stderr.receive_some()
            yield said.split()[-1].decode()
            process.send_signal(signal.SIGTERM)
            rest = b"".join([chunk async for chunk in process.stderr])
            assert (await process.wait(), rest) == (0, b"")
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
            await process.stderr.aclose()


async def test_the_guard_and_cors_are_as_asked(shop: Path) -> None:
    page = {"Origin": "https://app.example", **ACCEPT}
    words = [
        "--allowed-host",
        "shop.example",
        "--allowed-host",
        "127.0.0.1",
        "--allowed-origin",
        page["Origin"],
        "--cors",
    ]
    async with serving(shop, *ANY_PORT, "http", *words) as url, httpx.AsyncClient() as client:
        answer = await client.post(url, json=HELLO, headers=page)
        assert answer.headers["Access-Control-Allow-Origin"] == page["Origin"]
        assert (await client.post(url, json=HELLO, headers=ACCEPT | {"Host": "shop.example"})).status_code == 200
        assert (await client.post(url, json=HELLO, headers=ACCEPT | {"Host": "localhost"})).status_code == 403
        assert (await client.post(url, json=HELLO, headers=ACCEPT | {"Origin": "https://b.example"})).status_code == 403


async def test_tokens_are_asked_for_as_told(shop: Path) -> None:
    resource = "https://shop.example/mcp"
    words = [
        "--auth-issuer",
        "https://id.example",
        "--auth-resource",
        resource,
        "--auth-scope=read",
        "--auth-scope=buy",
    ]
    async with serving(shop, *ANY_PORT, "http", *words) as url, httpx.AsyncClient() as client:
        answer = await client.post(url, json=HELLO, headers=ACCEPT)
        assert answer.status_code == 401
        where = "/.well-known/oauth-protected-resource/mcp"
        assert f'resource_metadata="https://shop.example{where}"' in answer.headers["WWW-Authenticate"]
        told = (await client.get(httpx.URL(url).join(where))).json()
        assert (told["resource"], told["authorization_servers"]) == (resource, ["https://id.example"])
        assert told["scopes_supported"] == ["buy", "read"]


@pytest.mark.parametrize(("runner", "status"), [("hypercorn", b"200"), ("h11", b"400"), ("httptools", b"400")])
async def test_the_runner_is_as_asked(shop: Path, runner: str, status: bytes) -> None:
    """Hypercorn is the one that takes lines without CR."""
    async with serving(shop, *ANY_PORT, "http", "--runner", runner) as url:
        async with await trio.open_tcp_stream("127.0.0.1", httpx.URL(url).port or 0) as stream:
            await stream.send_all(b"GET /health HTTP/1.1\nHost: localhost\n\n")
            assert (await stream.receive_some()).split()[1] == status
        async with httpx.AsyncClient() as client:
            assert (await client.post(url, json=HELLO, headers=ACCEPT)).status_code == 200


def test_a_runner_that_is_not_installed_is_a_usage_error(shop: Path) -> None:
    (shop / "httptools.py").write_text("raise ImportError")
    message = "runner='httptools' needs httptools: pip install 'trio-mcp[fast]'"
    assert "Traceback" not in fails(shop, [*HTTP, "--runner", "httptools"], 2, message)


async def test_sessions_and_streams_can_be_left_out(shop: Path) -> None:
    async with (
        serving(shop, *ANY_PORT, "http", "--stateless", "--json-only") as url,
        httpx.AsyncClient() as client,
    ):
        answer = await client.post(url, json=HELLO, headers=ACCEPT)
        assert answer.headers["Content-Type"] == "application/json"
        assert "Mcp-Session-Id" not in answer.headers


async def test_events_are_kept_in_a_file(shop: Path) -> None:
    async with (
        serving(shop, *ANY_PORT, "http", "--event-store", "events.db") as url,
        Client(url, mode="legacy") as client,
    ):
        assert (await client.call_tool("price", {"item": "pear"})).data == 45
    content = (shop / "events.db").read_bytes()
    assert content.startswith(b"SQLite format 3")


async def test_http_and_sse_stand_side_by_side(shop: Path) -> None:
    async with serving(shop, *ANY_PORT, "http", "--path", "/a", "--sse-path", "/b") as url:
        assert url.endswith("/a")
        async with Client(url.removesuffix("a") + "b", mode="2024-11-05") as client:
            assert client.protocol_version == "2024-11-05"
        async with Client(url, mode="legacy") as client:
            assert client.protocol_version == "2025-11-25"


async def test_the_path_of_sse_is_that_of_its_stream(shop: Path) -> None:
    async with serving(shop, *ANY_PORT, "sse", "--path", "/events") as url:
        assert url.endswith("/events")
        async with Client(url, mode="2024-11-05") as client:
            assert client.protocol_version == "2024-11-05"


@pytest.mark.parametrize(
    ("words", "beginning"),
    [
        ([*ANY_PORT, "websocket", "--path", "/x"], "ws://127.0.0.1:"),
        ([*ANY_PORT, "tcp"], "tcp://127.0.0.1:"),
        (["--transport", "unix", "--path", "s", "--permissions", "640"], "unix:/"),
    ],
)
async def test_what_is_served_over_a_socket_is_a_target(shop: Path, words: list[str], beginning: str) -> None:
    """Of the commands, of a bridge, and of a configuration."""
    async with serving(shop, *words) as url:
        assert url.startswith(beginning)
        if beginning == "unix:/":
            assert stat.S_IMODE((shop / "s").stat().st_mode) == 0o640
        config(shop, one={"failover": [{"url": "tcp://127.0.0.1:1"}, {"url": url}]})
        for target in ([url], ["mcp.json#one"], ["--", sys.executable, "-m", "trio_mcp", "bridge", url]):
            variable = [] if len(target) == 1 else ["--env", f"PYTHONPATH={ROOT}"]
            done = await trio.to_thread.run_sync(partial(run, shop, "list", *variable, *target))
            assert "price(" in done.stdout, done.stderr


async def test_tls_needs_a_certificate_alone(shop: Path) -> None:
    _, trusting = over_tls(shop)
    words = ["--host", "0.0.0.0", "--certificate", "cert.pem", "--key", "key.pem"]
    async with serving(shop, *ANY_PORT, "tcp", *words) as url:
        local = url.replace("0.0.0.0", "127.0.0.1")
        async with Client(lambda: tcp_client(local, ssl_context=trusting)) as client:
            assert (await client.call_tool("price", {"item": "pear"})).data == 45


@pytest.mark.parametrize("transport", ["http", "sse", "websocket", "tcp"])
def test_an_address_in_use_is_reported_in_one_line(shop: Path, transport: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        done = run(shop, "run", "shop.py", "--transport", transport, "--port", port)
    assert done.returncode == 1
    said = (
        f"trio-mcp run: can't serve: can't listen on 127.0.0.1:{port}: Address already in use;"
        " is another server running there? Choose another port"
    )
    assert said in done.stderr.splitlines()
    assert "ExceptionGroup" not in done.stderr


@pytest.mark.parametrize(
    ("word", "fault"), [("--port=99999", "port must be from 0 to 65535"), ("--host=", "host must be")]
)
def test_an_invalid_address_is_a_usage_error(shop: Path, word: str, fault: str) -> None:
    done = run(shop, "run", "shop.py", "--transport", "http", word)
    assert done.returncode == 2
    assert f"trio-mcp run: {fault}" in done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["call", "shop.py"], "the name of the tool is missing\ntools\n  price(item: string, pieces?: integer)\n"),
        (["call", "shop.py", "--", "x"], "the name of the tool is missing\ntools\n"),
        (["call", "--", *command("run", "shop.py")], "the name of the tool is missing\ntools\n"),
        (["prompt", "shop.py"], "the name of the prompt is missing\nprompts\n  ad(item)\n"),
    ],
)
def test_without_a_name_the_tools_or_prompts_are_listed(shop: Path, words: list[str], said: str) -> None:
    done = run(shop, *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert f"trio-mcp {words[0]}: {said}" in done.stderr


def test_a_uri_that_a_template_matches_is_not_called_misspelt(tmp_path: Path) -> None:
    (tmp_path / "tickets.py").write_text(
        "from trio_mcp import ResourceNotFound, Server\n"
        "server = Server('tickets')\n"
        "@server.resource('tickets://all')\n"
        "def every() -> str: return 'x'\n"
        "@server.resource('tickets://{id}')\n"
        "def one(id: str) -> str: raise ResourceNotFound(id)\n"
    )
    done = run(tmp_path, "read", "tickets.py", "tickets://99")
    assert done.returncode == 1
    assert "did you mean" not in done.stderr
    assert "did you mean 'tickets://all'?" in run(tmp_path, "read", "tickets.py", "tickets:/all").stderr


@pytest.mark.parametrize(
    ("status", "said"),
    [
        (0, "exited with status 0 before it responded; is it an MCP server, and was it started the right way?"),
        (3, "exited with status 3 before it responded"),
    ],
)
def test_a_process_that_is_not_a_server_is_said_never_to_have_answered(tmp_path: Path, status: int, said: str) -> None:
    done = run(tmp_path, "list", "--", "sh", "-c", f"exit {status}")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.endswith(f"{said}\n")


LOGS = """
import logging
from trio_mcp import Server
from trio_mcp.middleware import Logging

server = Server("logs", middleware=[Logging()])

@server.tool
def add(a: int, b: int) -> int:
    logging.getLogger("mine").info("adding")
    return a + b
"""


@pytest.mark.parametrize("more", [[], ["--reload"]])
def test_run_shows_what_the_middleware_and_the_file_log(tmp_path: Path, more: list[str]) -> None:
    (tmp_path / "logs.py").write_text(LOGS)
    said = ["INFO trio_mcp.middleware: tools/call 'add' begins", "INFO mine: adding"]
    for level, shown in (("info", True), ("warning", False)):
        served = command("run", "logs.py", "--log-level", level, *more)
        done = run(tmp_path, "call", "add", "a=1", "b=2", "--", *served)
        assert (done.returncode, done.stdout) == (0, "3\n"), done.stderr
        assert [text in done.stderr for text in said] == [shown, shown], done.stderr


async def test_run_logs_each_exchange_over_http(tmp_path: Path) -> None:
    (tmp_path / "logs.py").write_text(LOGS)
    process = await trio.lowlevel.open_process(
        command("run", "logs.py", "--transport", "http", "--port", "0", "--log-level", "info"),
        cwd=tmp_path,
        env=environment(),
        stderr=subprocess.PIPE,
    )
    assert process.stderr is not None
    said = b""
    with trio.fail_after(60):
        async with process.stderr:
            while b"serves " not in said or not said.endswith(b"\n"):
                said += await process.stderr.receive_some()
            url = said.decode().split("serves ")[1].split()[0]
            async with Client(url) as client:
                await client.call_tool("add", {"a": 1, "b": 2})
            process.terminate()
            async for piece in process.stderr:
                said += piece
        await process.wait()
    assert b"INFO trio_mcp.access: 127.0.0.1 POST /mcp 200 " in said
    assert b"ms tools/call 'add'\n" in said


def test_a_kind_that_is_asked_for_and_not_offered_is_an_error(tmp_path: Path) -> None:
    script = "import sys; sys.stdin.readline(); print('{}', flush=True); sys.stdin.read()".format(
        '{"jsonrpc": "2.0", "id": 1, "result": {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}},'
        ' "serverInfo": {"name": "s", "version": "1"}}}'
    )
    done = run(tmp_path, "list", "--prompts", "--mode", "2025-11-25", "--", sys.executable, "-c", script)
    assert (done.returncode, done.stdout) == (1, "")
    assert "'prompts/list' needs the server capability 'prompts'" in done.stderr


def test_the_timeout_bounds_connecting(tmp_path: Path) -> None:
    """A server that never answers costs as long as the user allows, and not the 30 seconds of every client."""
    silent = ("--", sys.executable, "-c", "import sys; sys.stdin.read()")
    process = run(tmp_path, "list", "--timeout", "0.5", *silent)
    assert (process.returncode, process.stdout) == (3, "")
    assert "within connect_timeout=0.5 seconds" in process.stderr
