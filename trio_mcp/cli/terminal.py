"""Ask the user a server's questions on the terminal (`client/elicitation`), and show the progress of requests."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from typing import Any, TextIO
from urllib.parse import urlsplit

import trio

from trio_mcp.cli.answers import AGREE, NO, YES, Given, choices_of, read_field
from trio_mcp.cli.exits import Exit
from trio_mcp.cli.messages import complaint
from trio_mcp.cli.text import clean, clean_line, paragraph, shorten
from trio_mcp.types.elicitation import ElicitRequestFormParams, ElicitRequestURLParams
from trio_mcp.types.notices import ProgressNotificationParams

__all__ = ["Dialogue", "FormScript", "ProgressBar", "has_terminal"]

MAX_LINE = 64 * 1024  # in bytes (arbitrary): longer than any typed line, but a paste can't fill the memory
# The length of the bar is arbitrary: it leaves most of an 80-column line for the message.
BAR_LENGTH = 24


class _Stopped(Exception):
    """The user has stopped the dialogue; the exception's text is the action to send, ``"decline"`` or ``"cancel"``."""


def has_terminal() -> bool:
    """Return whether a user can be asked: standard input and standard error must both be terminals."""
    return sys.stdin.isatty() and sys.stderr.isatty()


class Dialogue:
    """An ``elicitation=`` callback for `Answers` that asks on standard error, and reads standard input.

    Questions that come at the same time are asked one after the other.

    Args:
        before: Called before anything is written, to clear the current line of the terminal.
        given: The values that the command line gives for fields. A form that they complete is sent without a question.
    """

    def __init__(self, before: Callable[[], object] = lambda: None, given: Given | None = None) -> None:
        self.asker = "the server"
        self.before = before
        self._given = given or Given(())
        self._turn = trio.Lock()
        self._typed = b""

    async def __call__(self, params: ElicitRequestFormParams | ElicitRequestURLParams) -> Any:
        """Ask the user. If this is cancelled, the question stays on the terminal without an answer."""
        # There is only one terminal, and the questions of several calls must not mix.
        async with self._turn:
            self.before()
            _say(f"\n{clean_line(self.asker)} asks:\n{paragraph(params.message, '  ')}")
            try:
                if isinstance(params, ElicitRequestURLParams):
                    return await self._visit(params.url)
                return await self._fill_in(params.requested_schema.to_wire())
            except _Stopped as exc:
                return str(exc)

    async def _visit(self, url: str) -> str:
        """Show the whole URL and ask for consent (Safe URL Handling); the user opens the page, not this program."""
        host = urlsplit(url).hostname or ""
        # A host name in another script may look like a known one, but its encoded form can't.
        plain = host.encode("idna").decode("ascii") if not host.isascii() else host
        _say(f"It asks you to visit this page:\n  {clean(url)}\n  on the host {plain}")
        # Pressing Return alone must not count as consent, because the server chose the page.
        agreed = await self._agrees("Do you agree? Then open it in your browser. [y/N] ", default=False)
        return "accept" if agreed else "decline"

    async def _fill_in(self, schema: Mapping[str, Any]) -> dict[str, Any] | str:
        fields = schema.get("properties") or {}
        required = schema.get("required") or []
        filled = self._given.fill(schema)
        content = filled.content
        for problem in filled.problems.values():
            _say(f"  {clean_line(f'--answer {problem}')}")
        if filled.agreed and not filled.problems and not filled.missing:
            _say(f"  {_answered(content)}")
            return content
        if fields:
            _say("(Press Return to accept the value in [ ]; ! declines; Ctrl-D cancels.)")
        for name, field in fields.items():
            if name in content:
                continue
            value = await self._field(name, field, name in required)
            if value is not None:
                content[name] = value
        # Users must be able to review a form before it is sent (`client/elicitation`, User Interaction Model), so there
        # is one more question at the end.
        question = f"Send this to {clean_line(self.asker)}? [Y/n] " if fields else "Do you agree? [Y/n] "
        return content if await self._agrees(question, default=True) else "decline"

    async def _field(self, name: str, field: Mapping[str, Any], required: bool) -> Any:
        """Ask the user for the value of a field until it is valid; return None if the user leaves the field out."""
        choices = choices_of(field)
        _say(_described(name, field, choices, required))
        default = field.get("default")
        shown = f" [{clean_line(_shown(default))}]" if default is not None else "" if required else " [leave out]"
        while True:
            text = await self._ask(f"{clean_line(str(field.get('title') or name))}{shown}: ")
            if text == "" and (default is not None or not required):
                return default
            try:
                return read_field(name, [text], field)
            except Exit as exc:  # each value is checked as it is typed, not after the last field
                _say(f"  {clean_line(str(exc))}")

    async def _agrees(self, question: str, *, default: bool) -> bool:
        while True:
            text = (await self._ask(question)).lower()
            if text == "":
                return default
            if text in YES or text in NO:
                return text in YES

    async def _ask(self, question: str) -> str:
        """Ask for a line; return it without surrounding white space.

        Raises:
            _Stopped: If the user declines or cancels.
        """
        # The dialogue goes to standard error: standard output is for the result, and may be a file or a pipe.
        print(question, end="", file=sys.stderr, flush=True)
        text = await self._line()
        if text == "!":
            raise _Stopped("decline")
        return text

    async def _line(self) -> str:
        # No thread is used, because one that waits for a terminal can be neither stopped nor abandoned when the program
        # ends.
        descriptor = sys.stdin.fileno()
        # One read may return several lines, so the bytes after the first line are kept for the next question.
        while b"\n" not in self._typed:
            await trio.lowlevel.wait_readable(descriptor)
            # The bytes are not read through `sys.stdin`: its buffer would hide bytes from `wait_readable`.
            typed = os.read(descriptor, 4096)
            if not typed or len(self._typed) > MAX_LINE:  # Ctrl-D, a closed terminal, or too long a line
                _say("")
                self._typed = b""
                raise _Stopped("cancel")
            self._typed += typed
        line, _, self._typed = self._typed.partition(b"\n")
        return line.decode("utf-8", "replace").strip()


