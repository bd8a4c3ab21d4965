"""The user's terminal: asks there what a server wants to know (`client/elicitation`), and shows progress."""

from __future__ import annotations

import json
import os
import shutil
import sys
from collections.abc import Callable, Mapping
from typing import Any, TextIO
from urllib.parse import urlsplit

import trio

from trio_mcp.cli.arguments import value_of
from trio_mcp.cli.exits import Exit
from trio_mcp.cli.text import clean, clean_line, paragraph, shorten
from trio_mcp.schema.forms import Form
from trio_mcp.schema.validator import SchemaError
from trio_mcp.types.elicitation import ElicitRequestFormParams, ElicitRequestURLParams
from trio_mcp.types.notices import ProgressNotificationParams

__all__ = ["Dialogue", "ProgressBar", "has_terminal"]

MAX_LINE = 64 * 1024  # bytes; chosen: more than anyone types, and a bound on what a paste or a pipe can fill
# Leaves most of an 80-column line to the message.
BAR_LENGTH = 24
YES, NO = ("y", "yes"), ("n", "no")


class _Stopped(Exception):
    """The user has stopped the dialogue; its text is the answer to give, ``"decline"`` or ``"cancel"``."""


def has_terminal() -> bool:
    """Return whether a user can be asked: standard input and standard error must both be a terminal."""
    return sys.stdin.isatty() and sys.stderr.isatty()


class Dialogue:
    """The callback ``elicitation=`` of `Answers`: asks on standard error, reads standard input.

    Questions that come at the same time are asked one after the other.

    Args:
        before: Called before anything is written, to clear the current line of the terminal.
    """

    def __init__(self, before: Callable[[], object] = lambda: None) -> None:
        self.asker = "the server"
        self.before = before
        self._turn = trio.Lock()
        self._typed = b""

    async def __call__(self, params: ElicitRequestFormParams | ElicitRequestURLParams) -> Any:
        """Ask the user. When cancelled, the question is left unanswered on the terminal."""
        # There is one terminal: the questions of several calls must not mix.
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
        """Show the whole address and ask for consent (Safe URL Handling). The user opens the page, not this program."""
        host = urlsplit(url).hostname or ""
        # A name in other scripts may only look like a known one; its encoded form can't.
        plain = host.encode("idna").decode("ascii") if not host.isascii() else host
        _say(f"It asks you to visit this page:\n  {clean(url)}\n  on the host {plain}")
        # Return alone must not count as consent: the page is the server's choice.
        agreed = await self._agrees("Do you agree? Then open it in your browser. [y/N] ", default=False)
        return "accept" if agreed else "decline"

    async def _fill_in(self, schema: Mapping[str, Any]) -> dict[str, Any] | str:
        fields = schema.get("properties") or {}
        required = schema.get("required") or []
        if fields:
            _say("(Press Return to accept the value in [ ]; ! declines; Ctrl-D cancels.)")
        content: dict[str, Any] = {}
        for name, field in fields.items():
            value = await self._field(name, field, name in required)
            if value is not None:
                content[name] = value
        # Users must be able to review a form before it is sent (`client/elicitation`, User Interaction Model), so this
        # asks once more at the end.
        question = f"Send this to {clean_line(self.asker)}? [Y/n] " if fields else "Do you agree? [Y/n] "
        return content if await self._agrees(question, default=True) else "decline"

    async def _field(self, name: str, field: Mapping[str, Any], required: bool) -> Any:
        """Ask for a field until its value is valid; return None if it is left out."""
        choices = _choices(field)
        _say(_described(name, field, choices, required))
        default = field.get("default")
        shown = f" [{clean_line(_shown(default))}]" if default is not None else "" if required else " [leave out]"
        # A form of this one field: its value is checked as it is typed, not after the last field.
        form = Form({"type": "object", "properties": {name: dict(field)}})
        while True:
            text = await self._ask(f"{clean_line(str(field.get('title') or name))}{shown}: ")
            if text == "" and (default is not None or not required):
                return default
            try:
                value = _read(name, text, field, choices)
                problem = form.problem({name: value})
            except (Exit, SchemaError) as exc:
                problem = str(exc)
            if problem is None:
                return value
            _say(f"  {clean_line(problem)}")

    async def _agrees(self, question: str, *, default: bool) -> bool:
        while True:
            text = (await self._ask(question)).lower()
            if text == "":
                return default
            if text in YES or text in NO:
                return text in YES

    async def _ask(self, question: str) -> str:
        """Ask for a line; return it without surrounding blanks.

        Raises:
            _Stopped: If the user declines or cancels.
        """
        # On standard error like all of the dialogue: standard output is for the result, and may be a file or a pipe.
        print(question, end="", file=sys.stderr, flush=True)
        text = await self._line()
        if text == "!":
            raise _Stopped("decline")
        return text

    async def _line(self) -> str:
        # Not in a thread: one that waits for a terminal can be neither stopped nor abandoned when the program ends.
        descriptor = sys.stdin.fileno()
        # Bytes beyond a line stay for the next question: one read may return several lines.
        while b"\n" not in self._typed:
            await trio.lowlevel.wait_readable(descriptor)
            # Not through `sys.stdin`, whose buffer would hide what `wait_readable` waits for.
            typed = os.read(descriptor, 4096)
            if not typed or len(self._typed) > MAX_LINE:  # Ctrl-D, or the terminal is closed
                _say("")
                self._typed = b""
                raise _Stopped("cancel")
            self._typed += typed
        line, _, self._typed = self._typed.partition(b"\n")
        return line.decode("utf-8", "replace").strip()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _choices(field: Mapping[str, Any]) -> dict[str, str]:
    """Return the values to choose from, with their titles."""
    items = field.get("items")
    # A choice of several is an array, whose items list the values (`client/elicitation`).
    source: Mapping[str, Any] = items if isinstance(items, dict) else field
    titled = source.get("oneOf", source.get("anyOf"))
    if isinstance(titled, list):
        options = [each for each in titled if isinstance(each, dict) and isinstance(each.get("const"), str)]
        return {each["const"]: str(each.get("title", each["const"])) for each in options}
    listed, names = source.get("enum"), source.get("enumNames")
    values = [each for each in listed if isinstance(each, str)] if isinstance(listed, list) else []
    # `enumNames` is the titles' older form; one of another length can't be matched to the values.
    titles = names if isinstance(names, list) and len(names) == len(values) else values
    return dict(zip(values, map(str, titles), strict=True))


