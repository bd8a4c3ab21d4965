"""A progress bar on a terminal."""

from __future__ import annotations

import shutil
from typing import TextIO

from trio_mcp.cli.text import clean_line, shorten
from trio_mcp.types.notices import ProgressNotificationParams

__all__ = ["ProgressBar"]

LENGTH = 24


class ProgressBar:
    """Shows how far a request has come, in one line that is gone when it ends.

    Args:
        stream: Where to; if it is no terminal, nothing is shown.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._shown = False
        self.wanted = stream.isatty()

    def show(self, progress: ProgressNotificationParams) -> None:
        """Show a notification."""
        message = clean_line(progress.message or "")
        total = progress.total
        if total is not None and total > 0:
            part = min(max(progress.progress / total, 0.0), 1.0)
            done = round(part * LENGTH)
            head = f"[{'#' * done}{'-' * (LENGTH - done)}] {part:4.0%}"
        else:
            head = f"{progress.progress:g}"
        columns = shutil.get_terminal_size().columns
        self._stream.write(f"\r\x1b[K{shorten(f'{head} {message}'.rstrip(), columns - 1)}")
        self._stream.flush()
        self._shown = True

    def clear(self) -> None:
        """Take the line away."""
        if self._shown:
            self._stream.write("\r\x1b[K")
            self._stream.flush()
            self._shown = False
