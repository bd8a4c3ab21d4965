"""Inspects callables: finds their kind, resolves their type hints, and splits their docstring into parts."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from trio_mcp._patterns import late_pattern

__all__ = ["bare", "bound_by_partials", "is_async", "is_context", "is_generator", "read_docstring", "resolved_hints"]


def bare(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function inside any number of nested partials; return anything else unchanged."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def bound_by_partials(function: Callable[..., Any]) -> set[str]:
    """Return the keyword arguments bound by partials: callers may not set them, although Python would allow it."""
    names: set[str] = set()
    while isinstance(function, functools.partial):
        names |= function.keywords.keys()
        function = function.func
    return names


def is_async(function: Callable[..., Any]) -> bool:
    """Return whether calling a function certainly returns a coroutine; if not, the call may return another
    awaitable."""
    return any(map(inspect.iscoroutinefunction, _callables(function)))


def is_generator(function: Callable[..., Any]) -> bool:
    """Return whether calling a function returns a generator, sync or async."""
    return any(inspect.isgeneratorfunction(each) or inspect.isasyncgenfunction(each) for each in _callables(function))


def is_context(annotation: Any, context_type: type) -> bool:
    """Return whether a parameter with this annotation, which may be optional or generic, receives the `Context`."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return is_context(get_args(annotation)[0], context_type)
    if hasattr(annotation, "__value__"):  # the annotation is a type alias
        return is_context(annotation.__value__, context_type)
    if (origin or annotation) is context_type:
        return True
    # The annotation may be `Context | None`, so that the function can also be called without a server.
    options = get_args(annotation)
    return type(None) in options and any(
        is_context(option, context_type) for option in options if option is not type(None)
    )


def resolved_hints(function: Callable[..., Any], what: str, known: dict[str, Any]) -> dict[str, Any]:
    """Return the annotations of a callable, with strings evaluated where the function was defined.

    Args:
        function: Any callable except a class.
        what: The function's role, for error messages.
        known: Names that are resolved even if the function's module imports them under TYPE_CHECKING only.

    Raises:
        TypeError: If an annotation can't be evaluated.
    """
    # Looking at the stack is slow, and may find a name that only happens to be there, so it is only the second attempt.
    target = _annotated(function)
    cells = _closure(target)
    try:
        try:
            return get_type_hints(target, localns=cells, include_extras=True)
        except NameError:
            # Later entries take precedence: a local name hides `known`, and the closure is the most reliable.
            names = {**known, **_enclosing_scopes(target), **cells}
            return get_type_hints(target, localns=names, include_extras=True)
    except NameError as exc:
        raise TypeError(
            f"{what}: an annotation can't be resolved: {exc}; a type used in an annotation must be visible where the "
            "function is defined, at run time as well (not only under TYPE_CHECKING)"
        ) from None
    except Exception as exc:  # an annotation in a string is code, which may raise anything
        raise TypeError(f"{what}: an annotation can't be evaluated: {type(exc).__name__}: {exc}") from None


def _callables(function: Callable[..., Any]) -> tuple[Callable[..., Any], ...]:
    """Return the callables to examine: the function itself, or an object and its ``__call__``."""
    function = bare(function)
    # Python looks up special methods on the type, so a call never runs an instance's own attribute named `__call__`.
    return (function,) if inspect.isroutine(function) else (function, type(function).__call__)


