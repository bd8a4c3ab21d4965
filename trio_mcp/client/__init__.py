"""The client: `Client`, `ClientGroup`."""

from typing import TYPE_CHECKING

# Type checkers must not see this function, or a misspelt name would pass as Any.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        from trio_mcp._door import absent

        raise absent(__name__, name)
