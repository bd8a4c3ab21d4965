"""Put an entry into the text of a host's file, and leave all other text, including comments, unchanged."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from trio_mcp.client.config.text import Places, parsed, without_comments

__all__ = ["NotEditable", "Taken", "snippet", "with_json_entry", "with_yaml_entry", "yaml_snippet"]


class NotEditable(Exception):
    """A file can't be changed without a risk to its other content; the message says why."""


class Taken(Exception):
    """The file already has a different entry of the same name."""


def snippet(table: str, name: str, entry: Mapping[str, Any]) -> str:
    """Return the text of a JSON file with a table that contains just one entry."""
    return json.dumps({table: {name: entry}}, indent=2, ensure_ascii=False) + "\n"


def with_json_entry(text: str, table: str, name: str, entry: Mapping[str, Any], *, force: bool) -> str:
    """Put an entry into a table in the text of a JSON file, and return the new text.

    Args:
        text: The file's text, which may have comments and trailing commas, or be empty.
        table: The key of the table, which is made if it is missing.
        name: The key of the entry.
        entry: The entry.
        force: Whether to replace an existing entry of that name.

    Raises:
        NotEditable: If the text is not a JSON object that can have such a table, or can't be changed safely.
        Taken: If there is a different entry of that name, and ``force`` is not set.
    """
    if not text.strip("\ufeff \t\r\n"):
        return snippet(table, name, entry)
    plain = without_comments(text)
    content, places = _parsed(plain)
    if not isinstance(content, dict) or not isinstance(content.get(table, {}), dict):
        raise NotEditable(f"it must be an object, and so must its {table!r}")
    if repeated := next((path for path, _ in places.repeated if path in ((table,), (table, name))), None):
        raise NotEditable(f"it has the key {repeated[-1]!r} twice")
    is_there = name in content.get(table, {})
    if is_there and content[table][name] == entry:
        return text
    if is_there and not force:
        raise Taken
    unit = _unit(plain)
    if is_there:
        start, end = places.spans[table, name]
        edited = text[:start] + _dumped(text, entry, _indentation(plain, start), unit) + text[end:]
    elif table in content:
        edited = _with_member(text, plain, places, (table,), content[table], name, entry, unit)
    else:
        edited = _with_member(text, plain, places, (), content, table, {name: entry}, unit)
    content[table] = {**content.get(table, {}), name: entry}
    # The result is checked rather than trusted, because the file belongs to the user.
    if _parsed(without_comments(edited))[0] != content:
        raise NotEditable("the entry can't be put into it without changing the rest")
    return edited


def _parsed(plain: str) -> tuple[Any, Places]:
    try:
        # A space replaces the byte order mark, so that all offsets stay the same.
        return parsed(" " + plain[1:] if plain.startswith("\ufeff") else plain)
    except json.JSONDecodeError as exc:
        raise NotEditable(f"it is not valid JSON: line {exc.lineno}: {exc.msg}") from None
    except ValueError as exc:
        raise NotEditable(f"it is not valid JSON: {exc}") from None


def _with_member(
    text: str,
    plain: str,
    places: Places,
    path: tuple[str, ...],
    members: Mapping[str, Any],
    key: str,
    value: object,
    unit: str,
) -> str:
    """Add a member at the end of an object in a JSON text, and return the new text."""
    start, end = places.spans[path]
    closing = end - 1
    outer = _indentation(plain, start)
    first = start + 1 + len(plain[start + 1 :]) - len(plain[start + 1 :].lstrip())
    # The new member is indented like the existing ones, if those are on lines of their own.
    inner = _indentation(plain, first) if members and "\n" in plain[start:first] else outer + unit
    last = places.spans[*path, list(members)[-1]][1] if members else start + 1
    comma = "," if members and "," not in plain[last:closing] else ""
    # The new member goes after the last comment, because that comment belongs to the members before it.
    at = len(text[:closing].rstrip())
    newline = _newline(text)
    after = "" if "\n" in text[at:closing] else newline + outer
    member = f"{newline}{inner}{json.dumps(key, ensure_ascii=False)}: {_dumped(text, value, inner, unit)}{after}"
    return text[:last] + comma + text[last:at] + member + text[at:]


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _indentation(plain: str, at: int) -> str:
    """Return the white space at the beginning of the line that contains an offset."""
    return _indent_of(plain[plain.rfind("\n", 0, at) + 1 : at + 1].removeprefix("\ufeff"))


