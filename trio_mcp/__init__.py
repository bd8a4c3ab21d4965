"""The Model Context Protocol for Trio: clients and servers for every protocol revision.

Public names are listed in `trio_mcp._public` and imported on first use, so a client does not load the server.
docs/design.md has a map of the package.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from trio_mcp._version import __version__ as __version__

# Type checkers can't follow `__getattr__`, and must not see it either, or a misspelt name would pass as Any.
if TYPE_CHECKING:
    from trio_mcp._public import *  # noqa: F403
else:

    def _read_homes() -> dict[str, str]:
        """Return the module of each public name: run the list with an ``__import__`` that only records them."""
        homes = {}

        def note(module: str, _globals: Any, _locals: Any, names: Sequence[str], _level: int) -> SimpleNamespace:
            homes.update(dict.fromkeys(names, module))
            return SimpleNamespace(**dict.fromkeys(names))

        spec = importlib.util.find_spec("trio_mcp._public")
        exec(spec.loader.get_code(spec.name), {"__builtins__": {"__import__": note}})
        return homes

    _HOMES = _read_homes()
    __all__ = ["__version__", *_HOMES]

    # PEP 562: called for names that the module does not have yet.
    def __getattr__(name: str) -> Any:
        home = _HOMES.get(name)
        if home is None:
            from trio_mcp._renamed import refused_import

            if (refusal := refused_import(__name__, name, _elsewhere)) is not None:
                raise refusal
            # With the object, so that Python suggests a similar name.
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name, obj=sys.modules[__name__])
        if home == __name__:  # a module of the package
            return importlib.import_module(f"{home}.{name}")
        try:
            module = importlib.import_module(home)
        except ModuleNotFoundError as exc:
            # The folders named `legacy` may be deleted as a whole; any other missing module is a broken installation.
            if exc.name is None or not exc.name.endswith(".legacy"):
                raise
            raise ImportError(
                f"{name} is not available: this installation does not speak the legacy era over HTTP", name=__name__
            ) from None
        # Stored in the module, so that the next access does not come here.
        value = globals()[name] = getattr(module, name)
        return value

    def _elsewhere(name: str) -> str | None:
        """Return the public module that has a name, if it is not this one."""
        # A name in lower case may be that of a module below, which the import system looks for after an AttributeError.
        if not name[:1].isupper():
            return None
        modules = [f"{__name__}.{each}" for each in ("types", "auth", "testing", "conformance", "middleware")]
        return next((each for each in modules if name in importlib.import_module(each).__all__), None)

    # So that completion offers names that have not been imported yet.
    def __dir__() -> list[str]:
        return sorted(__all__)
