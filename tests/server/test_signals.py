"""A server as the main program, where standard error goes to a full disk."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys

import pytest
import trio
import trio.testing

from trio_mcp.server.signals import run_http


class Full(io.StringIO):
    def write(self, text: str) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_an_http_server_serves_even_if_it_cannot_print_its_url(monkeypatch: pytest.MonkeyPatch) -> None:
    served = False

    async def serve(*, shutdown: trio.Event, task_status: trio.TaskStatus[str]) -> None:
        nonlocal served
        task_status.started("http://127.0.0.1:1/mcp")
        await trio.testing.wait_all_tasks_blocked()
        os.kill(os.getpid(), signal.SIGTERM)
        await shutdown.wait()
        served = True

    monkeypatch.setattr(sys, "stderr", Full())
    run_http("s", serve, {})
    assert served
