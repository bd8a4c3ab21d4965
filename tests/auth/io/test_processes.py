"""Several processes and one login."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from urllib.parse import urlencode

import trio

from trio_mcp.auth import FileTokens, OAuth
from trio_mcp.auth.testing import AuthorizationServer


async def test_eight_processes_refresh_once_per_expiry(tmp_path: Path) -> None:
    """The authorization server ends a login of which a refresh token is used twice, unless its answer may be lost."""
    at = AuthorizationServer(grace=60)
    folder = tmp_path / "logins"

    async def show(url: str) -> str:
        return f"http://127.0.0.1/?{urlencode(at.sign_in(url))}"

    async with at.served() as issuer:
        server = f"{issuer}/mcp"
        await OAuth(store=FileTokens(folder), show=show).sign_in(server)
        program = [sys.executable, "-m", "tests.auth.io.refreshing", str(folder), server]
        run = await trio.run_process(program, capture_stdout=True)
    first, still, killed, second, third = json.loads(run.stdout)
    assert [len(each) for each in (first, still, killed, second, third)] == [8, 8, 0, 8, 8]
    assert len({*first}) == len({*second}) == len({*third}) == 1
    assert first == still
    assert len({*first, *second, *third}) == 3
    # One for each expiry, and one whose answer died with the process that asked.
    assert at.count("token", grant_type="refresh_token") == 4
    assert at.claims_of(third[0].removeprefix("Bearer ")) is not None
