"""Run a page: ``python run_page.py page.md``, in a folder of its own.

The blocks run in order and share their names, as if typed one after the other:

* ``python``: runs; ``await`` outside a function is allowed. If its first line is ``# name.py``, it becomes that file
  and is imported instead.
* ``output``: what the python block before it must have printed.
* ``console``: ``$ command``, and below it what it prints, where ``...`` stands for anything. It must succeed, unless
  ``$ echo $?`` and a status follow. ``> FILE`` at its end writes a file.
* ``toml``: the settings of ``trio-mcp check``, which must be right.

After ``print(...)`` a comment ``# -> text`` says what that line prints. Everything that is printed must be checked in
one of the two ways.
"""

from __future__ import annotations

import ast
import doctest
import importlib
import inspect
import itertools
import json
import os
import re
import shlex
import subprocess
import sys
from collections import defaultdict
from pathlib import Path
from types import CodeType
from typing import Any

import trio
from pages import Block, blocks_of

from trio_mcp.cli.parser import parse
from trio_mcp.cli.settings import add_settings

PROMISE = re.compile(r"  # -> (?P<text>.*)$")
# tests/server/test_behind_nginx.py runs nginx, and test_pages looks at YAML.
NOT_RUN = ("text", "json", "javascript", "nginx", "ini", "yaml")
PROGRAMS = {
    "python": [sys.executable],
    # Given by the tests, which have a command that starts faster.
    "trio-mcp": json.loads(os.environ.pop("TRIO_MCP", "null")) or [sys.executable, "-m", "trio_mcp"],
}


class Wrong(Exception):
    """The page says something that is not true."""


class Runner:
    """Runs the blocks of one page."""

    def __init__(self, page: Path) -> None:
        self._page = page
        self._namespace: dict[str, Any] = {"__name__": "__main__", "print": self._print}
        self._printed: list[tuple[int | None, str]] = []

    def run(self) -> None:
        """Run them all.

        Raises:
            Wrong: The page says something that is not true.
        """
        blocks = list(blocks_of(self._page))
        for block, following in itertools.zip_longest(blocks, blocks[1:]):
            match block.language:
                case "python":
                    shown = following.text if following is not None and following.language == "output" else None
                    self._run_python(block, shown)
                case "console":
                    self._run_console(block)
                case "toml":
                    self._read_settings(block)
                case "output":
                    pass  # checked with the block before it
                case language if language in NOT_RUN or language.startswith("{"):
                    pass
                case language:
                    raise Wrong(f"{self._page.name}:{block.line}: a block of language {language!r} is not checked")

    def _read_settings(self, block: Block) -> None:
        """Read a file of settings as `trio-mcp check` does, which refuses what is wrong."""
        file = Path("trio-mcp.toml")
        file.write_text(block.text)
        add_settings(parse(["check", "shop.py"]))
        file.unlink()

    def _print(self, *values: object, sep: str = " ", flush: bool = False) -> None:
        frame = inspect.stack(0)[1].frame
        line = frame.f_lineno if frame.f_code.co_filename == str(self._page) else None
        self._printed.append((line, sep.join(map(str, values))))

    def _run_python(self, block: Block, shown: str | None) -> None:
        if (name := block.file_name) is not None:
            Path(name).write_text(block.text)
            if not name.startswith("test_"):
                importlib.import_module(name.removesuffix(".py"))
            return
        self._printed.clear()
        # The empty lines make the numbers in a traceback those of the page.
        source = "\n" * (block.line - 1) + block.text
        code = compile(source, str(self._page), "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT, dont_inherit=True)
        if code.co_flags & inspect.CO_COROUTINE:
            trio.run(self._evaluate, code)
        else:
            exec(code, self._namespace)
        self._check(block, shown)

    async def _evaluate(self, code: CodeType) -> None:
        await eval(code, self._namespace)

    def _check(self, block: Block, shown: str | None) -> None:
        by_line: dict[int | None, list[str]] = defaultdict(list)
        for line, text in self._printed:
            by_line[line].append(text)
        for number, line in enumerate(block.text.splitlines(), block.line):
            promise = PROMISE.search(line)
            if promise is not None and by_line.pop(number, []) != [promise["text"]]:
                printed = [text for at, text in self._printed if at == number]
                raise Wrong(f"{self._page.name}:{number}: printed {printed!r}, not {promise['text']!r}")
        if shown is not None:
            printed = [text for _, text in self._printed]
            if "\n".join(printed).rstrip() != shown.rstrip():
                raise Wrong(f"{self._page.name}:{block.line}: printed\n" + "\n".join(printed) + f"\nnot\n{shown}")
        elif by_line:
            raise Wrong(f"{self._page.name}:{block.line}: printed, but the page does not say so: {dict(by_line)!r}")

    def _run_console(self, block: Block) -> None:
        commands = re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]
        for command, following in itertools.zip_longest(commands, commands[1:], fillvalue=""):
            line, _, expected = command.partition("\n")
            asked, _, status = following.partition("\n")
            wanted = int(status) if asked == "echo $?" else 0
            program, *arguments = shlex.split(line, comments=True)
            if program not in PROGRAMS:
                continue  # setting things up; `test_pages` knows which commands those may be
            file = None
            if arguments[-2:-1] == [">"]:
                *arguments, _, file = arguments
            ended = subprocess.run(
                [*PROGRAMS[program], *arguments], capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=120
            )
            if file is not None:
                Path(file).write_text(ended.stdout)
                ended.stdout = ""
            options = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
            if ended.returncode != wanted or not doctest.OutputChecker().check_output(expected, ended.stdout, options):
                raise Wrong(
                    f"{self._page.name}:{block.line}: {line!r} ended with status {ended.returncode} and printed\n"
                    f"{ended.stdout}{ended.stderr}"
                )


if __name__ == "__main__":
    sys.path.insert(0, "")
    Runner(Path(sys.argv[1])).run()