def _annotated(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function that has the annotations, inside any partials and decorators (as `inspect.signature`
    does)."""
    function = _undecorated(function)
    return function if inspect.isroutine(function) else _undecorated(type(function).__call__)


def _undecorated(function: Callable[..., Any]) -> Callable[..., Any]:
    # Partials and decorators may alternate. A function with its own __signature__ is used as it is.
    while True:
        below: Callable[..., Any] = inspect.unwrap(bare(function), stop=lambda each: hasattr(each, "__signature__"))
        if below is function:
            return function
        function = below


def _closure(target: Callable[..., Any]) -> dict[str, Any]:
    # typing.get_type_hints only looks at globals: local names that the function uses are in its cells.
    code, cells = getattr(target, "__code__", None), getattr(target, "__closure__", None)
    names = {}
    if code is not None and cells:
        for name, cell in zip(code.co_freevars, cells, strict=True):
            try:
                names[name] = cell.cell_contents
            except ValueError:
                pass  # the name has no value yet
    return names


def _enclosing_scopes(target: Callable[..., Any]) -> dict[str, Any]:
    """Return the local names of the functions that enclose the target's definition, if they are still running."""
    # A name that is used only in a string annotation is not part of the closure. But while a decorator registers a
    # local function, the enclosing functions are still on the stack.
    around = getattr(target, "__qualname__", "").split(".<locals>.")[:-1]
    enclosing = {".<locals>.".join(around[: depth + 1]) for depth in range(len(around))}
    names: dict[str, Any] = {}
    # `currentframe` returns None on an interpreter without frames: then no local name is found, and the annotation is
    # not resolved.
    frame = inspect.currentframe()
    while frame is not None:
        # Frames don't say which function they run, so its qualified name and its globals are compared. The innermost
        # call takes precedence.
        if frame.f_code.co_qualname in enclosing and frame.f_globals is getattr(target, "__globals__", None):
            names = {**frame.f_locals, **names}
        frame = frame.f_back
    return names


# In Google style, a section starts with a line that ends in a colon, and its entries are indented below.
_PARAMETERS = late_pattern(r"^(Args|Arguments|Parameters|Params|Keyword Args|Keyword Arguments):\s*$")
_RAISES = late_pattern(r"^(Raises|Raise|Exceptions):\s*$")
# An entry has the form `name (type, optional): text`. The type may be missing, the text may begin on the next line, and
# the name may have stars, as in `*args`.
_ENTRY = late_pattern(r"^\s+\*{0,2}(?P<name>\w+)\s*(?:\(.*?\))?\s*:(?:\s+(?P<text>.*)|$)")
# In Sphinx style, each parameter is an entry in a field list: `:param name: text`.
_FIELD = late_pattern(r"^:(?P<kind>\w+)(?:\s+(?P<argument>[^:]*))?:\s*(?P<text>.*)$")
_PARAM_FIELDS = {"param", "parameter", "arg", "argument", "key", "keyword"}
_DROPPED_FIELDS = {"type", "rtype", "raises", "raise", "except", "exception", "vartype"}


def read_docstring(docstring: str | None) -> tuple[str | None, dict[str, str]]:
    """Split a docstring into its text and the descriptions of the parameters.

    Supports Google style (``Args:``) and Sphinx style (``:param name:``).

    Returns:
        The text (None if empty), and the description of each parameter that has one.
    """
    # The section on the return value stays in the text, as the model should know it. Types and exceptions are dropped,
    # because the schema already has the types, and exceptions don't reach the client.
    if not docstring:
        return None, {}
    kept: list[str] = []
    described: dict[str, str] = {}
    lines = [line.rstrip() for line in inspect.cleandoc(docstring).splitlines()]
    position = 0
    while position < len(lines):
        line = lines[position]
        if ":" not in line:  # an ordinary line, as most are: no pattern needs to be compiled for it
            kept.append(line)
            position += 1
            continue
        end = _end_of_block(lines, position)
        body = lines[position + 1 : end]
        if _PARAMETERS.match(line) and (entries := _entries(body)):
            described |= entries
        elif field := _FIELD.match(line):
            text = " ".join(filter(None, (field["text"], *map(str.strip, body))))
            kind = field["kind"]
            if kind in _PARAM_FIELDS and field["argument"]:
                described[field["argument"].split()[-1].lstrip("*")] = text
            elif kind in ("return", "returns"):
                kept.append(f"Returns: {text}")
            elif kind not in _DROPPED_FIELDS:
                kept += [line, *body]
        elif not _RAISES.match(line):  # an ordinary line, or a section that stays: its block is read line by line
            kept.append(line)
            end = position + 1
        position = end
    # Blank lines pile up where sections were cut out, so only one of each group is kept.
    text = "\n".join(kept).strip()
    if "\n\n\n" in text:
        text = re.sub(r"\n{3,}", "\n\n", text)
    return text or None, {name: description for name, description in described.items() if description}


def _end_of_block(lines: list[str], start: int) -> int:
    """Return the end of the indented block below a line; blank lines inside the block belong to it."""
    end = following = start + 1
    while following < len(lines) and (not lines[following] or lines[following][0].isspace()):
        following += 1
        if lines[following - 1]:
            end = following
    return end


def _entries(body: list[str]) -> dict[str, str]:
    described: dict[str, list[str]] = {}
    current: list[str] | None = None
    entry_indent: int | None = None
    for line in filter(str.strip, body):
        indent = len(line) - len(line.lstrip())
        entry = _ENTRY.match(line)
        # Deeper lines continue the entry above, even if they look like one themselves ("Note: ...").
        if entry and (entry_indent is None or indent <= entry_indent):
            entry_indent = indent
            current = described[entry["name"]] = [(entry["text"] or "").strip()]
        elif current is not None:
            current.append(line.strip())
    return {name: " ".join(filter(None, lines)) for name, lines in described.items()}
