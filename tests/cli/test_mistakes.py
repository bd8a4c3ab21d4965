"""Every wrong invocation gives one line on standard error and status 2, whatever the command and the mistake.

They run in this process, through `main`: none of them comes as far as starting anything.
"""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import FASTMCP
from trio_mcp.cli import main
from trio_mcp.cli.exits import FAILED, USAGE
from trio_mcp.cli.parser import COMMANDS, Argument, parse
from trio_mcp.cli.run import OPTIONS
from trio_mcp.server.processes import command as child_command

# A right line for each command; the words in capitals are replaced by wrong ones below.
LINES = {
    "run": ["FILE"],
    "bridge": ["TARGET"],
    "worker": ["FILE"],
    "list": ["TARGET"],
    "inspect": ["TARGET"],
    "snapshot": ["TARGET"],
    "call": ["TARGET", "price", "item=pear"],
    "task": ["get", "TARGET", "7"],
    "skills": ["show", "TARGET", "skill://pdf/SKILL.md"],
    "read": ["TARGET", "shop://hours"],
    "prompt": ["TARGET", "ad", "item=pear"],
    "stores": ["PLACE"],
    "login": ["TARGET"],
    "logout": ["TARGET"],
    "logins": [],
    "check": ["TARGET"],
    "bench": ["TARGET"],
    "dev": ["TARGET"],
    "record": ["new.jsonl", "TARGET"],
    "replay": ["old.jsonl", "TARGET"],
    "new": ["NAME"],
    "publish": ["FILE"],
    "install": ["HOST", "SOURCE"],
    "config": ["SOURCE"],
    "completion": ["SHELL"],
    "demo": [],
}

WRONG = {
    "FILE": ["shp.py", "nothing.thing", ".", "", "a b", "\x1b[31m.py", "line\nbreak.py", "\udcff.py"],
    "TARGET": [
        *["shp.py", "shp.py:server", "nothing", "", ".", "sh op", "\x1b[31m", "line\nbreak", "\udcff"],
        *[
            "ftp://host/",
            "htp://host/mcp",
            "http://",
            "http://[::1",
            "http://host:port/mcp",
            "tcp://host",
            "tcp://:1:2",
            "unix:",
        ],
        *["missing.json", "bad.json", "empty.json", "list.json", "two.json", "two.json#thre", "two.json#a"],
    ],
    "PLACE": ["", ".", "missing.db", "\x1b[31m", "line\nbreak", "\udcff"],
    "NAME": ["", "3d", "a/b", "..", "class", "json", "trio", "taken", "ends-", "\x1b[31m", "line\nbreak"],
    "HOST": ["", "claude", "Cursor", "\x1b[31m"],
    "SOURCE": [
        *["shp.py", "", ".", "a b", "shop.txt!", "\x1b[31m", "line\nbreak"],
        *["ftp://host/", "http://", "http://[::1", "tcp://host"],
    ],
    "SHELL": ["", "bsh", "BASH", "\x1b[31m", "line\nbreak"],
}

FILES = {
    "shop.py": "from trio_mcp import Server\nserver = Server('shop')\n",
    "bad.json": "{",
    "empty.json": "{}",
    "list.json": "[]",
    "two.json": '{"mcpServers": {"a": {"command": 5}, "three": {"command": "x"}}}',
    "right.json": '{"mcpServers": {"one": {"command": "x"}, "three": {"command": "x"}}}',
    "taken": "",
    "mute.jsonl": '{"trio-mcp": "transcript", "version": 1}\n',
    "torn.jsonl": '{"trio-mcp": "transcript", "version": 1}\n{"time": 0, "sender": "cli',
    "deep.jsonl": '{"trio-mcp": "transcript", "version": 1}\n' + "[" * 100_000,
    "plan.json": '{"trio-mcp": "plan", "version": 1}\n',
    "later.json": '{"trio-mcp": "snapshot", "version": 2}',
    "old.json": '{"trio-mcp": "snapshot", "version": 1, "protocolVersion": "1999-01-01"}',
    "fast.py": FASTMCP,
    "scoped.py": """
from trio_mcp import Server
server = Server("scoped")
server.add_tool(lambda: 1, name="w", scopes={"w"})
""",
    "memory.py": "from trio_mcp import Server\nfrom trio_mcp.stores import MemoryStores\n"
    "server = Server('memory', stores=MemoryStores())\n",
    "stored.py": "from trio_mcp import Server\nserver = Server('stored', stores='shop.py')\n",
    "keyed.py": "from trio_mcp import InputOptions, Server\nfrom trio_mcp.stores import KeyRing\n"
    "server = Server('keyed', input=InputOptions(key=KeyRing.file('none.keys')))\n",
}

