"""``trio-mcp install``: add a server to a host's file, or show what to add."""

from __future__ import annotations

import argparse
import itertools
import os
import shlex
import stat
import sys
from pathlib import Path

from trio_mcp._files import PRIVATE, temporary
from trio_mcp.cli.config import is_url, plain_entry, server_name
from trio_mcp.cli.editing import NotEditable, Taken, snippet, with_json_entry, with_yaml_entry, yaml_snippet
from trio_mcp.cli.exits import FAILED, OK, Exit
from trio_mcp.cli.hosts import HOSTS
from trio_mcp.client.config.text import read_regular

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    """Print the entry for a host's file, or write it to that file."""
    host = HOSTS[options.host]
    if options.scope == "project" and not host.project:
        raise Exit(f"{host.title} has no file for a single project; leave out --scope")
    name = server_name(options)
    # Goose looks extensions up by their names in lower case.
    name = name.lower() if host.yaml else name
    entry = host.entry(name, plain_entry(options, only_commands=host.remote is None))
    try:
        path = host.file(options.scope, sys.platform, os.environ)
    except RuntimeError:
        raise Exit("this user has no home directory; set HOME to the one with the host's files") from None
    if options.write:
        print(_put(path, host.table, name, entry, yaml=host.yaml, force=options.force))
    else:
        shown = yaml_snippet if host.yaml else snippet
        print(f"Put this into {path}, or run the command again with --write:\n")
        print(shown(host.table, name, entry))
    print(host.then)
    print(f"If the server is missing there, see {host.logs.replace('{name}', name)}.")
    # `list` can read the file of every host but Goose, whose file is YAML.
    target = shlex.quote(options.server) if host.yaml else f"{shlex.quote(str(path))}#{name}"
    print(f"To try the server without {host.title}: trio-mcp list {target}")
    if not options.env and not is_url(options.server):
        print("The server gets only a few variables of your environment; pass others with --env NAME=VALUE.")
    if not is_url(options.server) and ".py" not in options.server:
        print(f"The server's package must be installed in the environment of {sys.executable}.")
    return OK


def _put(path: Path, table: str, name: str, entry: dict[str, object], *, yaml: bool, force: bool) -> str:
    """Write an entry into a host's file; return a message about what was done."""
    # A symbolic link is followed, because many people keep hosts' files elsewhere.
    file = Path(os.path.realpath(path))
    try:
        before = read_regular(file) if file.exists() else None
        edit = with_yaml_entry if yaml else with_json_entry
        text = edit((before or b"").decode(), table, name, entry, force=force)
        if text.encode() == before:
            return f"{path} already contains this server; nothing was changed."
        backup = None if before is None else _backup(file, before)
        try:
            _replace(file, text.encode(), before)
        except BaseException:
            if backup is not None:
                backup.unlink()
            raise
    except Taken:
        raise Exit(
            f"{path} already has a different server named {name!r}; add --force to replace it, or choose another"
            " --name",
            FAILED,
        ) from None
    except (NotEditable, ValueError) as exc:
        why = "is not valid UTF-8" if isinstance(exc, UnicodeDecodeError) else str(exc)
        why = why if isinstance(exc, NotEditable) else f"it {why}"
        raise Exit(
            f"{path} is left as it was: {why}; run this command without --write, and edit the file by hand", FAILED
        ) from None
    except OSError as exc:
        raise Exit(f"can't write {path}: {exc.strerror or exc}", FAILED) from None
    return f"Added {name!r} to {path}" + (f"; the previous version is in {backup}." if backup else ", a new file.")


def _backup(file: Path, content: bytes) -> Path:
    """Write a copy of a file beside it, under a name that is not in use, and return the path of the copy."""
    names = (file.with_name(f"{file.name}.bak{number or ''}") for number in itertools.count())
    mode = stat.S_IMODE(file.stat().st_mode)
    for name in names:
        try:
            descriptor = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode)
        except FileExistsError:
            continue
        with open(descriptor, "wb") as copy:
            copy.write(content)
        return name
    raise AssertionError  # unreachable: itertools.count() never ends


def _replace(file: Path, content: bytes, before: bytes | None) -> None:
    """Replace a file in one step, so that no host reads a half-written file."""
    file.parent.mkdir(parents=True, exist_ok=True)
    # The file may contain secrets, so only the user may read it, unless others could read it before.
    with temporary(file, content, PRIVATE) as written:
        # The file is read once more, because the host may have changed it in the meantime.
        if (file.read_bytes() if file.exists() else None) != before:
            raise Exit(
                f"{file} has just been changed, perhaps by its host, so it was left as it is; run this command again",
                FAILED,
            )
        os.replace(written, file)
