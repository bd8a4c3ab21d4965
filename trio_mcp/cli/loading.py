"""Find the `Server` in a Python file or module."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import inspect
import os
import sys
import traceback
from collections.abc import Iterator, Sequence
from pathlib import Path
from types import ModuleType, TracebackType
from typing import Any

from trio_mcp.cli.exits import FAILED, USAGE, Exit
from trio_mcp.cli.messages import near_file
from trio_mcp.server.base_server import BaseServer, core_of

__all__ = ["check_keys", "load_server", "use_stores"]

FOREIGN = {"fastmcp": "FastMCP", "mcp": "the official SDK"}
"""Package -> the name of the server library that it contains."""

OURS = (__file__, importlib.__file__, "<frozen importlib")
"""Prefixes of file names: the frames of these files are cut off at the start of a traceback, so that it begins in the
user's code."""


def load_server(name: str, arguments: Sequence[str] = ()) -> BaseServer:
    """Load the server named by ``FILE``, ``FILE:name`` or ``package.module:name``.

    The part after the colon may also name a function that makes the server and needs no arguments. Without that part,
    there must be exactly one server in the module, or else one function annotated as returning a `Server`. Output that
    is printed during the import goes to standard error, because standard output may carry the protocol messages.

    Args:
        name: The name of the server.
        arguments: The words that the file finds in ``sys.argv`` after its own name.

    Raises:
        Exit: If the file or module does not exist or can't be imported, or has no server or several.
    """
    source, _, attribute = name.partition(":")
    # `sys.argv` is not restored, because not only the code that runs on import but also the server's tools may read it.
    sys.argv = [source, *arguments]
    # The factory is called while output is redirected, because what it prints must not get between the protocol
    # messages either.
    with _stdout_to_stderr():
        module = _imported(source)
        found = _attribute(module, source, attribute) if attribute else _only_server(module, source)
        if isinstance(found, BaseServer):
            return found
        return _made(found, name)


def check_keys(server: BaseServer) -> None:
    """Read the server's file of keys, if it has one.

    Raises:
        Exit: If the file can't be used.
    """
    try:
        core_of(server).input.check()
    except ValueError as exc:
        raise Exit(str(exc), FAILED) from None


def use_stores(server: BaseServer, place: str | None) -> BaseServer:
    """Let a server use the stores at a place, instead of those that its file gives it; return the server.

    Raises:
        Exit: If these can't be stores.
    """
    if place is not None:
        from trio_mcp.server.places import stores_at  # imported late: few servers have stores

        try:
            core_of(server).stores = stores_at(place, server.info.name)
        except (ImportError, ValueError) as exc:
            raise Exit(f"--stores: {exc}") from None
    return server


def _made(factory: Any, name: str) -> BaseServer:
    source = name.partition(":")[0]
    _refuse_foreign(source, factory)
    if not callable(factory):
        raise Exit(f"{name} must be a Server or a function that makes one, but is of type {type(factory).__name__}")
    if not _without_arguments(factory):
        raise Exit(f"{name} can't make a server here: it must be callable without arguments")
    try:
        made = factory()
    except Exception as exc:
        raise _failed(f"{name}() failed", exc) from None
    if inspect.iscoroutine(made):
        made.close()  # otherwise Python would warn of a coroutine that was never awaited
    _refuse_foreign(source, made)
    if not isinstance(made, BaseServer):
        raise Exit(f"{name}() returned something of type {type(made).__name__}, not a Server")
    return made


def _imported(source: str) -> ModuleType:
    try:
        return _imported_file(source) if source.endswith(".py") or "/" in source else _imported_module(source)
    # A script without a `__main__` guard may call sys.exit while it is imported.
    except SystemExit as exc:
        raise Exit(f"{source} exited (status {exc.code}) while it was imported", FAILED) from None
    except Exit:
        raise
    except Exception as exc:
        # If a server library is missing, the file most likely has a server of that library, which needs another
        # environment.
        if isinstance(exc, ModuleNotFoundError) and exc.name in FOREIGN:
            text = f"{source} needs {FOREIGN[exc.name]}, which is not installed in the environment of trio-mcp"
            raise Exit(f"{text}; to use another environment, write `-- PATH/bin/python {source}`", FAILED) from None
        raise _failed(f"{source} can't be imported", exc) from None