HTTP = ["run", "shop.py", "--transport", "http"]
AUTH = [*HTTP, "--auth-issuer", "https://id.example", "--auth-resource", "https://host.example/mcp"]
TCP = ["run", "shop.py", "--transport", "tcp"]
UNIX = ["run", "shop.py", "--transport", "unix"]
CALL = ["call", "shop.py", "price"]
# Words, and a part of what is said about them.
SINGLE = {
    "no command": ([], "trio-mcp: a command must come first"),
    "an empty command": ([""], "a command must come first"),
    "a misspelt command": (["lits"], "trio-mcp: 'lits' is not a command; did you mean 'list'? See `trio-mcp --help`."),
    "a command in capitals": (["LIST"], "'LIST' is not a command; the commands are run, bridge, list"),
    "an option in front": (["--json", "list", "shop.py"], "the options of a command come after it"),
    "a misspelt --version": (["--verison"], "did you mean '--version'?"),
    "a file in place of a command": (["shop.py"], "did you mean `trio-mcp inspect 'shop.py'`?"),
    "a URL in place of a command": (
        ["https://host.example/mcp"],
        "did you mean `trio-mcp inspect 'https://host.exampl",
    ),
    "an unknown option": (["demo", "--fast"], "trio-mcp demo: unknown option '--fast'"),
    "a misspelt option": (
        ["list", "shop.py", "--jsno"],
        "unknown option '--jsno'; did you mean '--json'? See `trio-mcp l",
    ),
    "a misspelt choice": (["completion", "bahs"], "must be one of bash, zsh, fish; got 'bahs'; did you mean 'bash'?"),
    "an invalid time": (["list", "shop.py", "--timeout", "never"], "must be a number of seconds; got 'never'"),
    "an unknown runner": ([*HTTP, "--runner", "uvicorn"], "must be one of hypercorn, h11, httptools; got 'uvicorn'"),
    "a misspelt file": (["list", "shp.py"], "there is no file 'shp.py'; did you mean 'shop.py'?"),
    "a misspelt entry": (["list", "right.json#thre"], "no enabled server 'thre'; did you mean 'three'?"),
    "no entry": (["list", "right.json"], "its servers are: one, three"),
    "a bare word": (["list", "shup"], "'shup' is not a target: it must be"),
    "an unknown scheme": (["list", "ftp://host/"], "must begin with one of http://, https://, ws://, "),
    "a misspelt scheme": (["list", "htp://host/"], "got 'htp://'; did you mean 'http://'?"),
    "no port in a URL": (["list", "tcp://host"], "'tcp://host' is not a valid URL: write tcp://HOST:PORT"),
    "nothing after --": (["list", "--"], "-- must be followed by a command that starts a server"),
    "arguments for a URL": (
        ["list", "http://host.example/mcp", "--", "--root", "x"],
        "arguments for a server's file or",
    ),
    "arguments for an entry": (["list", "right.json#three", "--", "x"], "arguments for a server's file or module"),
    "nothing to call": (["call"], "the following arguments are required: TARGET."),
    "an argument written as an option": (
        ["call", "shop.py", "price", "--a", "1"],
        "unknown option '--a'; did you mean '--auth'? An argument of the tool is written a=VALUE.",
    ),
    "a prompt's argument written as an option": (
        ["prompt", "shop.py", "ad", "--item=pear"],
        "unknown option '--item'; an argument of the prompt is written item=VALUE.",
    ),
    "the command of another program": (["version"], "did you mean `trio-mcp --version`?"),
    "a login at a file": (["login", "shop.py"], "shop.py takes no login, because trio-mcp starts it: give a URL"),
    "a host that is not known": (["install", "windsurf", "shop.py"], "for any other host, `trio-mcp config` prints"),
    "arguments before the tool": (["call", "shop.py", "item=pear"], "the tool must come before its arguments"),
    "a word without a sign": ([*CALL, "pear"], "name=value or name:=json; got 'pear'"),
    "no JSON": ([*CALL, "{nonsense}"], "not valid JSON"),
    "no JSON after a sign": ([*CALL, "item:={"], "item: not valid JSON"),
    "not JSON's infinity": ([*CALL, "item:=Infinity"], "Infinity is not JSON"),
    "JSON that goes too deep": ([*CALL, "{" + '"a":{' * 9000], "not valid JSON"),
    "no object on standard input": ([*CALL, "-"], "the arguments must be a JSON object"),
    "a prompt's word without a sign": (
        ["prompt", "shop.py", "ad", "pear"],
        "must have the form NAME=VALUE; got 'pear'",
    ),
    "a prompt's word without a name": (
        ["prompt", "ad", "=pear", "--", "server"],
        "must have the form NAME=VALUE; got '=",
    ),
    "a header for a process": (
        ["list", "shop.py", "--header", "A: b"],
        "--header is for servers that are reached over H",
    ),
    "a header for a socket": (["list", "unix:x", "--header", "A: b"], "--header is for servers that are reached over"),
    "a variable for a socket": (
        ["list", "unix:x", "--env", "A=b"],
        "--env is for servers that are started as a process",
    ),
    "a variable that can't be": (
        ["list", "shop.py", "--env", "A\0B=c"],
        "can't be the name of an environment variable",
    ),
    "a header that can't be": (["list", "http://host.example/", "--header", "A b: c"], "A b"),
    "a root for a bridge": (["bridge", "shop.py", "--root", "x"], "--root does not apply to bridge"),
    "a client that is a file": (["check", "--client", "shop.py"], "check --client -- COMMAND"),
    "writes of a client": (
        ["check", "--client", "--allow-writes", "--", "client"],
        "--allow-writes is for checks of servers",
    ),
    "a protected server": (["check", "--protected", "shop.py"], "--protected is for checks of clients"),
    "an unknown rule": (["check", "shop.py", "--rules", "nonsense"], "nonsense"),
    "signing in at a server": (["check", "--sign-in", "shop.py"], "--sign-in is for checks of authorization servers"),
    "authorization servers of a file": (["check", "--issuers", "shop.py"], "--issuers needs the http: or https: URL"),
    "examples of an authorization server": (
        ["check", "--issuers", "--examples", "5", "http://host.example/mcp"],
        "--examples says nothing about authorization servers",
    ),
    "a client id without a sign-in": (
        ["check", "--issuers", "--client-id", "x", "http://host.example/mcp"],
        "--client-id is used only to sign in: add --sign-in",
    ),
    "a rule for servers": (
        ["check", "--issuers", "--rules", "error-object", "http://host.example/mcp"],
        "no rule for an issuer is called 'error-object'",
    ),
    "no snapshot": (
        ["check", "shop.py", "--snapshot", "none.json"],
        "there is no file none.json; `trio-mcp snapshot TARGET > none.json` writes it",
    ),
    "a file that holds no snapshot": (
        ["check", "shop.py", "--snapshot", "right.json"],
        'right.json: this is not a snapshot of trio-mcp: it does not begin with "trio-mcp": "snapshot"',
    ),
    "a snapshot of another format": (
        ["check", "shop.py", "--snapshot", "later.json"],
        "later.json: a snapshot of version 2 of the format; this trio-mcp reads version 1",
    ),
    "a snapshot of an unknown revision": (
        ["check", "shop.py", "--snapshot", "old.json"],
        'old.json: a snapshot of an unknown revision of the protocol: "1999-01-01"',
    ),
    "rules for a snapshot": (
        ["check", "shop.py", "--snapshot", "right.json", "--rules", "*"],
        "--rules is for checks by rules, not with --snapshot",
    ),
    "a snapshot of two revisions": (
        ["check", "shop.py", "--snapshot", "right.json", "--revision", "2025-11-25", "--revision", "2026-07-28"],
        "a snapshot is of one revision: give --revision once",
    ),
    "a snapshot of a client": (
        ["check", "--client", "--snapshot", "right.json", "--", "client"],
        "--client is for checks by rules, not with --snapshot",
    ),
    "a report of no kind": (["check", "shop.py", "--report", "report.pdf"], "--report: "),
    "a report in no folder": (["check", "shop.py", "--report", "none/report.html"], "can't write none/report.html"),
    "no baseline": (["check", "shop.py", "--baseline", "none.yml"], "--baseline: can't read none.yml: No such file"),
    "a file that holds no baseline": (["check", "shop.py", "--baseline", "shop.py"], "--baseline: "),
    "a ladder that falls": (
        ["bench", "shop.py", "--ladder", "4,1"],
        "must be up to 20 whole numbers in rising order, from",
    ),
    "a ladder with a step twice": (
        ["bench", "shop.py", "--ladder", "1,4,4"],
        "must be up to 20 whole numbers in rising order",
    ),
    "a ladder that is too high": (
        ["bench", "shop.py", "--ladder", "1,1025"],
        "from 1 to 1024, such as 1,4,16,64; got '1",
    ),
    "figures in no folder": (["bench", "shop.py", "--json", "none/x.json"], "can't write none/x.json"),
    "figures in a folder": (["bench", "shop.py", "--html", "."], "can't write .: it is a folder"),
    "another server that is not there": (["bench", "shop.py", "--compare", "shp.py"], "there is no file 'shp.py'; did"),
    "a bench of nothing": (["bench", "--tool", "price", "item=pear"], "the following arguments are required: TARGET."),
    "a word among a tool's arguments": (
        ["bench", "shop.py", "--tool", "price", "item=pear", "apple"],
        "argument --tool: an argument must have the form name=value or name:=json; got 'apple'",
    ),
    "a bench with no JSON": (["bench", "shop.py", "--tool", "price", "{"], "the arguments: not valid JSON"),
    "a transcript in no folder": (["record", "none/new.jsonl", "shop.py"], "can't write none/new.jsonl"),
    "a transcript of nothing": (["record", "new.jsonl", "--", ""], "command"),
    "no transcript": (["replay", "none.jsonl", "shop.py"], "none.jsonl"),
    "a file that holds no transcript": (["replay", "shop.py", "shop.py"], "shop.py"),
    "a server and its recording": (
        ["replay", "old.jsonl", "shop.py", "--as-server"],
        "--as-server takes the server's part, so there must be no TARGET",
    ),
    "a recording before a command": (["replay", "old.jsonl", "--as-server", "--", "x"], "there must be no TARGET"),
    "a port of no server": (["replay", "old.jsonl", "shop.py", "--http", "0"], "--http is for --as-server"),
    "a port out of reach": (
        ["replay", "old.jsonl", "--as-server", "--http", "99999"],
        "--http must be from 0 to 65535; got 99999",
    ),
    "a header of no client": (
        ["replay", "old.jsonl", "--as-server", "--header", "A: b"],
        "--header does not apply to --as-server",
    ),
    "no recording": (["replay", "none.jsonl", "--as-server"], "can't read none.jsonl: No such file"),
    "a foreign recording": (
        ["replay", "right.json", "--as-server"],
        "right.json: this is neither a transcript nor a plan of trio-mcp",
    ),
    "a torn recording": (["replay", "torn.jsonl", "--as-server"], "torn.jsonl, line 2: malformed JSON: "),
    "a recording too deep": (["replay", "deep.jsonl", "--as-server"], "deep.jsonl, line 2: nested too deeply"),
    "a recording without answers": (
        ["replay", "mute.jsonl", "--as-server", "--http", "0"],
        "mute.jsonl: nothing is answered in this recording, so no server can be made of it",
    ),
    "a plan as a server": (["replay", "plan.json", "--as-server"], "plan.json: this is not a transcript"),
    "a port for a Unix socket": (
        ["record", "new.jsonl", "unix:/run/x", "--port", "8000"],
        "--port is for a URL with a host, but the target is unix:/run/x",
    ),
    "a socket for a URL": (
        ["record", "new.jsonl", "http://host.example/mcp", "--path", "x"],
        "--path is for a Unix socket, but the target is http://host.example/mcp",
    ),
    "a port out of range": (["record", "new.jsonl", "http://host.example/mcp", "--port", "99999"], "from 0 to 65535"),
    "a project that is there": (["new", "taken"], "there is already a file or folder taken"),
    "a project without a name": (["new", ".."], "can't be called '..'"),
    "a project called as a module": (["new", "json"], "the name json is already in use"),
    "a misspelt host": (["install", "cursr", "shop.py"], "must be one of claude-desktop, "),
    "a misspelt file for a host": (
        ["install", "cursor", "shp.py", "--write"],
        "no file 'shp.py'; did you mean 'shop.py'",
    ),
    "no project for a host": (
        ["install", "goose", "shop.py", "--scope", "project"],
        "has no file for a single project",
    ),
    "a word that holds no server": (
        ["config", "shop.txt!"],
        "neither a server's file, such as server.py, nor package.mod",
    ),
    "an unknown scheme for a host": (["config", "ftp://host"], "there is no transport for ftp:// URLs"),
    "arguments for a host's URL": (
        ["config", "http://x/mcp", "--", "x"],
        "after -- are arguments of a server's file, but",
    ),
    "a variable for a host's URL": (
        ["config", "http://x/mcp", "--env", "A=b"],
        "--env is for servers that are started",
    ),
    "a name that hosts refuse": (["config", "shop.py", "--name", "a/b"], "may contain only letters, digits, - and _"),
    "an unknown transport": (["run", "shop.py", "--transport", "pigeon"], "no transport 'pigeon'; the transports are"),
    "a misspelt transport": (["run", "shop.py", "--transport", "htp"], "no transport 'htp'; did you mean 'http'?"),
    "a port for stdio": (["run", "shop.py", "--port", "1"], "--port does not apply to --transport stdio"),
    "a wrong port": ([*HTTP, "--port", "99999"], "port must be from 0 to 65535"),
    "an empty host": ([*HTTP, "--host="], "host must be"),
    "no host": ([*HTTP, "--allowed-host", "http://x/"], "not a host or host:port"),
    "no issuer": ([*HTTP, "--auth-resource", "https://host.example/mcp"], "--auth-issuer is required"),
    "no resource": ([*HTTP, "--auth-issuer", "https://id.example"], "--auth-resource is required"),
    "scopes alone": ([*HTTP, "--auth-scope", "read"], "--auth-issuer is required"),
    "an issuer that is a name": ([*AUTH, "--auth-issuer", "id"], "issuer"),
    "an issuer off this machine without TLS": ([*AUTH, "--auth-issuer", "http://id.example"], "https"),
    "a scope of two words": ([*AUTH, "--auth-scope", "a b"], "a b"),
    "another resource than what is served": (
        [*HTTP, "--auth-issuer", "https://id.example", "--auth-resource", "http://localhost:8001/mcp"],
        "whose URL is http://127.0.0.1:8000/mcp",
    ),
    "a resource at another path": (
        [*AUTH, "--auth-resource", "http://localhost:8000/api"],
        "whose URL is http://127.0.0.1:8000/mcp",
    ),
    "tokens on stdio": (["run", "shop.py", "--auth-issuer", "x"], "--auth-issuer does not apply to --transport stdio"),
    "tokens on TCP": ([*TCP, "--auth-scope", "x"], "--auth-scope does not apply to --transport tcp"),
    "scopes without tokens": (
        ["run", "scoped.py", *HTTP[2:]],
        "tool 'w' needs scopes, which are only enforced with --auth",
    ),
    "a reload of nothing": (["run", "shp.py", "--reload"], "there is no file 'shp.py'; did you mean 'shop.py'?"),
    "a reload of several": (
        ["run", "shop.py", "--transport", "http", "--reload", "--processes", "2"],
        "--processes does not apply with --reload: send SIGHUP",
    ),
    "processes on stdio": (["run", "shop.py", "--processes", "2"], "--processes does not apply to --transport stdio"),
    "no processes": ([*HTTP, "--processes", "0"], "--processes: must be a number of processes from 1 to 256; got '0'"),
    "too many processes": ([*HTTP, "--processes", "10000"], "from 1 to 256; got '10000'"),
    "stores in memory": (
        ["run", "memory.py", "--transport", "http", "--processes", "2"],
        "stores=MemoryStores() can't be shared by several processes",
    ),
    "processes of a test": (
        [*HTTP, "--processes", "2"],
        "the program again in each process, but pytest runs it",
    ),
    "a reload on any port": ([*HTTP, "--reload", "--port", "0"], "--reload needs a fixed --port"),
    "no store there": ([*HTTP, "--event-store", "none/x"], "can't use none/x as an event store: [Errno 2]"),
    "a file that is not a store": ([*HTTP, "--event-store", "shop.py"], "as an event store: file is not a database"),
    "a store without sessions": ([*HTTP, "--event-store", "x", "--stateless"], "event_store needs sessions"),
    "everybody": ([*TCP, "--host", "0.0.0.0"], "can be reached from other machines: add --certificate for TLS, or"),
    "a key alone": ([*TCP, "--key", "x"], "--key needs --certificate"),
    "no certificate": ([*TCP, "--certificate", "no.pem"], "can't use no.pem as a certificate: No such file"),
    "not a certificate": ([*TCP, "--certificate", "shop.py"], "can't use shop.py as a certificate: "),
    "a socket without a path": (UNIX, "--transport unix needs --path FILE"),
    "too long a path": ([*UNIX, "--path", "x" * 200], "the path of a Unix socket may be at most"),
    "no permissions": ([*UNIX, "--path", "x", "--permissions", "rw"], "must be three octal digits, such as 660"),
    "a server of no name": (["run", "shop.py:srever"], "shop.py has no 'srever'; the servers in it: server"),
    "a server of FastMCP": (["run", "fast.py"], "fast.py has a server of FastMCP, which runs by itself: start it with"),
    "that server by its name": (["run", "fast.py:mcp"], "look at it with `trio-mcp inspect -- python fast.py`"),
}


