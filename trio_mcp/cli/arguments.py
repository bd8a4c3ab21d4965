"""Turn words of the command line into a tool's arguments, guided by the tool's input schema."""

from __future__ import annotations

import itertools
import json
import re
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from trio_mcp._keywords import did_you_mean
from trio_mcp.cli.exits import Exit

__all__ = ["accepted", "as_json_object", "as_whole", "check_form", "followed", "from_words", "value_of"]

# The limit is arbitrary: more subschemas than any real field needs, and few enough that a hostile schema costs little
# time.
MAX_PARTS = 200
"""How many subschemas are visited at most for one field: the server's schema may be circular or huge."""

# The name matches as little as possible, so that the first `=` ends the name; the value may contain further `=`.
WORD = re.compile(r"(?P<name>.+?)(?P<sign>:?=)(?P<value>.*)", re.DOTALL)
INTEGER = re.compile(r"[+-]?[0-9]{1,4000}")  # int() refuses a number of more than 4300 digits
NO_VALUE = object()  # None represents the value null


def as_json_object(text: str) -> dict[str, Any]:
    """Return the arguments given as one JSON text.

    Raises:
        Exit: If the text is not valid JSON, or not an object.
    """
    value = _json("the arguments", text)
    if not isinstance(value, dict):
        raise Exit("the arguments must be a JSON object")
    return value


def as_whole(words: Sequence[str]) -> dict[str, Any] | None:
    """Return the arguments if they are given as one JSON text, or as ``-`` for standard input; else None.

    Words of another form are checked as far as that is possible without a schema; `from_words` reads them later.

    Raises:
        Exit: If the text is not a JSON object, or the words are malformed.
    """
    # In practice no argument's name begins with a brace, so a single word that does is taken to be JSON.
    if len(words) == 1 and (words[0] == "-" or words[0].lstrip().startswith("{")):
        return as_json_object(sys.stdin.read() if words[0] == "-" else words[0])
    check_form(words)
    return None


