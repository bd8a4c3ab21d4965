"""Doors: packages whose public names are imported when they are first used.

A door lists each name once, as an import in an ``if TYPE_CHECKING:`` block, with ``X as X`` to export it. Type checkers
and import-linter read these imports; at run time, `open_door` only collects their names:

    from typing import TYPE_CHECKING

    if TYPE_CHECKING:
        from trio_mcp.auth.client.oauth import OAuth as OAuth
    else:
        from trio_mcp._door import open_door

        __all__, __getattr__, __dir__ = open_door(__name__)

Type checkers must not see a ``__getattr__``, or a misspelt name would pass as Any.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

__all__ = ["DOORS", "absent", "open_door"]

DOORS = (
    "trio_mcp",
    "trio_mcp.low_level",
    *(
        f"trio_mcp.{name}"
        for name in (
            "statistics",
            "types",
            "blocking",
            "auth",
            "extensions",
            "testing",
            "conformance",
            "middleware",
            "server_card",
            "stores",
            "schema",
        )
    ),
)
"""The modules that users import public names from; error messages may refer to them."""


def open_door(package: str) -> tuple[list[str], Callable[[str], Any], Callable[[], list[str]]]:
    """Return ``__all__``, ``__getattr__`` and ``__dir__`` for a door, whose names are imported on first use."""
    module = sys.modules[package]
    homes = _read_homes(package)

    # Python calls this function for names that the module does not have yet (PEP 562).
    def __getattr__(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            raise absent(package, name)
        if home == package:  # the name is a module of the package
            return importlib.import_module(f"{package}.{name}")
        try:
            value = getattr(importlib.import_module(home), name)
        except ModuleNotFoundError as exc:
            # An installation may lack all folders named `legacy`; but if any other module is missing, the installation
            # is broken.
            if exc.name is None or not exc.name.endswith(".legacy"):
                raise
            raise ImportError(
                f"{name} is not available: this installation does not support the legacy era over HTTP", name=package
            ) from None
        # The value is stored in the module, so that the next access does not call this function.
        setattr(module, name, value)
        return value

    # With this `__dir__`, completion also offers names that have not been imported yet.
    return list(homes), __getattr__, lambda: sorted(homes)


def absent(package: str, name: str) -> Exception:
    """Return the error for a name that a package does not have; the error says what to write instead, if known."""
    from trio_mcp._renamed import refused_import

    # The error gets the module as `obj`, so that Python can suggest a similar name.
    plain = AttributeError(f"module {package!r} has no attribute {name!r}", name=name, obj=sys.modules[package])
    return refused_import(package, name, _door_of) or plain


def _door_of(name: str) -> str | None:
    # A lower-case name may be that of a submodule, which the import system looks for only after an AttributeError. If
    # the name were found in a door, an ImportError would be raised instead, so only two doors are searched for it.
    doors = DOORS if name[:1].isupper() else DOORS[:2]
    return next((door for door in doors if name in importlib.import_module(door).__all__), None)


def _read_homes(package: str) -> dict[str, str]:
    """Return the module that each name comes from, by running the package's code with a recording ``__import__``."""
    homes: dict[str, str] = {}

    def record(module: str, _globals: object, _locals: object, names: Sequence[str], _level: int) -> SimpleNamespace:
        homes.update(dict.fromkeys(names, module))
        return SimpleNamespace(**dict.fromkeys(names, True))  # every imported name counts as true, even TYPE_CHECKING

    # The loader returns the package's compiled code, so neither its source nor a separate list of names is needed.
    loader: Any = sys.modules[package].__spec__.loader  # type: ignore[union-attr]  # an imported module has one
    exec(loader.get_code(package), {"__builtins__": {"__import__": record}})
    del homes["TYPE_CHECKING"]
    return homes