def mistakes() -> Iterator[tuple[str, list[str]]]:
    """Yield wrong lines, with a name: each kind of mistake with each command."""
    for command, line in LINES.items():
        misspelt = command[:-1] if len(command) > 3 else command + "x"
        yield f"{command}: misspelt", [misspelt, *line]
        yield f"{command}: an unknown option", [command, *line, "--no-such-option"]
        yield f"{command}: an option's last letter", [command, *line, "--hel"]
        if line:
            yield f"{command}: nothing else", [command]
        if not any("=" in word for word in line):  # else it would be one of the arguments
            yield f"{command}: one word too many", [command, *line, "word"]
        for each in options(command):
            name = f"{command} {each.name}"
            if each.settings.get("action", "store") in ("store", "append"):
                yield f"{name}: without its value", [command, *line, each.name]
                if "type" in each.settings or "choices" in each.settings:
                    yield f"{name}: a wrong value", [command, *line, f"{each.name}=!"]
            else:
                yield f"{name}: with a value", [command, *line, f"{each.name}=1"]
        for kind, words in WRONG.items():
            for word in words if kind in line else ():
                yield f"{command}: {kind} {word!r}", [command, *(word if each == kind else each for each in line)]
    for command, kind in (("run", "FILE"), ("bridge", "TARGET")):
        for transport, taken in OPTIONS.items():
            for option in sorted({*sum(OPTIONS.values(), ())} - {*taken}):
                words = [f"--{option.replace('_', '-')}", *(["0"] if takes_value(command, option) else [])]
                yield f"{command} {transport}: {words[0]}", [command, kind, "--transport", transport, *words]


