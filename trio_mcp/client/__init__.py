"""The client: `Client`, `ClientGroup`."""

from typing import TYPE_CHECKING

# Type checkers must not see it, or a misspelt name would pass as Any.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        import trio_mcp
        from trio_mcp._renamed import refused_import

        refusal = refused_import(__name__, name, dict.fromkeys(trio_mcp.__all__, "trio_mcp").get)
        raise refusal or AttributeError(f"module {__name__!r} has no attribute {name!r}")
