"""``trio-mcp call``: a tool's result to standard output; its errors, and its progress, to standard error."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import Any

from trio_mcp.cli.arguments import as_json_object, from_words
from trio_mcp.cli.blocks import block_text
from trio_mcp.cli.exits import FAILED, OK, Exit
from trio_mcp.cli.progress import ProgressBar
from trio_mcp.cli.targets import run_connected
from trio_mcp.cli.text import clean, dumps
from trio_mcp.client import Client, ToolResult

__all__ = ["run"]


def run(options: argparse.Namespace) -> int:
    """Run the command."""
    words = options.arguments
    whole: dict[str, Any] | None = None
    if len(words) == 1 and (words[0] == "-" or words[0].lstrip().startswith("{")):
        # Before anything is started: what is wrong with it is wrong without a server, too.
        whole = as_json_object(sys.stdin.read() if words[0] == "-" else words[0])
    options.whole = whole
    options.bar = ProgressBar(sys.stderr)
    return run_connected(options, _call, options.bar.clear)


async def _call(client: Client, options: argparse.Namespace) -> int:
    arguments = options.whole
    if arguments is None:
        arguments = from_words(options.arguments, await _schema(client, options.tool) if options.arguments else {})
    bar: ProgressBar = options.bar
    try:
        limits = {} if options.total_timeout is None else {"total_timeout": options.total_timeout}
        result = await client.call_tool(
            options.tool, arguments, on_progress=bar.show if bar.wanted else None, reset_on_progress=True, **limits
        )
    finally:
        bar.clear()
    if options.json:
        print(dumps(result.to_wire()))
    elif result.is_error:
        print(f"trio-mcp call: {clean(_text(result)) or f'the tool {options.tool!r} failed'}", file=sys.stderr)
    elif text := _text(result):
        print(clean(text) if sys.stdout.isatty() else text)
    return FAILED if result.is_error else OK


async def _schema(client: Client, name: str) -> Mapping[str, Any]:
    schemas = {tool.name: tool.input_schema async for tool in client.iter_tools()}
    if name in schemas:
        return schemas[name]
    raise Exit(f"the server lists no tool {name!r}; there are: {', '.join(schemas) or 'none'}", FAILED)


def _text(result: ToolResult) -> str:
    if result.content:
        return "\n".join(map(block_text, result.content))
    return "" if result.structured_content is None else dumps(result.structured_content)
