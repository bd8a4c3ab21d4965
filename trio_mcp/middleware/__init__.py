"""Ready-made middleware for `Server(middleware=[…])`: each class is short, and may be copied and changed."""

from trio_mcp.middleware.caching import Caching
from trio_mcp.middleware.error_masking import ErrorMasking
from trio_mcp.middleware.logging import Logging
from trio_mcp.middleware.rate_limit import RateLimit
from trio_mcp.middleware.size_limit import SizeLimit
from trio_mcp.middleware.timing import Timing

__all__ = ["Caching", "ErrorMasking", "Logging", "RateLimit", "SizeLimit", "Timing"]
