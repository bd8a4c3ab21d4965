"""The pages of the documentation, and the code blocks in them."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import attrs

__all__ = ["README", "Block", "blocks_of", "pages"]

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"

_FENCE = re.compile(r"^(?P<ticks>`{3,}|:{3,})(?P<language>\S*)(?P<rest>.*)$")
_FILE_NAME = re.compile(r"# (?P<name>\w+\.py)\n")


@attrs.frozen
class Block:
    """A fenced block.

    Attributes:
        language: The word after its fence: ``python``, ``output``, ``console``, ``{directive}``, ...
        text: What is in it.
        line: The number of its first line in the page.
    """

    language: str
    text: str
    line: int

    @property
    def file_name(self) -> str | None:
        """The name of the file that it is, from its first line: ``# name.py``."""
        named = _FILE_NAME.match(self.text)
        return None if named is None else named["name"]


def pages() -> list[Path]:
    """README and every page of docs."""
    docs = ROOT / "docs"
    return [README, *sorted(path for path in docs.glob("**/*.md") if path.relative_to(docs).parts[0] != "_build")]


def blocks_of(page: Path) -> Iterator[Block]:
    """Every fenced block of a page, in order."""
    lines = enumerate(page.read_text().splitlines(), 1)
    for number, line in lines:
        opening = _FENCE.match(line)
        if opening is None:
            continue
        inside = []
        for _, inner in lines:
            if inner.strip() == opening["ticks"]:
                break
            inside.append(inner)
        else:
            raise ValueError(f"{page.name}:{number}: the block has no end")
        yield Block(opening["language"], "".join(f"{inner}\n" for inner in inside), number + 1)