# The keywords that the forms of the specification may use (`client/elicitation`, Requested Schema).
LIMITS = (
    ("minLength", "at least {} characters"),
    ("maxLength", "at most {} characters"),
    ("minimum", "at least {}"),
    ("maximum", "at most {}"),
    ("minItems", "at least {} of them"),
    ("maxItems", "at most {} of them"),
    ("format", "as {}"),
)


def _described(name: str, field: Mapping[str, Any], choices: Mapping[str, str], required: bool) -> str:
    kind = field["type"] if isinstance(field.get("type"), str) else "value"
    what = {"boolean": "y or n", "array": "numbers, with commas"}.get(kind, "one of these" if choices else kind)
    limits = [form.format(field[key]) for key, form in LIMITS if field.get(key) is not None]
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


def _read(name: str, text: str, field: Mapping[str, Any], choices: Mapping[str, str]) -> Any:
    """Return the user's line as a value.

    Raises:
        Exit: If it can't be read as one.
    """
    if field.get("type") == "array":
        return [_chosen(each.strip(), choices) for each in text.split(",") if each.strip()]
    if choices:
        return _chosen(text, choices)
    if field.get("type") == "boolean" and text.lower() in YES + NO:
        return text.lower() in YES
    # Without a root for references: a form is flat and has none (`client/elicitation`, Requested Schema).
    return value_of(name, text, field, {})


def _chosen(text: str, choices: Mapping[str, str]) -> str:
    """Return a choice by its number, its value or its title."""
    values = list(choices)
    if text in choices:
        return text
    # At most six digits: int() of a long text takes quadratic time.
    if text.isascii() and text.isdecimal() and 0 < int(text[:6]) <= len(values):
        return values[int(text[:6]) - 1]
    found = [value for value, title in choices.items() if title.lower() == text.lower()]
    if len(found) != 1:
        raise Exit(f"choose a number from 1 to {len(values)}")
    return found[0]


class ProgressBar:
    """Shows the progress of a request in one line, which is erased when the request ends.

    Args:
        stream: Where to write; unless it is a terminal, nothing is shown.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown = False
        self.wanted = stream.isatty()

    def show(self, progress: ProgressNotificationParams) -> None:
        """Show a progress notification."""
        self.draw(progress.progress, progress.total, progress.message or "")

    def draw(self, amount: float, total: float | None, message: str) -> None:
        """Show how much of a total is done, and a message."""
        message = clean_line(message)
        if total is not None and total > 0:
            # A server may report more than its total, or less than nothing.
            part = min(max(amount / total, 0.0), 1.0)
            done = round(part * BAR_LENGTH)
            head = f"[{'#' * done}{'-' * (BAR_LENGTH - done)}] {part:4.0%}"
        else:
            head = f"{amount:g}"
        columns = shutil.get_terminal_size().columns
        # One column less: a full line would wrap, and could not be erased.
        self._write(shorten(f"{head} {message}".rstrip(), columns - 1))
        self._shown = True

    def clear(self) -> None:
        """Erase the line."""
        if self._shown:
            self._write("")
            self._shown = False

    def _write(self, line: str) -> None:
        print(f"\r\x1b[K{line}", end="", file=self._stream, flush=True)  # back to the start of the line, and erase it
