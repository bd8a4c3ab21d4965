"""Output on a real terminal (a pty)."""

from __future__ import annotations

import contextlib
import os
import pty
import re
import select
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import command, environment, run
from trio_mcp.cli.answers import Given
from trio_mcp.cli.terminal import FormScript
from trio_mcp.types import ElicitRequestFormParams

ASKING = '''
from pydantic import BaseModel, Field
from typing import Literal
from trio_mcp import Context, Server

server = Server("asking")


class Order(BaseModel):
    item: str = Field(title="What", description="An item of the shop.", min_length=2)
    pieces: int = Field(1, ge=1, le=5)
    colour: Literal["red", "green"]
    gift: bool = False


@server.tool
async def order(ctx: Context) -> str:
    """Ask for an order."""
    answer = await ctx.elicit("What would you like?", Order)
    return f"{answer.action} {answer.data.model_dump() if answer.action == 'accept' else ''}"


@server.tool
async def visit(ctx: Context) -> str:
    """Ask for a visit."""
    answer = await ctx.elicit_url("Please sign in.", "https://shop.example/in?session=1")
    return str(getattr(answer, "action", answer))


@server.tool
async def think(ctx: Context) -> str:
    """Ask a model."""
    return (await ctx.sample("Say something.", max_tokens=10)).content.text


@server.tool
async def look_up(ctx: Context) -> str:
    """Ask a model that may use a tool."""

    def price(item: str) -> int:
        """Say what something costs."""
        return len(item)

    return (await ctx.sample("Say something.", max_tokens=10, tools=[price])).content.text


@server.tool
async def pay(ctx: Context) -> str:
    """Ask to open a page."""
    return (await ctx.elicit_url("Pay, please.", "https://pay.example/1")).action


@server.tool
async def folders(ctx: Context) -> str:
    """Ask for the directories."""
    return str(len(await ctx.list_roots()))


@server.prompt
async def ad(ctx: Context) -> str:
    """Ask for what to advertise."""
    return (await ctx.elicit("What would you like?", Order)).action


@server.resource("asking://order")
async def ordered(ctx: Context) -> str:
    return (await ctx.elicit("What would you like?", Order)).action


@server.tool
async def step(ctx: Context) -> str:
    """Report progress."""
    await ctx.report_progress(1, 4, "a quarter")
    return "done"
'''


class Terminal:
    """The other side of a program's terminal; its standard output goes elsewhere."""

    def __init__(self, folder: Path, *arguments: str) -> None:
        self._ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            command(*arguments), cwd=folder, env=environment(), stdin=theirs, stderr=theirs, stdout=subprocess.PIPE
        )
        os.close(theirs)
        self.seen = ""

    def read_until(self, pattern: str) -> None:
        """Read until something new matches."""
        start = len(self.seen)
        net = time.monotonic() + 60
        while re.search(pattern, self.seen[start:]) is None:
            ready, _, _ = select.select([self._ours], [], [], max(net - time.monotonic(), 0))
            assert ready, f"no {pattern!r} in {self.seen!r}"
            try:
                self.seen += os.read(self._ours, 4096).decode()
            except OSError:  # all ends of the terminal are closed
                raise AssertionError(f"no {pattern!r} in {self.seen!r}") from None

    def type(self, text: str) -> None:
        os.write(self._ours, text.encode())

    def end(self) -> tuple[str, int]:
        """Return the program's standard output and exit status."""
        with contextlib.suppress(OSError):
            while text := os.read(self._ours, 4096):
                self.seen += text.decode()
        assert self.process.stdout is not None
        return self.process.stdout.read().decode(), self.process.wait(60)

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        os.close(self._ours)


@contextlib.contextmanager
def terminal(folder: Path, *arguments: str) -> Iterator[Terminal]:
    (folder / "asking.py").write_text(ASKING)
    found = Terminal(folder, *arguments)
    try:
        yield found
    finally:
        found.close()


