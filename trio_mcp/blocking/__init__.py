"""A client for programs that are not async: each `Client` has a thread of its own, in which Trio runs."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trio_mcp.blocking.client import Client as Client, Subscription as Subscription
else:
    from trio_mcp._door import open_door

    __all__, __getattr__, __dir__ = open_door(__name__)
