"""The runners that can be measured here."""

from __future__ import annotations

import importlib.util
import json
import sys
from typing import Any

from ._processes import server_command

RUNNERS = ("hypercorn", "h11", "httptools")


def installed_runners() -> list[str]:
    """Return the runners that work here: those of our own need Linux, and one of them httptools."""
    found = RUNNERS if sys.platform == "linux" else RUNNERS[:1]
    return [name for name in found if name != "httptools" or importlib.util.find_spec("httptools")]


def our_server(runner: str, **settings: Any) -> list[str]:
    """Return the command of our server over HTTP on a runner, with these settings of ``serve_http``."""
    return server_command("http_ours", json.dumps({"runner": runner, **settings}))
