"""The package's only logger: `logging.getLogger("trio_mcp")`."""

import logging

__all__ = ["logger"]

logger = logging.getLogger("trio_mcp")
