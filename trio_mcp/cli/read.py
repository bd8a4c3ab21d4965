"""``trio-mcp read``: a resource's text to standard output, or its bytes to a file."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from trio_mcp.cli.blocks import decoded
from trio_mcp.cli.exits import FAILED, NO_CONNECTION, OK, Exit
from trio_mcp.cli.targets import run_connected
from trio_mcp.cli.text import clean, dumps
from trio_mcp.client import Client
from trio_mcp.types.resources import BlobResourceContents, TextResourceContents

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    return run_connected(options, _read)


async def _read(client: Client, options: argparse.Namespace) -> int:
    result = await client.read_resource(options.uri)
    if options.json:
        print(dumps(result.to_wire()))
        return OK
    pieces = [_bytes(each) for each in result.contents]
    if options.output is not None:
        if len(pieces) != 1:
            raise Exit(f"there are {len(pieces)} contents, and --output takes one; see them with --json", FAILED)
        try:
            Path(options.output).write_bytes(pieces[0])  # noqa: ASYNC240 - nothing else runs here
        except OSError as exc:
            raise Exit(f"can't write {options.output}: {exc.strerror or exc}", FAILED) from None
        return OK
    if not sys.stdout.isatty():
        sys.stdout.buffer.write(b"".join(pieces))
        sys.stdout.buffer.flush()
        return OK
    for each in result.contents:
        if isinstance(each, BlobResourceContents):
            raise Exit("it is binary: say where to write it with --output FILE, or redirect the output")
        print(clean(each.text))
    return OK


def _bytes(contents: TextResourceContents | BlobResourceContents) -> bytes:
    if isinstance(contents, TextResourceContents):
        return contents.text.encode("utf-8", "surrogatepass")
    content = decoded(contents.blob)
    if content is None:
        raise Exit(f"the server sent broken Base64 for {contents.uri!r}", NO_CONNECTION)
    return content
