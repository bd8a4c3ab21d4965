"""The package's logger, `logging.getLogger("trio_mcp")`, and how to show what is logged."""

import logging
from typing import Final, Literal, TypeAlias

__all__ = ["LEVELS", "LogLevel", "logger", "show_log"]

# The whole package has one logger, so that a program sets its level, or silences it, in one place. The loggers of the
# ready-made middleware and of the access log are its children.
logger = logging.getLogger("trio_mcp")

LogLevel: TypeAlias = Literal["debug", "info", "warning", "error"]

LEVELS: Final[tuple[LogLevel, ...]] = ("debug", "info", "warning", "error")


def show_log(level: LogLevel) -> None:
    """Show log messages of a level and above on standard error, in a process that mainly runs a server.

    If logging is configured already, its handlers stay, and only the level of this library is set.
    """
    number = logging.getLevelNamesMapping()[level.upper()]
    logger.setLevel(number)
    if not logging.getLogger().handlers:
        # Other libraries log only at INFO or above, because their debug messages include the header fields of requests,
        # and so tokens.
        logging.basicConfig(format="%(asctime)s %(levelname)s %(name)s: %(message)s", level=max(number, logging.INFO))
