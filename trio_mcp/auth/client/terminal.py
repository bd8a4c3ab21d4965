"""Asking a person at a terminal to sign in elsewhere, and to paste a URL into the terminal or to enter a code there."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from typing import Final
from urllib.parse import parse_qs, urlsplit

import trio

from trio_mcp.auth.rules.steps import ShowCode
from trio_mcp.errors import LoginRequired

__all__ = ["paste_redirect", "printable", "show_code", "tell"]

TERMINAL = "/dev/tty"
"""The terminal that this process belongs to; stdin may be a pipe that carries something else."""
MAX_LINE: Final = 64 * 1024
"""The maximum length of a pasted line, in bytes. An arbitrary choice."""


def printable(text: str) -> str:
    """Return text with a question mark for each character that could control a terminal."""
    return "".join(each if each.isprintable() or each == "\n" else "?" for each in text)


def tell(text: str) -> None:
    """Write text to stderr, if stderr is open."""
    # Under `pythonw` there is no stderr, and writing to a closed stderr raises `ValueError`.
    if sys.stderr is not None:
        with contextlib.suppress(OSError, ValueError):
            print(printable(text), file=sys.stderr, flush=True)


async def show_code(step: ShowCode) -> None:
    """Tell a person on stderr which page to open, and which code to enter there (RFC 8628, section 3.3)."""
    await trio.lowlevel.checkpoint()
    minutes = max(1, round(step.expires_in / 60))
    # The link contains the code, so the person does not type it, but has to compare it: the link may be that of an
    # attacker's device (RFC 8628, section 5.4).
    whole = f"\n(or open {step.complete_url} and compare the code)" if step.complete_url else ""
    tell(f"To sign in, open {step.url} on any device\nand enter the code {step.code} within {minutes} min{whole}")


async def paste_redirect(url: str) -> str:
    """Ask a person to open a page in any browser, and return the pasted URL of the page on which the sign-in ends.

    Use it where no browser can reach this machine: ``OAuth(show=paste_redirect)``.

    Raises:
        LoginRequired: If there is no terminal, or it was closed.
    """
    # This function compares the states only so that a person can try again; `Redirections` makes the real check.
    state = parse_qs(urlsplit(url).query).get("state")
    with _terminal() as terminal:
        _write(
            terminal,
            f"To sign in, open this page in a web browser on any machine:\n  {url}\n"
            "It ends on a page that can't be shown. Copy the URL of that page, and paste it here:\n",
        )
        while True:
            line = (await _line(terminal)).strip()
            with contextlib.suppress(ValueError):
                if parse_qs(urlsplit(line).query).get("state") == state:
                    return line
            _write(terminal, "That is not the URL that this sign-in ends on. Paste the whole URL:\n")


@contextlib.contextmanager
def _terminal() -> Iterator[int]:
    """Open the terminal in a mode in which long lines can be pasted, and restore its mode at the end of the block."""
    try:
        # Windows does not have the module `termios`.
        import termios

        terminal = os.open(TERMINAL, os.O_RDWR | os.O_NOCTTY)
    except (ImportError, OSError):
        raise LoginRequired(
            "authorization", "there is no terminal in which to ask a person", advice="sign in from a terminal first"
        ) from None
    try:
        before = termios.tcgetattr(terminal)
        # In line mode, a terminal accepts no more than 4096 bytes of a line (1024 on macOS), but some authorization
        # codes are longer.
        now = termios.tcgetattr(terminal)
        # The echo and Ctrl-C keep working, but Ctrl-D becomes an ordinary byte: see `_line`.
        now[3] &= ~termios.ICANON
        termios.tcsetattr(terminal, termios.TCSADRAIN, now)
        try:
            yield terminal
        finally:
            termios.tcsetattr(terminal, termios.TCSADRAIN, before)
    finally:
        os.close(terminal)


def _write(terminal: int, text: str) -> None:
    os.write(terminal, printable(text).encode())


async def _line(terminal: int) -> str:
    typed = b""
    while not typed.endswith((b"\n", b"\r")):
        await trio.lowlevel.wait_readable(terminal)
        some = os.read(terminal, 4096)
        typed += some
        if not some or b"\x04" in some or len(typed) > MAX_LINE:  # closed, Ctrl-D, or too long
            raise LoginRequired("authorization", "the terminal was closed before the URL was pasted")
    return typed.decode("utf-8", "replace")
