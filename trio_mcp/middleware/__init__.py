"""`Middleware`, the base class for your own, and ready middleware for `Server(middleware=[…])`.

Each ready class is short, and may be copied and changed.
"""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trio_mcp.middleware.caching import Caching as Caching
    from trio_mcp.middleware.error_masking import ErrorMasking as ErrorMasking
    from trio_mcp.middleware.logging import Logging as Logging
    from trio_mcp.middleware.rate_limit import RateLimit as RateLimit
    from trio_mcp.middleware.size_limit import SizeLimit as SizeLimit
    from trio_mcp.middleware.timing import Timing as Timing
    from trio_mcp.session.middleware import Middleware as Middleware
else:
    from trio_mcp._door import open_door

    __all__, __getattr__, __dir__ = open_door(__name__)