def _imported_file(source: str) -> ModuleType:
    path = Path(source)
    if not path.is_file():
        raise Exit(
            f"{source!r} is not a regular file" if path.exists() else f"there is no file {source!r}{near_file(source)}"
        )
    path = path.resolve()
    sys.path.insert(0, str(path.parent))  # `python FILE` does the same
    # If the file's name is valid and no other module has it, the module is named after the file, so that modules that
    # import it get this same one.
    name = path.stem if path.stem.isidentifier() and path.stem not in sys.modules else f"_served_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise Exit(f"{source} is not a Python file", USAGE)
    # The module is registered before it runs, as an import does: dataclasses and pickling look modules up by name.
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _imported_module(source: str) -> ModuleType:
    if not all(step.isidentifier() for step in source.split(".")):
        raise Exit(f"{source!r} is neither a Python file (server.py) nor a module (package.module)")
    sys.path.insert(0, os.getcwd())  # `python -m` does the same
    try:
        return importlib.import_module(source)
    except ModuleNotFoundError as exc:
        # This message is right only if the named module itself is missing. If an import inside it fails, the traceback
        # is shown.
        if exc.name is not None and (source == exc.name or source.startswith(f"{exc.name}.")):
            raise Exit(f"there is no module {exc.name!r}; for a file, write {source}.py", USAGE) from None
        raise


def _attribute(module: ModuleType, source: str, attribute: str) -> Any:
    found: Any = module
    for step in attribute.split("."):
        if not hasattr(found, step):
            names = ", ".join(_servers(module)) or "none"
            raise Exit(f"{source} has no {attribute!r}; the servers in it: {names}")
        found = getattr(found, step)
    return found


def _servers(module: ModuleType) -> dict[str, BaseServer]:
    """Return the servers of a module, each under the first of its names."""
    found = {name: value for name, value in vars(module).items() if isinstance(value, BaseServer)}
    # Servers are compared by identity: a server with two names counts once.
    first = {id(value): name for name, value in reversed(found.items())}
    return {name: value for name, value in found.items() if first[id(value)] == name}


def _only_server(module: ModuleType, source: str) -> Any:
    servers = _servers(module)
    # Functions count only if there is no server: if a module has both, the user means the server.
    found: dict[str, Any] = servers or {
        name: value for name, value in vars(module).items() if _says_it_makes_one(module, value)
    }
    if not found:
        _refuse_foreign(source, *vars(module).values())
        raise Exit(
            f"{source} has no Server at its top level; if a function makes it, write {source}:FUNCTION, or annotate "
            f"the function with `-> Server`"
        )
    if len(found) > 1:
        raise Exit(f"{source} has several servers; pick one: {', '.join(f'{source}:{name}' for name in found)}")
    return next(iter(found.values()))


def _refuse_foreign(source: str, *values: object) -> None:
    """Raise `Exit` if a value is a server of another library."""
    for kind in (kind for value in values for kind in type(value).__mro__):
        # Types are recognised by their names: the library need not be installed, and importing it would take a second.
        library = FOREIGN.get(kind.__module__.partition(".")[0])
        if library is not None and kind.__name__ in ("FastMCP", "MCPServer", "Server"):
            command = f"python {source}" if source.endswith(".py") else f"python -m {source}"
            raise Exit(
                f"{source} has a server of {library}, which runs by itself: start it with `{command}`, and look at it"
                f" with `trio-mcp inspect -- {command}`",
                hint=False,
            )


def _says_it_makes_one(module: ModuleType, value: object) -> bool:
    if not inspect.isfunction(value) or value.__module__ != module.__name__ or not _without_arguments(value):
        return False
    # A postponed annotation is not evaluated: it may name something that is imported only for type checkers.
    returned = value.__annotations__.get("return")
    if isinstance(returned, str):
        return returned.strip("'\"").rpartition(".")[2] == "Server"
    return isinstance(returned, type) and issubclass(returned, BaseServer)


def _without_arguments(function: Any) -> bool:
    try:
        inspect.signature(function).bind()
    except (TypeError, ValueError):  # the function needs arguments, or its signature is unknown
        return False
    return True


def _failed(what: str, exc: Exception) -> Exit:
    """Return the error for an exception in the user's code, with a traceback that begins in that code."""
    found: TracebackType | None = exc.__traceback__
    while found is not None and found.tb_frame.f_code.co_filename.startswith(OURS):
        found = found.tb_next
    shown = "".join(traceback.format_exception(type(exc), exc, found)).rstrip()
    summary = ": ".join(filter(None, (type(exc).__name__, str(exc).partition("\n")[0])))
    return Exit(f"{what}: {summary}", FAILED, traceback=shown)


@contextlib.contextmanager
def _stdout_to_stderr() -> Iterator[None]:
    """Redirect to standard error whatever this process or its children print during the block."""
    # Python's buffer is flushed before each switch: text in it belongs to the file that the descriptor referred to when
    # the text was printed.
    sys.stdout.flush()
    kept = os.dup(1)  # the descriptor, not `sys.stdout`: children and C code write to it directly
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)
