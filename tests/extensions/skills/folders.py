"""Folders of skills for tests."""

from __future__ import annotations

from pathlib import Path
from typing import Any

__all__ = ["IDENTIFIER", "skill_text", "write_skill"]

IDENTIFIER = "io.modelcontextprotocol/skills"


def skill_text(name: str, extra: str = "", body: str = "Do it.\n") -> str:
    """Return a SKILL.md; ``extra`` has further lines of the frontmatter."""
    return f"---\nname: {name}\ndescription: About {name}\n{extra}---\n\n{body}"


def write_skill(folder: Path, path: str, files: dict[str, bytes | str] | None = None, **text: Any) -> Path:
    """Write a skill, and return its directory.

    Args:
        folder: The folder of skills.
        path: The path of the skill in it.
        files: Further files, by path.
        text: The other arguments of `skill_text`.
    """
    directory = folder / path
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "SKILL.md").write_text(skill_text(text.pop("name", directory.name), **text))
    for name, content in (files or {}).items():
        file = directory / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(content.encode() if isinstance(content, str) else content)
    return directory
