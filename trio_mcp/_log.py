"""The package's only logger: `logging.getLogger("trio_mcp")`."""

import logging

__all__ = ["logger"]

# One for the whole package, so that a program sets its level, or silences it, in one place.
logger = logging.getLogger("trio_mcp")
