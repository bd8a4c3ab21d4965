"""attrs, as the package uses it: with ``__repr__``, ``__eq__`` and ``__hash__`` that all classes share.

attrs generates these methods for each class, and the interpreter compiles them whenever the class is imported, which
takes nearly a tenth of a server's start-up time. The methods are called rarely, so the shared ones can afford to look
up the fields on each call. Import this module as ``from trio_mcp import _attrs as attrs``.
"""

from __future__ import annotations

from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

from attrs import (
    NOTHING as NOTHING,
    Attribute as Attribute,
    Factory as Factory,
    asdict as asdict,
    evolve as evolve,
    field as field,
    fields as fields,
    validators as validators,
)

if TYPE_CHECKING:  # type checkers know `define` and `frozen` only as names from attrs
    from attrs import define as define, frozen as frozen
else:
    import attrs

    # If a class defines one of these methods in its own body, the class keeps its own method, as in attrs.

    def define(cls: type | None = None, **options: Any) -> Any:
        """Make an attrs class as `attrs.define` does, but with the methods that all classes share."""
        return _sharing(attrs.define, cls, options, None)

    def frozen(cls: type | None = None, **options: Any) -> Any:
        """Make a frozen attrs class as `attrs.frozen` does, but with the methods that all classes share."""
        return _sharing(attrs.frozen, cls, options, _hash)

    def _sharing(make: Any, cls: type | None, options: dict[str, Any], hashed: Any) -> Any:
        if cls is None:
            return lambda cls: _sharing(make, cls, options, hashed)
        own = vars(cls)
        if "__repr__" not in own:
            cls.__repr__ = _repr
        if options.get("eq", True) and "__eq__" not in own:
            cls.__eq__ = _eq
            if "__hash__" not in own:
                cls.__hash__ = hashed
        return make(cls, **options)

    @recursive_repr()
    def _repr(self: Any) -> str:
        values = [(each, getattr(self, each.name, NOTHING)) for each in self.__attrs_attrs__ if each.repr]
        texts = [f"{each.name}={repr(value) if each.repr is True else each.repr(value)}" for each, value in values]
        return f"{type(self).__qualname__.rpartition('>.')[2]}({', '.join(texts)})"

    def _eq(self: Any, other: object) -> Any:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, each.name) == getattr(other, each.name) for each in self.__attrs_attrs__ if each.eq)

    def _hash(self: Any) -> int:
        counted = [each.name for each in self.__attrs_attrs__ if (each.eq if each.hash is None else each.hash)]
        return hash((type(self), *[getattr(self, name) for name in counted]))