@pytest.mark.parametrize("mode", ["2026-07-28", "2025-11-25"])
def test_a_form_is_filled_in_field_by_field_and_checked(tmp_path: Path, mode: str) -> None:
    with terminal(tmp_path, "call", "asking.py", "order", "--mode", mode) as there:
        there.read_until(r"asking asks:\s+What would you like\?")
        if "What: " not in there.seen:
            there.read_until(r"What: ")
        assert "An item of the shop." in there.seen
        assert "item (string, at least 2 characters)" in there.seen
        there.type("x\n")
        there.read_until(r'  item: "x" is shorter than 2 characters\s+What: ')
        there.type("pear\n")
        there.read_until(r"\[1\]: ")
        there.type("9\n")
        there.read_until(r"\[1\]: ")
        there.type("\n")
        there.read_until(r"1  red\s+2  green\s+.*: ")
        there.type("2\n")
        there.read_until(r"\[n\]: ")
        there.type("maybe\n")
        there.read_until(r"  gift: must be y or n; got 'maybe'[^:]*\[n\]: ")
        there.type("y\n")
        there.read_until(r"Send this to asking\? \[Y/n\] ")
        there.type("\n")
        output, status = there.end()
    assert output == "accept {'item': 'pear', 'pieces': 1, 'colour': 'green', 'gift': True}\n"
    assert status == 0


@pytest.mark.parametrize(("typed", "action"), [("!\n", "decline"), ("\x04", "cancel")])
def test_the_user_can_decline_and_cancel(tmp_path: Path, typed: str, action: str) -> None:
    with terminal(tmp_path, "call", "asking.py", "order") as there:
        there.read_until(r"What: ")
        there.type(typed)
        output, status = there.end()
    assert (output.strip(), status) == (action, 0)


@pytest.mark.parametrize(("typed", "action"), [("y\n", "accept"), ("\n", "decline")])
def test_a_page_is_shown_whole_and_needs_consent(tmp_path: Path, typed: str, action: str) -> None:
    with terminal(tmp_path, "call", "asking.py", "visit") as there:
        there.read_until(r"\[y/N\] ")
        assert "https://shop.example/in?session=1" in there.seen
        there.type(typed)
        output, _ = there.end()
    assert output.strip() == action


def test_a_server_that_waits_for_a_host_says_so(tmp_path: Path) -> None:
    with terminal(tmp_path, "run", "asking.py") as there:
        there.read_until(r"trio-mcp run: waiting for JSON-RPC messages on standard input[^\n]*\n")
        there.type("\x04")
        assert there.end() == ("", 0)


def test_an_error_is_coloured(tmp_path: Path) -> None:
    with terminal(tmp_path, "lits") as there:
        assert there.end() == ("", 2)
    assert there.seen.startswith("\x1b[1;31mtrio-mcp:\x1b[0m 'lits' is not a command")


def test_progress_is_shown_and_cleared(tmp_path: Path) -> None:
    with terminal(tmp_path, "call", "asking.py", "step") as there:
        output, status = there.end()
    assert (output, status) == ("done\n", 0)
    assert "[######------------------]  25% a quarter" in there.seen
    assert there.seen.endswith("\r\x1b[K")


