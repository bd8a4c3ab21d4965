"""The server side: `Server`, `Context`, and their parts."""

from typing import TYPE_CHECKING

# Type checkers must not see `__getattr__`, or they would accept a misspelt name as Any.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        from trio_mcp._door import absent

        raise absent(__name__, name)