def options(command: str) -> Iterator[Argument]:
    for group in COMMANDS[command].groups().values():
        yield from (each for each in group if each.name.startswith("--"))


def takes_value(command: str, option: str) -> bool:
    found = next(each for each in options(command) if each.name == f"--{option.replace('_', '-')}")
    return found.settings.get("action") != "store_const"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The current folder, with files; what loading a server changes is put back."""
    for name, text in FILES.items():
        (tmp_path / name).write_text(text)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setattr(sys, "path", [*sys.path])
    with open("list.json") as stdin:
        monkeypatch.setattr(sys, "stdin", stdin)
        yield tmp_path
    for name in ("shop", "fast", "scoped", "memory", "stored", "keyed"):
        sys.modules.pop(name, None)
        sys.modules.pop(f"_served_{name}", None)


def test_each_is_one_line_and_a_usage_error(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    right = {
        "FILE": "shop.py",
        "TARGET": "shop.py",
        "NAME": "name",
        "SHELL": "bash",
        "HOST": "cursor",
        "SOURCE": "shop.py",
    }
    lines = {name: ([right.get(word, word) for word in words], "") for name, words in mistakes()} | SINGLE
    before = {path.name for path in folder.iterdir()}
    wrong = []
    for name, (words, message) in lines.items():
        try:
            status: object = main(words)
        except SystemExit as exc:
            status = exc.code
        out, said = capfd.readouterr()
        fine = said.startswith("trio-mcp") and said.count("\n") == 1 and "\x1b" not in said and message in said
        if (status, out) != (USAGE, "") or not fine:
            wrong.append(f"{name}: trio-mcp {words}: {status}: {out}{said}")
    assert not wrong, "\n".join(wrong)
    assert LINES.keys() == COMMANDS.keys()
    assert len(lines) > 500
    # Python keeps what it has compiled of shop.py, unless it is told not to.
    assert {path.name for path in folder.iterdir()} - before <= {"new.jsonl", "x", "__pycache__"}


@pytest.mark.parametrize(
    ("server", "said"),
    [
        ("stored.py", "trio-mcp run: can't use the stores of 'stored': "),
        ("keyed.py", "trio-mcp run: the file of keys "),
    ],
)
@pytest.mark.parametrize("more", [[], ["--processes=2"]])
def test_a_file_of_the_server_that_is_unfit_is_one_line(
    server: str, said: str, more: list[str], folder: Path, capfd: pytest.CaptureFixture[str], monkeypatch: Any
) -> None:
    monkeypatch.setattr(child_command, "_why_not", lambda: None)  # as if this were no test
    assert main(["run", server, "--transport=http", "--port=0", *more]) == FAILED
    error = capfd.readouterr().err
    assert error.startswith(said)
    assert error.count("\n") == 1


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_examples_that_are_right(
    command: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert COMMANDS[command].examples
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit, match=r"^0$"):
        parse([command, "--help"])
    shown = capsys.readouterr().out
    assert [line for line in shown.splitlines() if len(line) > 80] == []
    for example in COMMANDS[command].examples:
        assert f"\n  {example}\n" in shown
        words = example.partition(" > ")[0]
        program, *rest = shlex.split(words)
        assert program == "trio-mcp"
        assert parse(rest).command == command


@pytest.mark.parametrize("command", LINES)
def test_a_deleted_folder_is_one_line(
    command: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    words = {"FILE": "x.py", "TARGET": "x.py", "NAME": "x", "HOST": "cursor", "SOURCE": "x.py", "SHELL": "bash"}
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    assert main([command, *(words.get(word, word) for word in LINES[command])]) == FAILED
    assert "the current folder has been deleted" in capsys.readouterr().err
