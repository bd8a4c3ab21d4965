"""What Python tells of a callable: its type hints, resolved, and its docstring, split into text and parameters."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterator
from typing import Annotated, Any, get_args, get_origin, get_type_hints

__all__ = ["bare", "bound_by_partials", "is_async", "is_context", "is_generator", "read_docstring", "resolved_hints"]


def bare(function: Callable[..., Any]) -> Callable[..., Any]:
    """What a partial is a partial of; anything else as it is."""
    while isinstance(function, functools.partial):
        function = function.func
    return function


def bound_by_partials(function: Callable[..., Any]) -> set[str]:
    """What a partial has settled is no matter of the caller's, although Python would let it be overridden."""
    names: set[str] = set()
    while isinstance(function, functools.partial):
        names |= function.keywords.keys()
        function = function.func
    return names


def is_async(function: Callable[..., Any]) -> bool:
    """Whether calling it gives a coroutine for certain: any other callable may still return something to await."""
    return any(map(inspect.iscoroutinefunction, _callables(function)))


def is_generator(function: Callable[..., Any]) -> bool:
    """Whether calling it gives a generator, sync or async."""
    return any(inspect.isgeneratorfunction(each) or inspect.isasyncgenfunction(each) for each in _callables(function))


def is_context(annotation: Any, context_type: type) -> bool:
    """Whether a parameter of that annotation gets the `Context`."""
    origin = get_origin(annotation)
    if origin is Annotated:
        return is_context(get_args(annotation)[0], context_type)
    if hasattr(annotation, "__value__"):  # a type alias
        return is_context(annotation.__value__, context_type)
    if (origin or annotation) is context_type:
        return True
    options = get_args(annotation)
    return type(None) in options and any(
        is_context(option, context_type) for option in options if option is not type(None)
    )


def resolved_hints(function: Callable[..., Any], what: str, known: dict[str, Any]) -> dict[str, Any]:
    """The annotations of a callable, strings among them evaluated where the function was defined.

    Args:
        function: Any callable but a class.
        what: What it is, for error messages.
        known: Names that may be used even where the function's module imports them for type checkers only.

    Raises:
        TypeError: An annotation can't be evaluated.
    """
    target = _annotated(function)
    cells = _closure(target)
    try:
        try:
            return get_type_hints(target, localns=cells, include_extras=True)
        except NameError:
            names = {**known, **_enclosing_scopes(target), **cells}
            return get_type_hints(target, localns=names, include_extras=True)
    except NameError as exc:
        raise TypeError(
            f"{what}: an annotation can't be resolved: {exc}; a type used in an annotation must be visible where the "
            "function is defined, also at run time (not only under TYPE_CHECKING)"
        ) from None
    except Exception as exc:  # evaluating a string may raise anything
        raise TypeError(f"{what}: an annotation can't be evaluated: {type(exc).__name__}: {exc}") from None


def _callables(function: Callable[..., Any]) -> tuple[Callable[..., Any], ...]:
    """The function itself, or an object and its ``__call__``."""
    function = bare(function)
    return (function,) if inspect.isroutine(function) else (function, type(function).__call__)


def _annotated(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function that carries the annotations, below partials and decorators (as `inspect.signature` does)."""
    function = _undecorated(function)
    return function if inspect.isroutine(function) else _undecorated(type(function).__call__)


def _undecorated(function: Callable[..., Any]) -> Callable[..., Any]:
    while True:
        below: Callable[..., Any] = inspect.unwrap(bare(function), stop=lambda each: hasattr(each, "__signature__"))
        if below is function:
            return function
        function = below


def _closure(target: Callable[..., Any]) -> dict[str, Any]:
    code, cells = getattr(target, "__code__", None), getattr(target, "__closure__", None)
    names = {}
    if code is not None and cells:
        for name, cell in zip(code.co_freevars, cells, strict=True):
            try:
                names[name] = cell.cell_contents
            except ValueError:
                pass  # not assigned yet
    return names


def _enclosing_scopes(target: Callable[..., Any]) -> dict[str, Any]:
    """The local names of the functions around the target's definition, as far as they are running.

    An annotation in a string does not make its names part of the closure. When a decorator registers a local function,
    the functions around it are still on the stack.
    """
    around = getattr(target, "__qualname__", "").split(".<locals>.")[:-1]
    enclosing = {".<locals>.".join(around[: depth + 1]) for depth in range(len(around))}
    names: dict[str, Any] = {}
    for frame in _frames():
        if frame.f_code.co_qualname in enclosing and frame.f_globals is getattr(target, "__globals__", None):
            names = {**frame.f_locals, **names}
    return names


def _frames() -> Iterator[Any]:
    frame = inspect.currentframe()
    while frame is not None:
        yield frame
        frame = frame.f_back


# Google style: a section is a line of its own that ends in a colon; its entries are indented below it.
_PARAMETERS = re.compile(r"^(Args|Arguments|Parameters|Params|Keyword Args|Keyword Arguments):\s*$")
_RAISES = re.compile(r"^(Raises|Raise|Exceptions):\s*$")
_ENTRY = re.compile(r"^\s+\*{0,2}(?P<name>\w+)\s*(?:\(.*?\))?\s*:(?:\s+(?P<text>.*)|$)")
# Sphinx style
_FIELD = re.compile(r"^:(?P<kind>\w+)(?:\s+(?P<argument>[^:]*))?:\s*(?P<text>.*)$")
_PARAM_FIELDS = {"param", "parameter", "arg", "argument", "key", "keyword"}
_DROPPED_FIELDS = {"type", "rtype", "raises", "raise", "except", "exception", "vartype"}


def read_docstring(docstring: str | None) -> tuple[str | None, dict[str, str]]:
    """Split a docstring into its text, without the description of parameters, and that description.

    Google style (``Args:``) and Sphinx style (``:param name:``) are understood.

    Returns:
        The text (None if there is none), and a description for each parameter that has one.
    """
    if not docstring:
        return None, {}
    kept: list[str] = []
    described: dict[str, str] = {}
    lines = [line.rstrip() for line in inspect.cleandoc(docstring).splitlines()]
    position = 0
    while position < len(lines):
        line = lines[position]
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
        elif not _RAISES.match(line):
            kept.append(line)
            end = position + 1
        position = end
    text = re.sub(r"\n{3,}", "\n\n", "\n".join(kept)).strip()
    return text or None, {name: description for name, description in described.items() if description}


def _end_of_block(lines: list[str], start: int) -> int:
    """Where the indented lines below a line end; blank lines between them belong to them."""
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
        if entry and (entry_indent is None or indent <= entry_indent):
            entry_indent = indent
            current = described[entry["name"]] = [(entry["text"] or "").strip()]
        elif current is not None:
            current.append(line.strip())
    return {name: " ".join(filter(None, lines)) for name, lines in described.items()}
