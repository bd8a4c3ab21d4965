"""Write the complete programs of the README and the docs as modules that type checkers can read.

``python -m tests.typing.programs FOLDER`` makes a package of each page. A block is a program if it is a file on its
page, or uses no name from the blocks before it and awaits nothing outside a function.
"""

from __future__ import annotations

import builtins
import re
import shutil
import symtable
import sys
from collections.abc import Iterator
from pathlib import Path

from tests.docs.pages import ROOT, blocks_of, pages

FEWEST = 12  # so that a change of the pages, or of how they are read, does not leave nothing to check


def tables(table: symtable.SymbolTable) -> Iterator[symtable.SymbolTable]:
    yield table
    for inner in table.get_children():
        yield from tables(inner)


def is_complete(source: str) -> bool:
    try:
        module = symtable.symtable(source, "block", "exec")
        compile(source, "block", "exec")
    except SyntaxError:  # `await` outside a function
        return False
    bound = {name.get_name() for name in module.get_symbols() if name.is_assigned() or name.is_imported()}
    used = {name.get_name() for table in tables(module) for name in table.get_symbols() if name.is_global()}
    used |= {name.get_name() for name in module.get_symbols() if name.is_referenced()}
    return used <= bound | set(dir(builtins)) | {"__name__"}


def programs(page: Path) -> dict[str, str]:
    """Return the programs of a page by the names of their modules."""
    found = {}
    for block in blocks_of(page):
        if block.language == "python":
            if block.file_name is not None:
                found[block.file_name.removesuffix(".py")] = block.text
            elif is_complete(block.text):
                found[f"line_{block.line}"] = block.text
    # The files of a page import each other by name, which is the same on many pages.
    siblings = re.compile(rf"^from ({'|'.join(found)}) import ", re.MULTILINE)
    return {name: siblings.sub(r"from .\1 import ", text) for name, text in found.items()}


def main() -> None:
    into = Path(sys.argv[1])
    shutil.rmtree(into, ignore_errors=True)
    written = 0
    for page in pages():
        package = into / re.sub(r"\W", "_", str(page.relative_to(ROOT).with_suffix("")))
        for name, text in programs(page).items():
            package.mkdir(parents=True, exist_ok=True)
            written += (package / f"{name}.py").write_text(text) > 0
    print(f"{written} programs")
    if written < FEWEST:
        sys.exit(f"fewer than {FEWEST}: are they still found?")


if __name__ == "__main__":
    main()
