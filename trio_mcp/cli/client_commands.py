"""``trio-mcp list``, ``inspect``, ``call``, ``task``, ``skills``, ``read``, ``prompt``: these act as a client."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trio

from trio_mcp._keywords import did_you_mean
from trio_mcp._nursery import background_nursery
from trio_mcp.cli.answers import Given
from trio_mcp.cli.arguments import accepted, as_whole, followed, from_words
from trio_mcp.cli.exits import FAILED, NO_CONNECTION, OK, Exit
from trio_mcp.cli.messages import complaint, paint
from trio_mcp.cli.targets import connected
from trio_mcp.cli.terminal import ProgressBar
from trio_mcp.cli.text import block_text, clean, clean_line, decoded, dumps, paragraph
from trio_mcp.client.client import Client
from trio_mcp.client.tool_results import ToolResult
from trio_mcp.errors import CapabilityError, McpError, TrioMcpError
from trio_mcp.types.error_codes import METHOD_NOT_FOUND, MISSING_REQUIRED_CLIENT_CAPABILITY
from trio_mcp.types.prompts import Prompt
from trio_mcp.types.resources import BlobResourceContents, Resource, ResourceTemplate, TextResourceContents
from trio_mcp.types.tools import Tool

if TYPE_CHECKING:
    from trio_mcp.extensions.tasks.wire import TaskState

__all__ = ["COMMANDS", "run", "tool_named"]

Item = Tool | Prompt | Resource | ResourceTemplate


def run(options: argparse.Namespace) -> int:
    """Connect to the server and run the command."""
    # The progress bar is made before connecting, because a question from the server must clear the bar's line.
    options.bar = ProgressBar(sys.stderr)
    if options.command == "call":
        # The arguments are read before a server is started, because malformed ones are wrong for any server.
        options.whole = as_whole(options.arguments)
    options.given = Given(getattr(options, "answer", ()))

    async def main() -> int:
        # An exception from the block is reported only once the server has ended. By then the server has written its
        # last line to standard error, so the message can't get mixed up with the server's lines.
        async with connected(options, options.bar.clear) as client:
            try:
                status = await COMMANDS[options.command](client, options) or OK
            except McpError as exc:
                raise _with_remedy(exc) from None
        for name in options.given.unused:
            text = f"--answer {name}: no form had a field of this name"
            print(complaint(options.command, clean_line(text), hint=False), file=sys.stderr)
        return status

    return trio.run(main)


# --- what a server offers ---------------------------------------------------------------------------------------------


def _name(text: str) -> str:
    return paint(clean_line(text), "name")


# Kind -> the method that lists the items of this kind (the part before the slash is the capability that the method
# needs), the `Client` method that iterates over them, and a function that formats an item as a line.
KINDS: dict[str, tuple[str, Callable[[Client], AsyncIterator[Any]], Callable[[Any], str]]] = {
    "tools": ("tools/list", Client.iter_tools, lambda tool: f"{_name(tool.name)}({_parameters(tool.input_schema)})"),
    "prompts": ("prompts/list", Client.iter_prompts, lambda prompt: f"{_name(prompt.name)}({_blanks(prompt)})"),
    "resources": ("resources/list", Client.iter_resources, lambda resource: _name(resource.uri)),
    "templates": (
        "resources/templates/list",
        Client.iter_resource_templates,
        lambda template: _name(template.uri_template),
    ),
}


async def _list(client: Client, options: argparse.Namespace) -> None:
    found = await _offered(client, options.kinds)
    if options.json:
        print(dumps(_as_json(found)))
    else:
        print("\n\n".join(_outline(kind, items) for kind, items in found.items()) or "the server offers nothing")


async def _inspect(client: Client, options: argparse.Namespace) -> None:
    found = await _offered(client)
    capabilities = client.capabilities.to_wire()
    info = client.server_info
    if options.json:
        about = {
            "serverInfo": None if info is None else info.to_wire(),
            "protocolVersion": client.protocol_version,
            "capabilities": capabilities,
            "instructions": client.instructions,
        }
        print(dumps(about | _as_json(found)))
        return
    if info is None:
        print("a server without a name")
    else:
        title = f" ({clean_line(info.title)})" if info.title and info.title != info.name else ""
        print(f"{paint(f'{clean_line(info.name)} {clean_line(info.version)}', 'heading')}{title}")
    print(f"  {paint('protocol', 'heading')}: {client.protocol_version}\n  {paint('capabilities', 'heading')}")
    for name, settings in sorted(capabilities.items()):
        print(f"    {_name(name)}{_settings(settings)}")
    if client.instructions:
        print(f"  {paint('instructions', 'heading')}\n{paragraph(client.instructions, '    ')}")
    for kind, items in found.items():
        print(_outline(kind, items, "  "))


async def _offered(client: Client, kinds: Iterable[str] | None = None) -> dict[str, list[Item]]:
    """Return all items of the given kinds that the server lists; by default, those of every kind that it has declared.

    Raises:
        CapabilityError: If a named kind is not offered by the server.
    """
    found: dict[str, list[Item]] = {}
    for kind, (method, items, _) in KINDS.items():
        if kinds is not None and kind not in kinds:
            continue
        capability = method.partition("/")[0]
        if getattr(client.capabilities, capability) is None:
            if kinds is not None:
                raise CapabilityError(method, capability, "server")
            continue
        try:
            found[kind] = [item async for item in items(client)]
        except McpError as exc:
            # A server that has the capability for resources need not support resource templates.
            if kinds is not None or exc.code != METHOD_NOT_FOUND:
                raise
    return found


async def _with_similar(exc: McpError, client: Client, kind: str, name: str) -> McpError | Exit:
    """Return the error for an unknown name or URI; if the server lists a similar one, the error suggests that one."""
    if exc.code == MISSING_REQUIRED_CLIENT_CAPABILITY:
        return exc
    try:
        items = (await _offered(client, (kind,)))[kind]
    except TrioMcpError:
        return Exit(str(exc), FAILED)  # the server's error about the name matters more than the error from listing
    names = [item.uri if isinstance(item, Resource) else item.name for item in items]
    # If the server has an item of this name, the user did not misspell it, so no other name is suggested.
    is_known = name in names or (kind == "resources" and await _has_template(client, name))
    return Exit(f"{exc}{'' if is_known else did_you_mean(name, names)}", FAILED)


async def _has_template(client: Client, uri: str) -> bool:
    from trio_mcp.client.group.catalog import has_template  # only this function waits for the import

    try:
        templates = [each.uri_template async for each in client.iter_resource_templates()]
    except TrioMcpError:
        return False
    return has_template(uri, templates)


async def _nameless(client: Client, kind: str, what: str) -> Exit:
    """Return the error for a missing name of a tool or prompt; the error lists those that the server has."""
    found = await _offered(client, (kind,))
    return Exit(f"the name of the {what} is missing\n{_outline(kind, found[kind])}")


def _as_json(found: Mapping[str, list[Item]]) -> dict[str, Any]:
    return {kind: [item.to_wire() for item in items] for kind, items in found.items()}


def _outline(kind: str, items: list[Item], indent: str = "") -> str:
    """Format the items of one kind, with one or more lines for each."""
    if not items:
        return f"{indent}{paint(kind, 'heading')}: none"
    line = KINDS[kind][2]
    lines = [f"{indent}{paint(kind, 'heading')}"]
    for item in items:
        lines.append(f"{indent}  {line(item)}")
        title = clean_line(_title(item) or "")
        facts = [title] if title and title != item.name else []
        if isinstance(item, (Resource, ResourceTemplate)):
            facts = [clean_line(item.name), *facts, *([clean_line(item.mime_type)] if item.mime_type else [])]
        about = (", ".join(facts), item.description)
        lines += [paragraph(text, f"{indent}      ") for text in about if text]
    return "\n".join(lines)


def _title(item: Item) -> str | None:
    # The name to display is `title`, or else `annotations.title`, or else `name` (schema, `Tool`).
    if item.title is None and isinstance(item, Tool) and item.annotations is not None:
        return item.annotations.title
    return item.title


def _settings(settings: Any) -> str:
    shown = ", ".join(_flat(settings)) if isinstance(settings, dict) else ""
    return f": {clean_line(shown)}" if shown else ""


def _flat(settings: dict[str, Any], above: str = "", depth: int = 0) -> Iterator[str]:
    """Yield the name of each setting that is not false, dotted if nested, with its value unless that is true or {}."""
    for key, value in settings.items():
        name = f"{above}{key}"
        # Settings that are nested more deeply are shown as JSON, because the server may nest them to any depth.
        if isinstance(value, dict) and value and depth < 3:
            yield from _flat(value, f"{name}.", depth + 1)
        elif value is True or value == {}:
            yield name
        elif value is not False:
            yield f"{name} = {json.dumps(value, ensure_ascii=False)}"


def _blanks(prompt: Prompt) -> str:
    return ", ".join(clean_line(each.name) + ("" if each.required else "?") for each in prompt.arguments or ())


def _parameters(schema: Mapping[str, Any]) -> str:
    properties, required = schema.get("properties"), schema.get("required")
    # The schema has not been validated, so parts of it that make no sense are left out.
    if not isinstance(properties, dict):
        return ""
    needed = required if isinstance(required, list) else []
    kinds = {name: _type(field, schema) for name, field in properties.items()}
    return ", ".join(
        f"{clean_line(name)}{'' if name in needed else '?'}{f': {kind}' if kind else ''}"
        for name, kind in kinds.items()
    )


def _type(field: Any, root: Mapping[str, Any], depth: int = 4) -> str:
    """Describe the type of a parameter in a word or two, or list its values; return "" if neither is possible.

    Args:
        field: The schema of the parameter.
        root: The schema of the tool, for references.
        depth: How many levels of nested schemas to read; a limit is needed, because they may be circular.
    """
    if not isinstance(field, dict) or not depth:
        return ""
    types, _, choices = accepted(field, root)
    if choices and types <= {"null"}:
        texts = [each if isinstance(each, str) else json.dumps(each, ensure_ascii=False) for each in choices[:8]]
        return clean_line("|".join([*texts, *types]))
    if isinstance(reference := field.get("$ref"), str):
        return _type(followed(reference, root), root, depth - 1)
    options = field.get("anyOf", field.get("oneOf"))
    if isinstance(options, list):
        # Only a few alternatives are shown: a schema may have any number, and the line is for people.
        names = [_type(each, root, depth - 1) for each in options[:5]]
        return " | ".join(names) if all(names) else ""
    named = field.get("type")
    if isinstance(named, list):
        named = " | ".join(str(each) for each in named[:5])
    if not isinstance(named, str):
        return ""
    inner = _type(field.get("items"), root, depth - 1) if named == "array" else ""
    return clean_line(named) + (f" of {inner}" if inner else "")


# --- a tool: its result goes to standard output, its errors and its progress to standard error ------------------------


async def _call(client: Client, options: argparse.Namespace) -> int:
    if options.tool is None:
        raise await _nameless(client, "tools", "tool")
    arguments = options.whole
    if arguments is None:
        # Without arguments no schema is needed, so the tools need not be listed.
        arguments = from_words(options.arguments, await _schema(client, options.tool) if options.arguments else {})
    if options.detach:
        return await _start(client, options, arguments)
    bar: ProgressBar = options.bar
    try:
        limits = {} if options.total_timeout is None else {"total_timeout": options.total_timeout}
        # A tool that reports progress is alive, so the timeout counts from its last report; `--total-timeout` limits
        # the whole call.
        result = await client.call_tool(
            options.tool, arguments, on_progress=bar.show if bar.wanted else None, reset_on_progress=True, **limits
        )
    finally:
        # The progress bar is also cleared after an error or Ctrl-C, so that the next output begins on a clean line.
        bar.clear()
    return _show(result, options.tool, as_json=options.json)


def _show(result: ToolResult, tool: str | None, *, as_json: bool) -> int:
    """Print the result of a tool, and return the exit status."""
    if as_json:
        print(dumps(result.to_wire()))
    # A tool's error goes to standard error, so that a program behind a pipe never mistakes it for a result.
    elif result.is_error:
        raise Exit(_text(result) or (f"the tool {tool!r} failed" if tool else "the tool failed"), FAILED)
    elif text := _text(result):
        # A program that reads the output gets the text unchanged. For a terminal, control characters are escaped, so
        # that it does not act on them.
        print(clean(text) if sys.stdout.isatty() else text)
    return FAILED if result.is_error else OK


# --- a task: its state and its id go to standard output, what happens meanwhile to standard error ---------------------


async def _start(client: Client, options: argparse.Namespace, arguments: Mapping[str, Any]) -> int:
    from trio_mcp.extensions.tasks.extension import Tasks

    limits: Any = {} if options.total_timeout is None else {"total_timeout": options.total_timeout}
    task = await Tasks.of(client).start(options.tool, arguments, **limits)
    if task.id is None:
        print("the server returned the result at once, so there is no task", file=sys.stderr)
        return _show(await task.result(), options.tool, as_json=options.json)
    print(clean(task.id) if sys.stdout.isatty() else task.id)
    target = options.target or "TARGET"
    print(f"the call has become a task; to wait for its result: trio-mcp task watch {target} ID", file=sys.stderr)
    return OK


async def _task(client: Client, options: argparse.Namespace) -> int | None:
    from trio_mcp.extensions.tasks.extension import Tasks

    # The id is a secret, which other users of the machine could see on the command line.
    task_id = sys.stdin.readline().strip() if options.id == "-" else options.id
    if not task_id:
        raise Exit("there is no task id on standard input")
    task = Tasks.of(client).task(task_id)
    if options.action == "cancel":
        await task.cancel()
        return None
    if options.action == "get":
        state = await task.get()
        print(dumps(state.to_wire()) if options.json else _status(state))
        return None

    async def watch() -> None:
        async for state in task.watch():
            print(_status(state), file=sys.stderr)

    limits: Any = {} if options.total_timeout is None else {"total_timeout": options.total_timeout}
    async with background_nursery() as nursery:
        nursery.start_soon(watch)
        result = await task.result(**limits)
    return _show(result, None, as_json=options.json)


def _status(state: TaskState) -> str:
    return f"{state.status}: {clean_line(state.status_message)}" if state.status_message else state.status


# Capability -> the remedy if the server needs input that requires this capability. The first of these capabilities that
# the error mentions decides.
REMEDIES = {
    "elicitation.url": "the server asks the user to open a page, so use a terminal",
    "elicitation": "the server asks the user, so use a terminal, or give --answer NAME=VALUE",
    "sampling": "the server asks a language model; give the model's response with --sample TEXT",
    "roots": "the server asks for directories; name one with --root DIR",
}


def _with_remedy(exc: McpError) -> McpError | Exit:
    """Return an error, with a remedy if the server needed input for which the client lacks the capability."""
    if exc.code != MISSING_REQUIRED_CLIENT_CAPABILITY:
        return exc
    remedy = next((remedy for asked, remedy in REMEDIES.items() if asked in str(exc)), None)
    return exc if remedy is None else Exit(f"{exc}: {remedy}", FAILED)


async def _schema(client: Client, name: str) -> Mapping[str, Any]:
    # The protocol has no request for the description of a single tool, so all tools are listed.
    return tool_named(name, {tool.name: tool async for tool in client.iter_tools()}).input_schema


def tool_named(name: str, listed: Mapping[str, Tool]) -> Tool:
    """Return the listed tool of this name.

    Raises:
        Exit: If the server lists no tool of this name.
    """
    if name in listed:
        return listed[name]
    meant = did_you_mean(name, listed) or f"; its tools are: {', '.join(listed) or 'none'}"
    raise Exit(f"the server lists no tool {name!r}{meant}", FAILED)


def _text(result: ToolResult) -> str:
    if result.content:
        return "\n".join(map(block_text, result.content))
    return "" if result.structured_content is None else dumps(result.structured_content)


# --- a resource: its text goes to standard output, or its bytes go to a file ------------------------------------------


async def _read(client: Client, options: argparse.Namespace) -> None:
    try:
        result = await client.read_resource(options.uri)
    except McpError as exc:
        raise await _with_similar(exc, client, "resources", options.uri) from None
    if options.json:
        print(dumps(result.to_wire()))
        return
    # All contents are decoded before anything is written: invalid Base64 in a later one must leave no partial output.
    pieces = [_bytes(each) for each in result.contents]
    if options.output is not None:
        if len(pieces) != 1:
            raise Exit(
                f"the resource has {len(pieces)} contents, but --output can write only one; use --json instead", FAILED
            )
        try:
            Path(options.output).write_bytes(pieces[0])  # noqa: ASYNC240 - nothing else runs here
        except OSError as exc:
            raise Exit(f"can't write {options.output}: {exc.strerror or exc}", FAILED) from None
    elif not sys.stdout.isatty():
        # Bytes are written, because a resource need not be text, and text must reach a file unchanged.
        sys.stdout.buffer.write(b"".join(pieces))
        sys.stdout.buffer.flush()
    else:
        for each in result.contents:
            if isinstance(each, BlobResourceContents):
                raise Exit("the resource is binary: write it to a file with --output FILE, or redirect the output")
            print(clean(each.text))


def _bytes(contents: TextResourceContents | BlobResourceContents) -> bytes:
    if isinstance(contents, TextResourceContents):
        # "surrogatepass" is needed because JSON may escape half of a surrogate pair, which plain UTF-8 can't encode.
        return contents.text.encode("utf-8", "surrogatepass")
    content = decoded(contents.blob)
    if content is None:
        raise Exit(f"the server sent invalid Base64 for {contents.uri!r}", NO_CONNECTION)
    return content


# --- a prompt ---------------------------------------------------------------------------------------------------------


async def _prompt(client: Client, options: argparse.Namespace) -> None:
    if options.prompt is None:
        raise await _nameless(client, "prompts", "prompt")
    try:
        filled = await client.get_prompt(options.prompt, dict(options.arguments))
    except McpError as exc:
        raise await _with_similar(exc, client, "prompts", options.prompt) from None
    if options.json:
        print(dumps(filled.to_wire()))
        return
    for message in filled.messages:
        print(f"{message.role}: {clean(block_text(message.content))}")


async def _skills(client: Client, options: argparse.Namespace) -> int:
    from trio_mcp.cli.skills import skills  # only this command waits for the import

    return await skills(client, options)


COMMANDS: dict[str, Callable[[Client, argparse.Namespace], Awaitable[int | None]]] = {
    "list": _list,
    "inspect": _inspect,
    "call": _call,
    "task": _task,
    "skills": _skills,
    "read": _read,
    "prompt": _prompt,
}
"""Command -> its function, which returns the exit status if that is not `OK`."""