def test_without_a_terminal_the_user_is_not_asked(tmp_path: Path) -> None:
    (tmp_path / "asking.py").write_text(ASKING)
    done = subprocess.run(
        command("call", "asking.py", "order"),
        cwd=tmp_path,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert "'elicitation.form', which the client has not declared" in done.stderr
    assert done.stderr.endswith(": the server asks the user, so use a terminal, or give --answer NAME=VALUE\n")


# --- answers from the command line, for scripts ----------------------------------------------------------------------

MODES = pytest.mark.parametrize("mode", ["2026-07-28", pytest.param("2025-11-25", marks=pytest.mark.long)])
NEEDED = ("--answer", "item=pear", "--answer", "colour=green")


def scripted(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    (folder / "asking.py").write_text(ASKING)
    return run(folder, *words)


@MODES
@pytest.mark.parametrize(
    ("words", "output"),
    [
        (
            ["order", *NEEDED, "--answer", "gift=yes"],
            "accept {'item': 'pear', 'pieces': 1, 'colour': 'green', 'gift': True}",
        ),
        (["think", "--sample", "Something."], "Something."),
        (["look_up", "--sample", "Something."], "Something."),
        (["folders", "--root", "."], "1"),
    ],
    ids=["a form", "a model", "a model with tools", "directories"],
)
def test_a_script_answers_what_the_server_asks(tmp_path: Path, mode: str, words: list[str], output: str) -> None:
    done = scripted(tmp_path, "call", "asking.py", *words, "--mode", mode)
    assert (done.returncode, done.stdout) == (0, f"{output}\n"), done.stderr


@MODES
def test_a_form_that_lacks_something_is_declined_and_the_option_named(tmp_path: Path, mode: str) -> None:
    done = scripted(tmp_path, "call", "asking.py", "order", "--answer", "item=pear", "--mode", mode)
    assert done.stdout == "decline \n"
    assert "trio-mcp call: the field 'colour' is missing: add --answer colour=red|green\n" in done.stderr
    assert "trio-mcp call: the form was declined\n" in done.stderr


FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        "item": {"type": "string", "minLength": 2},
        "pieces": {"type": "integer", "minimum": 1, "maximum": 5, "default": 1},
        "colour": {"type": "string", "enum": ["red", "green"]},
        "gift": {"type": "boolean"},
        "sizes": {"type": "array", "items": {"type": "string", "enum": ["s", "m", "l"]}},
        "at": {"type": "string", "format": "date"},
    },
    "required": ["item", "pieces"],
}
ITEM = {"item": "pear"}


@pytest.mark.parametrize(
    ("words", "content", "problem"),
    [
        ("item=pear", ITEM, None),
        ("item=2=3", {"item": "2=3"}, None),
        ("item=pear pieces=3", {**ITEM, "pieces": 3}, None),
        ("item=pear gift=yes", {**ITEM, "gift": True}, None),
        ("item=pear gift=false", {**ITEM, "gift": False}, None),
        ("item=pear colour=green", {**ITEM, "colour": "green"}, None),
        ("item=pear sizes=s sizes=l", {**ITEM, "sizes": ["s", "l"]}, None),
        ("item=pear sizes=s,l", {**ITEM, "sizes": ["s", "l"]}, None),
        ("item=x", {}, 'item: "x" is shorter than 2 characters'),
        ("item=pear pieces=9", ITEM, "pieces: 9 is greater than the maximum of 5"),
        ("item=pear pieces=many", ITEM, "pieces: must be of type integer; got 'many'"),
        ("item=pear gift=maybe", ITEM, "gift: must be y or n; got 'maybe'"),
        ("item=pear item=apple", {}, "item: given 2 times, but it takes one value"),
        ("item=pear colour=blue", ITEM, "colour: must be one of red, green, or a number from 1 to 2; got 'blue'"),
        ("item=pear at=today", ITEM, "at: the text is not a valid date"),
    ],
)
def test_answers_are_read_by_the_schema_of_their_field(
    words: str, content: dict[str, Any], problem: str | None
) -> None:
    given = Given(tuple(word.split("=", 1)) for word in words.split())  # type: ignore[misc]
    filled = given.fill(FORM)
    assert (filled.content, list(filled.problems.values())) == (content, [problem] if problem else [])
    assert (filled.missing, given.unused) == ([], [])


OPTIONAL: dict[str, Any] = {"type": "object", "properties": {"size": {"type": "string", "default": "m"}}}
EMPTY: dict[str, Any] = {"type": "object", "properties": {}}
NAMED: dict[str, Any] = {"type": "object", "properties": {"agree": {"type": "boolean"}}}


