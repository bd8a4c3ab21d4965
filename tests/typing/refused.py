"""What type checkers must refuse. Each line names the error that mypy and pyright report; one that they no longer
report is itself an error (`warn_unused_ignores`, `reportUnnecessaryTypeIgnoreComment`)."""

from __future__ import annotations

from trio_mcp import CallOptions, Client, Context, Depends, HttpOptions, Server, SessionOptions
