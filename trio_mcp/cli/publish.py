"""``trio-mcp publish``: make and check what a registry and a host need to know of a server; publish nothing."""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from trio_mcp._files import write_all
from trio_mcp.cli.exits import FAILED, OK, Exit
from trio_mcp.cli.loading import load_server
from trio_mcp.cli.publishing.bundle import bundle, manifest
from trio_mcp.cli.publishing.documents import as_text, document_problems, merged, name_problem, server_document
from trio_mcp.cli.publishing.project import (
    Project,
    find_project,
    owner_of,
    package_version,
    project_problems,
    read_project,
)
from trio_mcp.cli.publishing.workflow import WORKFLOW_PATH, workflow
from trio_mcp.client.config.text import locate, read_regular
from trio_mcp.server.base_server import BaseServer, core_of

__all__ = ["run"]

LARGEST = 1_000_000
"""The largest size of a ``server.json``, in bytes (arbitrary)."""


def run(options: argparse.Namespace) -> int:
    """Check a project, show its ``server.json``, and write what is asked for."""
    if options.force and not options.write:
        raise Exit("--force does not apply without --write")
    server = load_server(options.server, options.file_arguments)
    file = _file_of(options.server)
    project = read_project(find_project(file))
    before = _written(project.folder / "server.json")
    name, version = _name(options.name, before, project), package_version(project)
    made = merged(before, server_document(name, version, project, server.info))
    problems = [*project_problems(project, name), *_of_server(server, version)]
    problems += [f"server.json: {each}" for each in document_problems(made)]
    if before is not None and made != before and "server.json" not in options.write:
        changed = ", ".join(key for key in {**before, **made} if before.get(key) != made.get(key))
        problems.append(f"server.json is not up to date: its {changed} would change; add --write server.json --force")
    if problems:
        raise Exit("\n".join(problems), FAILED)
    files: dict[Path, bytes] = {}
    if "server.json" in options.write and made != before:
        files[project.folder / "server.json"] = as_text(made)
    if "mcpb" in options.write:
        packed = bundle(project, manifest(project, name, made, _tools(server)))
        files[project.folder / "dist" / f"{project.name}-{version}.mcpb"] = packed
    if "workflow" in options.write:
        files[project.folder / WORKFLOW_PATH] = _workflow(name, options.server, file, project)
    _refuse_existing(files, options.force)
    try:
        write_all(files)
    except OSError as exc:
        raise Exit(f"can't write {exc.filename or project.folder}: {exc.strerror or exc}", FAILED) from None
    for path, content in files.items():
        digest = f", whose SHA-256 is {hashlib.sha256(content).hexdigest()}" if path.suffix == ".mcpb" else ""
        print(f"Wrote {path}{digest}.")
    if made == before:
        print("server.json is up to date, and nothing stands in the way of publishing.")
    elif not options.write:
        print("Put this into server.json, or run the command again with --write server.json:\n")
        print(as_text(made).decode(), end="\n")
    print("To publish: release the package on PyPI, then run `mcp-publisher publish`. --write workflow does both.")
    return OK


def _file_of(target: str) -> Path:
    source = target.partition(":")[0]
    file = getattr(sys.modules.get(source), "__file__", None)
    return Path(source if source.endswith(".py") or "/" in source or file is None else file)


def _written(path: Path) -> dict[str, Any] | None:
    """Return the document that a file holds; None if there is no such file.

    Raises:
        Exit: If it can't be read.
    """
    try:
        text = read_regular(path, LARGEST).decode()
        found = json.loads(text)
        if repeated := next((path for path, _ in locate(text).repeated), None):
            raise ValueError(f"has the key {repeated[-1]!r} twice")
    except FileNotFoundError:
        return None
    except OSError as exc:
        raise Exit(f"can't read {path.name}: {exc.strerror or exc}", FAILED) from None
    except UnicodeDecodeError:
        raise Exit(f"{path.name} is not valid UTF-8", FAILED) from None
    except json.JSONDecodeError as exc:
        raise Exit(f"{path.name} is not valid JSON: line {exc.lineno}: {exc.msg}", FAILED) from None
    except RecursionError:
        raise Exit(f"{path.name} is not valid JSON: it is nested too deeply", FAILED) from None
    except ValueError as exc:
        raise Exit(f"{path.name} {exc}", FAILED) from None
    if not isinstance(found, dict):
        raise Exit(f"{path.name} must be a JSON object", FAILED)
    return found


def _name(given: str | None, before: Mapping[str, Any] | None, project: Project) -> str:
    """Return the name of the server in the registry: the one that is given, or else the first that is written.

    Raises:
        Exit: If it can't be the name of a server, or none is known.
    """
    if given is not None:
        if problem := name_problem(given):
            raise Exit(f"--name: {given!r:.220} {problem}")
        return given
    if before is not None and isinstance(before.get("name"), str):
        return str(before["name"])
    if marks := project.marks():
        return marks[0].rstrip(".-_/")
    if project.repository is not None:
        return f"io.github.{project.repository[0]}/{project.name.lower()}"
    raise Exit(
        "the name of the server in the registry is not known: give --name io.github.OWNER/NAME, or add the URL of the"
        " repository to [project.urls] in pyproject.toml"
    )


def _of_server(server: BaseServer, version: str) -> Iterator[str]:
    said = server.info.version
    if said != version:
        yield (
            f"the server says its version is {said!r:.100}, but pyproject.toml says {version!r:.100}: use one, such"
            " as Server(…, version=importlib.metadata.version(…))"
        )


def _tools(server: BaseServer) -> Sequence[tuple[str, str]]:
    return [(tool.definition.name, tool.definition.description or "") for tool in core_of(server).tools()]


def _workflow(name: str, target: str, file: Path, project: Project) -> bytes:
    if owner_of(name) is None:
        raise Exit(
            f"the workflow signs in as a repository of GitHub, whose names begin with io.github.OWNER/;"
            f" for {name!r:.220}, see `mcp-publisher login dns`",
            FAILED,
        )
    source, _, attribute = target.partition(":")
    if source.endswith(".py"):
        source = Path(os.path.abspath(file)).relative_to(project.folder).as_posix()
    return workflow(shlex.quote(source + (f":{attribute}" if attribute else "")))


def _refuse_existing(files: Mapping[Path, bytes], force: bool) -> None:
    for path, content in files.items():
        if path.exists() and not path.is_file():
            raise Exit(f"can't write {path}: it is not a regular file", FAILED)
        if path.exists() and not force and path.read_bytes() != content:
            kept = "; what you added to it is kept" if path.name == "server.json" else ""
            raise Exit(f"{path} is there already, with another content: add --force to replace it{kept}", FAILED)