@pytest.mark.parametrize(
    ("schema", "words", "answer", "said"),
    [
        (EMPTY, "agree=yes", {}, "  yes\n"),
        (EMPTY, "size=l", "decline", "the form only asks you to agree: add --answer agree=yes to send it as"),
        (EMPTY, "agree=no", "decline", "the form only asks you to agree: add --answer agree=yes to send it as"),
        (OPTIONAL, "agree=yes", {}, "  yes\n"),
        (OPTIONAL, "size=l", {"size": "l"}, "  size: l\n"),
        (OPTIONAL, "other=1", "decline", "nothing is given for the form's fields (size): add --answer agree=yes to"),
        (NAMED, "agree=no", {"agree": False}, "  agree: n\n"),
        ({**EMPTY, "required": ["ghost"]}, "agree=yes", "decline", "'ghost' is missing: add --answer ghost=VALUE"),
    ],
)
def test_no_form_is_sent_that_nothing_was_given_for(
    schema: dict[str, Any], words: str, answer: object, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """An answer to one question must not count as consent to another."""
    given = Given(tuple(word.split("=", 1)) for word in words.split())  # type: ignore[misc]
    params = ElicitRequestFormParams.from_wire({"message": "Really?", "requestedSchema": schema})
    assert FormScript(given, "call", lambda: None)(params) == answer
    assert said in capsys.readouterr().err


def test_what_is_required_and_has_no_default_is_missing() -> None:
    given = Given([("gift", "y"), ("colur", "red")])
    assert given.fill(FORM).missing == ["item"]
    assert given.unused == ["colur"]


def test_an_answer_that_no_form_asked_for_is_reported(tmp_path: Path) -> None:
    done = scripted(tmp_path, "call", "asking.py", "order", *NEEDED, "--answer", "color=red")
    assert done.returncode == 0
    assert done.stderr.endswith("trio-mcp call: --answer color: no form had a field of this name\n")


@pytest.mark.parametrize(
    ("words", "output"),
    [(["prompt", "asking.py", "ad"], "user: accept\n"), (["read", "asking.py", "asking://order"], "accept")],
)
def test_prompts_and_resources_are_answered_too(tmp_path: Path, words: list[str], output: str) -> None:
    done = scripted(tmp_path, *words, *NEEDED)
    assert (done.returncode, done.stdout) == (0, output), done.stderr
    done = scripted(tmp_path, *words)
    assert done.returncode == 1
    assert done.stderr.endswith("or give --answer NAME=VALUE\n")


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        (["think"], "the server asks a language model; give the model's response with --sample TEXT"),
        (["folders"], "the server asks for directories; name one with --root DIR"),
        (["pay"], "the server asks the user to open a page, so use a terminal"),
        (["pay", "--answer", "agree=yes"], "the server asks the user to open a page, so use a terminal"),
    ],
    ids=lambda each: " ".join(each) if isinstance(each, list) else "",
)
def test_what_is_asked_for_is_named_with_what_helps(tmp_path: Path, words: list[str], remedy: str) -> None:
    done = scripted(tmp_path, "call", "asking.py", *words)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.endswith(f": {remedy}\n")


def test_on_a_terminal_only_what_is_not_given_is_asked(tmp_path: Path) -> None:
    with terminal(tmp_path, "call", "asking.py", "order", *NEEDED) as there:
        output, status = there.end()
    assert (output, status) == ("accept {'item': 'pear', 'pieces': 1, 'colour': 'green', 'gift': False}\n", 0)
    assert "Send this" not in there.seen
    with terminal(tmp_path, "call", "asking.py", "order", "--answer", "item=x", "--answer", "colour=red") as there:
        there.read_until(r'--answer item: "x" is shorter than 2 characters[^!]*![^"]*What: ')
        there.type("pear\n")
        there.read_until(r"\[1\]: ")
        there.type("\n")
        there.read_until(r"\[n\]: ")
        there.type("\n")
        there.read_until(r"Send this to asking\? \[Y/n\] ")
        there.type("\n")
        output, status = there.end()
    assert (output, status) == ("accept {'item': 'pear', 'pieces': 1, 'colour': 'red', 'gift': False}\n", 0)
    assert "1  red" not in there.seen