def _indent_of(line: str) -> str:
    return line[: len(line) - len(line.lstrip(" \t"))]


def _unit(plain: str) -> str:
    """Return the white space with which a file indents each level."""
    found = re.match(r"\ufeff?\s*\{[ \t]*\r?\n([ \t]+)", plain)
    return found[1] if found else "  "


def _dumped(text: str, value: object, indentation: str, unit: str) -> str:
    # All line breaks of a JSON text are between its tokens: those in strings are escaped.
    return json.dumps(value, indent=unit, ensure_ascii=False).replace("\n", _newline(text) + indentation)


# --- YAML, which is read line by line, without a parser ---------------------------------------------------------------


def yaml_snippet(table: str, name: str, entry: Mapping[str, Any]) -> str:
    """Return the text of a YAML file with a table that contains just one entry."""
    return f"{table}:\n" + _yaml_lines(name, entry, "  ", "\n")


def with_yaml_entry(text: str, table: str, name: str, entry: Mapping[str, Any], *, force: bool) -> str:
    """Put an entry at the beginning of a table in the text of a YAML file, and return the new text.

    The arguments and exceptions are those of `with_json_entry`. A file is not editable unless it is laid out in plain
    lines of ``key: value``.
    """
    if not text.strip("\ufeff \t\r\n"):
        return yaml_snippet(table, name, entry)
    newline = _newline(text)
    lines = re.findall(r"[^\n]*\n", text if text.endswith("\n") else text + newline)
    if any(re.match(r"\.\.\.|---|[{\[]|%", line) for line in lines[1:]) or re.match(r"\ufeff?[{\[%]", lines[0]):
        raise NotEditable("it has several documents, or is not laid out in lines of `key: value`")
    heads = [index for index, line in enumerate(lines) if re.match(rf"""\ufeff?["']?{table}["']?\s*:""", line)]
    if not heads:
        return "".join(lines) + yaml_snippet(table, name, entry).replace("\n", newline)
    head = heads[0]
    empty = re.fullmatch(rf"(\ufeff?{table}:)[ \t]*(\{{[ \t]*\}})?[ \t]*(#.*)?\r?\n", lines[head])
    if len(heads) > 1 or not empty:
        raise NotEditable(f"its {table!r} is not laid out in lines of its own")
    if empty[2]:
        lines[head] = empty[1] + newline
    # The table ends before the next line that is not indented.
    end = next((at for at in range(head + 1, len(lines)) if re.match(r"[^\s#]", lines[at])), len(lines))
    inner = [at for at in range(head + 1, end) if re.match(r"[ \t]*[^\s#]", lines[at])]
    indentation = _indent_of(lines[inner[0]]) if inner else "  "
    if "\t" in indentation or (inner and lines[inner[0]].lstrip().startswith("-")):
        raise NotEditable(f"its {table!r} is not laid out in lines of `key: value`")
    new = _yaml_lines(name, entry, indentation, newline)
    key = re.compile(rf"""{indentation}(?:{name}|"{name}"|'{name}')[ \t]*:""")
    there = next((at for at in inner if key.match(lines[at])), None)
    if there is None:
        return "".join([*lines[: head + 1], new, *lines[head + 1 :]])
    # The entry ends with its last line that is indented further; comments after that line belong to what follows.
    below = [at for at in inner if at > there]
    following = next((at for at in below if len(_indent_of(lines[at])) <= len(indentation)), end)
    last = max([there, *(at for at in below if at < following)])
    if "".join(lines[there : last + 1]) == new:
        return text
    if not force:
        raise Taken
    return "".join([*lines[:there], new, *lines[last + 1 :]])


def _yaml_lines(name: str, entry: Mapping[str, Any], indentation: str, newline: str) -> str:
    # Each value is written as JSON, which is valid YAML.
    fields = [f"{indentation * 2}{key}: {json.dumps(value, ensure_ascii=False)}" for key, value in entry.items()]
    # The name is written as JSON, too: without quotes, YAML would read some names as numbers or other values.
    return "".join(f"{line}{newline}" for line in [f"{indentation}{json.dumps(name)}:", *fields])
