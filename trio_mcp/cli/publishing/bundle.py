"""A bundle, ``NAME.mcpb``: a zip file with a manifest and the project, which a host installs and starts with uv.

github.com/modelcontextprotocol/mcpb: MANIFEST.md, version 0.4, ``server.type`` ``"uv"``.
"""

from __future__ import annotations

import io
import os
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from trio_mcp.cli.exits import FAILED, Exit
from trio_mcp.cli.publishing.documents import as_text
from trio_mcp.cli.publishing.project import Project, owner_of

__all__ = ["bundle", "manifest"]

MOST_FILES: Final = 10_000
MOST_BYTES: Final = 100_000_000
"""Bounds of a bundle (arbitrary): with more, a folder of data has most likely got into the package."""

_EPOCH: Final = (1980, 1, 1, 0, 0, 0)
"""The time of each file, the earliest that a zip file knows: the same project makes the same bytes, and so one hash."""

BESIDE: Final = ("LICENSE*", "LICENCE*", "COPYING*", "NOTICE*", "uv.lock")
"""The files that are packed of the project's folder, besides its ``pyproject.toml``, its README and its package."""


def manifest(project: Project, name: str, document: Mapping[str, Any], tools: Sequence[tuple[str, str]]) -> bytes:
    """Return the manifest.

    Args:
        project: The project, whose script can be found.
        name: The name of the server in the registry.
        document: Its ``server.json``.
        tools: The names of its tools, and their descriptions.

    Raises:
        Exit: If the project names no author, and the server's name no owner.
    """
    entry, author = project.entry(), _author(project, name)
    assert entry is not None, "the script has been checked"
    made: dict[str, Any] = {
        "manifest_version": "0.4",
        "name": project.name,
        "display_name": document.get("title"),
        "version": document["version"],
        "description": document["description"],
        "author": author,
        "repository": {"type": "git", "url": document["repository"]["url"]} if "repository" in document else None,
        "homepage": document.get("websiteUrl"),
        "license": project.text("license"),
        "keywords": [*project.strings("keywords")],
        "server": {
            "type": "uv",
            "entry_point": entry[0].relative_to(project.folder).as_posix(),
            "mcp_config": {"command": "uv", "args": ["run", "--directory", "${__dirname}", project.name]},
        },
        "tools": [{"name": tool, **({"description": text} if text else {})} for tool, text in tools],
        "compatibility": {"runtimes": {"python": python}} if (python := project.text("requires-python")) else None,
    }
    return as_text({key: value for key, value in made.items() if value})


def _author(project: Project, name: str) -> dict[str, str]:
    authors = project.table.get("authors")
    for each in authors if isinstance(authors, list) else ():
        if isinstance(each, dict) and isinstance(each.get("name"), str) and each["name"]:
            email = each.get("email")
            return {"name": each["name"], **({"email": email} if isinstance(email, str) else {})}
    if (owner := owner_of(name)) is None:
        raise Exit('a bundle names its author: add authors = [{ name = "…" }] to pyproject.toml', FAILED)
    return {"name": owner}


def bundle(project: Project, manifest: bytes) -> bytes:
    """Return the content of the bundle.

    Raises:
        Exit: If a file can't be read or packed, or there are too many.
    """
    packed: dict[str, bytes] = {"manifest.json": manifest}
    size = 0
    try:
        for file in _files(project):
            name = Path(os.path.normpath(file)).relative_to(project.folder).as_posix()
            packed[name] = content = file.read_bytes()
            size += len(content)
            if len(packed) > MOST_FILES or size > MOST_BYTES:
                raise Exit(
                    f"a bundle may have {MOST_FILES:,} files and {MOST_BYTES:,} bytes, but the package has more: is"
                    " there a folder of data in it?",
                    FAILED,
                )
    except OSError as exc:
        raise Exit(f"can't read {exc.filename}: {exc.strerror}", FAILED) from None
    except ValueError:
        raise Exit("the readme, or the module of the script, is outside the project's folder", FAILED) from None
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in packed.items():
            info = zipfile.ZipInfo(name, _EPOCH)
            info.external_attr = 0o644 << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, content)
    return out.getvalue()


def _files(project: Project) -> Iterator[Path]:
    """Yield what is packed, in an order that is always the same: what is not needed to install the package, is not."""
    folder, entry = project.folder, project.entry()
    assert entry is not None, "the script has been checked"
    readme = project.readme
    named = [folder / "pyproject.toml", *([readme] if readme is not None else [])]
    named += sorted(file for pattern in BESIDE for file in folder.glob(pattern) if file.is_file())
    yield from dict.fromkeys(named)
    # The outermost package of the script's module, or the module itself if it is in none.
    package = entry[0]
    while (package.parent / "__init__.py").is_file():
        package = package.parent
    yield from _within(package)


def _within(place: Path) -> Iterator[Path]:
    # A symbolic link may lead anywhere, and a hidden file may hold secrets, such as `.env`.
    if place.is_symlink():
        raise Exit(f"{place} is a symbolic link, which is not packed: copy what it leads to", FAILED)
    if place.is_file():
        if place.suffix not in (".pyc", ".pyo"):
            yield place
    elif place.is_dir() and place.name != "__pycache__":
        for each in sorted(place.iterdir()):
            if not each.name.startswith("."):
                yield from _within(each)
