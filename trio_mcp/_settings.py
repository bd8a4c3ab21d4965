"""Keyword arguments that are declared once: typed dictionaries whose entries carry their defaults and checks.

    class SocketSettings(TypedDict, total=False):
        max_connections: Annotated[int, Default(1000, check_count)]

A function takes them as ``**settings: Unpack[SocketSettings]``. So type checkers know their names and types,
`trio_mcp._keywords.refuse_unknown` knows their names, the documentation shows their defaults, and `completed` checks
them and fills in the defaults. A module that declares such dictionaries must not have ``from __future__ import
annotations``, because its annotations have to be evaluated.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from trio_mcp import _attrs as attrs

__all__ = ["Default", "completed", "settings_of"]

SettingsT = TypeVar("SettingsT")


@attrs.frozen
class Default:
    """The default of a setting, and how a given value is checked.

    Attributes:
        default: The value of the setting if none is given.
        check: Called with the name and the given value; raises if the value can't be used.
        convert: Returns the value to use instead of the given one. It runs before the check, so it must accept any
            value.
    """

    default: Any = None
    check: Callable[[str, Any], object] | None = None
    convert: Callable[[Any], Any] | None = None


@functools.cache
def settings_of(kind: Any) -> Mapping[str, Default]:
    """Return the defaults and checks of a typed dictionary, keyed by name; entries without a `Default` are left out."""
    extras = {name: getattr(hint, "__metadata__", ()) for name, hint in kind.__annotations__.items()}
    return {name: extra[0] for name, extra in extras.items() if extra}


def completed(kind: type[SettingsT], given: Any) -> SettingsT:
    """Return every setting of a typed dictionary: the given ones, checked, and the defaults of the others.

    Args:
        kind: The typed dictionary.
        given: The settings that were passed; their names must be known.

    Raises:
        TypeError, ValueError: If a value is invalid.
    """
    whole: dict[str, Any] = {}
    for name, setting in settings_of(kind).items():  # type: ignore[arg-type]  # a class is hashable
        if name not in given:
            whole[name] = setting.default
            continue
        value = given[name] if setting.convert is None else setting.convert(given[name])
        if setting.check is not None:
            setting.check(name, value)
        whole[name] = value
    return whole  # type: ignore[return-value]  # mypy can't know that the names are those of the dictionary