class FormScript:
    """An ``elicitation=`` callback for `Answers` without a terminal: the command line fills in the forms.

    A form with a missing or invalid field is declined.

    Args:
        given: The values that the command line gives for fields.
        command: The name of the command, for the messages on standard error.
        before: Called before anything is written.
    """

    def __init__(self, given: Given, command: str, before: Callable[[], object]) -> None:
        self.asker = "the server"
        self.before = before
        self._given = given
        self._command = command

    def __call__(self, params: ElicitRequestFormParams) -> dict[str, Any] | str:
        """Return the content of the form, or ``"decline"``."""
        schema = params.requested_schema.to_wire()
        filled = self._given.fill(schema)
        self.before()
        _say(f"{clean_line(self.asker)} asks: {clean_line(params.message)}")
        problems = [f"--answer {problem}" for problem in filled.problems.values()]
        fields = schema.get("properties") or {}
        for name in filled.missing:
            values = "|".join(choices_of(fields.get(name, {}))) or "VALUE"
            problems.append(f"the field {name!r} is missing: add --answer {name}={values}")
        if not (filled.agreed or problems):
            names = (
                f"nothing is given for the form's fields ({', '.join(fields)})"
                if fields
                else "the form only asks you to agree"
            )
            problems.append(f"{names}: add --answer {AGREE}=yes to send it as it is")
        if not problems:
            _say(f"  {_answered(filled.content)}")
            return filled.content
        for problem in problems:
            _say(complaint(self._command, clean_line(problem), hint=False))
        _say(complaint(self._command, "the form was declined", hint=False))
        return "decline"


def _answered(content: Mapping[str, Any]) -> str:
    return clean_line(", ".join(f"{name}: {_shown(value)}" for name, value in content.items()) or "yes")


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


# The keywords that the specification allows in forms, with their descriptions (`client/elicitation`, Requested Schema).
LIMITS = (
    ("minLength", "at least {} character{s}"),
    ("maxLength", "at most {} character{s}"),
    ("minimum", "at least {}"),
    ("maximum", "at most {}"),
    ("minItems", "at least {} of them"),
    ("maxItems", "at most {} of them"),
    ("format", "as {}"),
)


def _described(name: str, field: Mapping[str, Any], choices: Mapping[str, str], required: bool) -> str:
    kind = field["type"] if isinstance(field.get("type"), str) else "value"
    what = {"boolean": "y or n", "array": "numbers, with commas"}.get(kind, "one of these" if choices else kind)
    given = [(form, field[key]) for key, form in LIMITS if field.get(key) is not None]
    limits = [form.format(limit, s="" if limit == 1 else "s") for form, limit in given]
    facts = ", ".join([what, *limits, *([] if required else ["optional"])])
    lines = [f"\n{clean_line(name)} ({clean_line(facts)})"]
    if field.get("description"):
        lines.append(paragraph(str(field["description"]), "  "))
    lines += [f"  {number}  {clean_line(title)}" for number, title in enumerate(choices.values(), 1)]
    return "\n".join(lines)


def _shown(value: Any) -> str:
    if isinstance(value, bool):
        return "y" if value else "n"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return value if isinstance(value, str) else json.dumps(value)


class ProgressBar:
    """A bar that shows the progress of a request on one line, which is erased when the request ends.

    Args:
        stream: Where to write. Unless it is a terminal, ``wanted`` is False: then nothing should be shown.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown = False
        self.wanted = stream.isatty()

    def show(self, progress: ProgressNotificationParams) -> None:
        """Show a progress notification."""
        self.draw(progress.progress, progress.total, progress.message or "")

    def draw(self, amount: float, total: float | None, message: str) -> None:
        """Draw the bar: how much of the total is done, and a message."""
        message = clean_line(message)
        if total is not None and total > 0:
            # A server may report more than its total, or a negative amount.
            part = min(max(amount / total, 0.0), 1.0)
            done = round(part * BAR_LENGTH)
            head = f"[{'#' * done}{'-' * (BAR_LENGTH - done)}] {part:4.0%}"
        else:
            head = f"{amount:g}"
        columns = shutil.get_terminal_size().columns
        # The last column stays free: a full line would wrap, and could not be erased.
        self._write(shorten(f"{head} {message}".rstrip(), columns - 1))
        self._shown = True

    def clear(self) -> None:
        """Erase the bar, if it is shown."""
        if self._shown:
            self._write("")
            self._shown = False

    def _write(self, line: str) -> None:
        print(f"\r\x1b[K{line}", end="", file=self._stream, flush=True)  # back to the start of the line, and erase it
