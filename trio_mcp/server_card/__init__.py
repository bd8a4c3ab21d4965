"""Server cards, an experimental extension (SEP-2127): what a server over HTTP publishes about itself.

`CardSettings` is the ``card`` of an HTTP endpoint, and `discover_card` reads the card of another server.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trio_mcp.server_card.discovery import CardError as CardError, discover_card as discover_card
    from trio_mcp.server_card.models import (
        CardIcon as CardIcon,
        CardInput as CardInput,
        CardRemote as CardRemote,
        CardRepository as CardRepository,
        NamedInput as NamedInput,
        ServerCard as ServerCard,
    )
    from trio_mcp.server_card.settings import CardSettings as CardSettings
else:
    from trio_mcp._door import open_door

    __all__, __getattr__, __dir__ = open_door(__name__)