def from_words(words: Sequence[str], schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments given as ``name=value`` and ``name:=json``; an array may be given item by item.

    Raises:
        Exit: If a word has neither form, a value does not match the schema, or the schema has no such argument.
    """
    found: dict[str, Any] = {}
    properties = schema.get("properties")
    fields = properties if isinstance(properties, dict) else {}
    for name, is_json, text in map(_parts, words):
        if is_json:
            value: Any = _json(name, text)
        else:
            _check_name(name, fields, schema)
            field = fields.get(name, True)
            value = value_of(name, text, field, schema)
            # With `items=a items=b`, each word gives a list of one item, and the lists are joined.
            if isinstance(value, list) and isinstance(found.get(name), list):
                value = found.pop(name) + value
        if name in found:
            raise Exit(f"the argument {name!r} is given twice")
        found[name] = value
    return found


def check_form(words: Iterable[str]) -> None:
    """Check as much of the arguments as can be judged without a schema.

    Raises:
        Exit: If a word is neither ``name=value`` nor ``name:=json``, or its JSON is invalid.
    """
    for name, is_json, text in map(_parts, words):
        if is_json:
            _json(name, text)


def _parts(word: str) -> tuple[str, bool, str]:
    match = WORD.fullmatch(word)
    if match is None:
        raise Exit(f"an argument must have the form name=value or name:=json; got {word!r}")
    return match["name"], match["sign"] == ":=", match["value"]


def _check_name(name: str, fields: Mapping[str, Any], schema: Mapping[str, Any]) -> None:
    # The schema may allow names that it does not list. Such names are accepted, because the server checks them.
    if name in fields or schema.get("additionalProperties") or "patternProperties" in schema:
        return
    hint = did_you_mean(name, fields) or f"; the arguments are: {', '.join(fields) or 'none'}."
    raise Exit(f"the tool has no argument {name!r}{hint} To send it anyway, write {name}:=JSON")


def _json(name: str, text: str) -> Any:
    try:
        # Python's parser recurses: for text that is nested too deeply it raises RecursionError, which is not a
        # ValueError.
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError) as exc:
        raise Exit(f"{name}: not valid JSON: {exc}") from None


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")  # the name is NaN or Infinity: Python's parser would accept both


def value_of(name: str, text: str, field: Any, root: Mapping[str, Any]) -> Any:
    """Return the value that a text represents according to the schema of its field.

    Raises:
        Exit: If the text can't be read as any type that the schema allows.
    """
    types, items, choices = accepted(field, root)
    # Listed values are tried first, so that 1 is read as a number or as a string, whichever the schema lists.
    for choice in choices:
        if text == (choice if isinstance(choice, str) else json.dumps(choice)):
            return choice
    # If the schema names types as well, for example in an `anyOf`, it allows more than the listed values.
    if choices and not types:
        raise Exit(f"{name}: must be one of {', '.join(map(str, choices))}; got {text!r}")
    for kind, read in READERS.items():
        if kind in types and (value := read(text)) is not NO_VALUE:
            return value
    if "array" in types:
        # In an array of arrays, the text of an inner array is not read: the text itself becomes the item.
        return [text if "array" in accepted(items, root)[0] else value_of(name, text, items, root)]
    if "string" in types:
        return text
    if types:
        raise Exit(f"{name}: must be of type {' or '.join(sorted(types))}; got {text!r}")
    value = _loaded(text)  # the schema names no type: JSON is read as JSON, and anything else is a string
    return text if value is NO_VALUE else value


def accepted(field: Any, root: Mapping[str, Any]) -> tuple[set[str], Any, list[Any]]:
    """Return what the schema of a field allows.

    Returns:
        The types that the schema allows (empty for any), the schema of an array's items, and the values that the
        field's schema enumerates (empty if it has no list).
    """
    types: set[str] = set()
    items: Any = True
    choices: list[Any] = []
    waiting = [field]
    # The list grows while the loop runs, so the parts are visited breadth first. The limit is needed because references
    # may be circular.
    for part in itertools.islice(waiting, MAX_PARTS):
        if not isinstance(part, dict):
            continue
        if isinstance(reference := part.get("$ref"), str):
            waiting.append(followed(reference, root))
        elif "const" in part:
            choices.append(part["const"])
        elif isinstance(listed := part.get("enum"), list):
            choices += listed
        else:
            named = part.get("type")
            types |= {each for each in (named if isinstance(named, list) else [named]) if isinstance(each, str)}
            items = part.get("items", items)
            # `allOf` is treated like `anyOf` and `oneOf`: every type that a part names is tried, and the server
            # validates the value in the end.
            for alternatives in (part.get("anyOf"), part.get("oneOf"), part.get("allOf")):
                waiting += alternatives if isinstance(alternatives, list) else []
    return types, items, choices


def followed(reference: str, root: Mapping[str, Any]) -> Any:
    """Follow a reference within the schema (RFC 6901); one that leads nowhere gives True, which allows any value."""
    found: Any = root
    for step in reference.removeprefix("#").split("/")[1:]:
        key = step.replace("~1", "/").replace("~0", "~")  # "~1" is replaced first, as "~01" represents "~1"
        if not isinstance(found, Mapping) or key not in found:
            return True
        found = found[key]
    return found


def _loaded(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return NO_VALUE


def _of(text: str, kind: type) -> Any:
    """Return the value of a JSON text, or `NO_VALUE` if it is not of the given type."""
    value = _loaded(text)
    return value if isinstance(value, kind) else NO_VALUE


READERS: dict[str, Callable[[str], Any]] = {
    "integer": lambda text: int(text) if INTEGER.fullmatch(text) else NO_VALUE,
    # Digits alone are read as an integer, because a float would lose digits of a large number.
    "number": lambda text: int(text) if INTEGER.fullmatch(text) else _of(text, float),
    "boolean": lambda text: {"true": True, "false": False}.get(text.lower(), NO_VALUE),
    "null": lambda text: None if text == "null" else NO_VALUE,
    "array": lambda text: _of(text, list),
    "object": lambda text: _of(text, dict),
}
"""Type -> a function that reads a text as this type, in the order in which they are tried."""
