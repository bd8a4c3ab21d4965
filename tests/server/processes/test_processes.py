"""Several processes of a real program on one socket: what clients notice of starts, deaths and restarts."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import psutil
import pytest
import trio

from tests.conftest import per_runner
from tests.server.http.certificate import over_tls
from tests.server.processes.running import Running, running
from tests.waiting import eventually
from trio_mcp import TransportError
from trio_mcp.server.processes.supervisor import reap

SHOP = """
import os, sys
from trio_mcp import Server

server = Server("shop")


@server.tool
async def pid() -> int:
    return os.getpid()


@server.tool
async def words() -> list[str]:
    return sys.argv[1:]
"""


async def test_all_processes_serve_one_that_is_killed_is_replaced_and_sigterm_lets_calls_end(tmp_path: Path) -> None:
    async with running(processes=3) as desk:
        assert "with 3 processes" in desk.text
        pids = desk.pids()
        assert len(pids) == 3
        await desk.served_by(*pids)
        # All of them have the same secrets from the supervisor, and a number of their own.
        told = set()
        while len(told) < 3:
            told.add(await desk.call("legacy"))
        assert {text.split()[0] for text in told} == {"1", "2", "3"}
        assert {tuple(text.split()[1:]) for text in told} == {(*told.pop().split()[1:2], "32", "32")}
        # A process that a handler starts has neither the mark nor the sockets and pipes: 0 to 2, and that of `listdir`.
        assert await desk.call("look") == "False 4"
        # A second supervisor on the same port is one error, before it starts any process.
        async with running(processes=3, port=int(desk.url.split(":")[2].partition("/")[0])) as second:
            assert await second.ended() == 1
            assert not second.seen
        assert "can't listen on 127.0.0.1" in second.text
        assert "is another server running there?" in second.text
        # One is killed; meanwhile the others serve.
        killed = min(pids)
        os.kill(killed, signal.SIGKILL)
        await eventually(lambda: killed not in desk.pids())
        assert await desk.call("pid") in pids - {killed}
        await eventually(lambda: len(desk.pids()) == 3)
        [new] = desk.pids() - pids
        assert f"(pid {killed}) was killed by SIGKILL" in desk.text
        await desk.served_by(new)
        # The end: a call under way gets its result.
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_ends_well, desk, tmp_path / "begun")
            await eventually((tmp_path / "begun").exists)
            desk.send(signal.SIGTERM)
        assert await desk.ended() == 0


async def _ends_well(desk: Running, file: Path) -> None:
    assert await desk.call("sleep", seconds=1, file=str(file)) in desk.seen


async def test_children_end_with_a_supervisor_that_is_killed_even_if_one_is_blocked(tmp_path: Path) -> None:
    """The sockets are a service manager's, which keeps them: here they are this test's."""
    hand_over = ["/bin/sh", "-c", 'exec 3<&0; LISTEN_PID=$$ LISTEN_FDS=1 exec "$0" "$@"', sys.executable]
    constants = {"child.EXTRA": 0.3}
    with socket.create_server(("127.0.0.1", 0)) as bound:
        port = bound.getsockname()[1]
        async with running(processes=2, port=1, grace=0.1, constants=constants, start=hand_over, stdin=bound) as desk:
            assert desk.url == f"http://127.0.0.1:{port}/mcp"
            await _killed_while_one_is_blocked(desk, tmp_path / "begun")


async def _killed_while_one_is_blocked(desk: Running, begun: Path) -> None:
    async def block() -> None:
        with pytest.raises(TransportError):
            await desk.call("block", seconds=120, file=str(begun))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(block)
        await eventually(begun.exists)
        os.kill(desk.process.pid, signal.SIGKILL)
    assert await desk.ended() == -signal.SIGKILL


@pytest.mark.parametrize("runner", per_runner())
async def test_a_rolling_restart_fails_no_call(runner: str) -> None:
    """A client whose connection is kept learns that it ends, and one that connects reaches a process that serves."""
    async with running(processes=2, runner=runner) as desk:
        before = desk.pids()
        calls = 0

        async def kept() -> None:
            nonlocal calls
            async with desk.client() as client:
                while True:
                    assert (await client.call_tool("pid")).data
                    calls += 1

        async def anew() -> None:
            nonlocal calls
            while True:
                assert await desk.call("pid")
                calls += 1

        async with trio.open_nursery() as nursery:
            for each in (kept, kept, kept, anew):
                nursery.start_soon(each)
            await eventually(lambda: calls > 20)
            desk.send(signal.SIGHUP)
            await desk.until_said("all processes have been replaced")
            seen = calls
            await eventually(lambda: calls > seen + 20)
            nursery.cancel_scope.cancel()
        assert not before & desk.pids()
        assert len(desk.pids()) == 2
        desk.send(signal.SIGINT)
        assert await desk.ended() == 130


async def test_a_stopped_child_is_killed_and_one_that_ignores_sigterm_as_well() -> None:
    constants = {"supervisor.SILENCE": 3.0, "children.EXTRA": 0.3}
    async with running(processes=1, grace=0.1, constants=constants) as desk:
        [stopped] = desk.pids()
        os.kill(stopped, signal.SIGSTOP)
        await desk.until_said(rf"\(pid {stopped}\) was silent for 3 s and was killed")
        await eventually(lambda: desk.pids() - {stopped})
        deaf = await desk.call("deafen")
        desk.send(signal.SIGTERM)
        await desk.until_said(rf"\(pid {deaf}\) did not end in time and was killed")
        assert await desk.ended() == 0


@pytest.mark.again
async def test_a_silent_child_is_killed_sooner_if_a_handler_reports_busy_stores() -> None:
    constants = {"supervisor.SILENCE": 60.0, "supervisor.LEASE": 2.0}
    async with running(processes=2, constants=constants) as desk:
        stopped, _ = desk.pids()
        os.kill(stopped, signal.SIGSTOP)

        async def report() -> None:
            while True:  # as long as they fail; what was said last by the stopped one may arrive after the first report
                await desk.call("busy")  # only a process that runs accepts a connection

        async with trio.open_nursery() as nursery:
            nursery.start_soon(report)
            await desk.until_said(rf"\(pid {stopped}\) was silent for 2 s while others could not write to the stores")
            nursery.cancel_scope.cancel()


@pytest.mark.again
@pytest.mark.parametrize(
    "start", [[sys.executable, "-m", "trio_mcp"], [str(Path(sys.executable).with_name("trio-mcp"))]]
)
async def test_the_command_line_starts_itself_again_in_each_process(start: list[str], tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    words = ["--transport", "http", "--port", "0", "--stateless", "--processes", "2"]
    async with running(command=[*start, "run", str(tmp_path / "shop.py"), *words, "--", "b"]) as shop:
        assert shop.text.startswith("shop serves http://127.0.0.1:")
        assert await shop.call("words") == ["b"]
        await shop.served_by(*shop.pids())
        shop.send(signal.SIGINT)
        assert await shop.ended() == 130


@pytest.mark.again
async def test_over_http_2_a_rolling_restart_refuses_no_request(tmp_path: Path) -> None:
    """Each connection ends after a response. httpx does not look for that, and writes one more request to it."""
    given, trusting = over_tls(tmp_path)
    config = {"bind": ["127.0.0.1:0"], "certfile": given.certfile, "keyfile": given.keyfile}
    async with running(processes=2, config=config) as desk:
        health = desk.url.removesuffix("/mcp") + "/health"
        served = lost = 0

        async def ask() -> None:
            nonlocal served, lost
            async with httpx.AsyncClient(http2=True, verify=trusting) as http:
                while True:
                    try:
                        response = await http.get(health)
                    except httpx.WriteError:
                        lost += 1
                        continue
                    assert (response.http_version, response.status_code) == ("HTTP/2", 200)
                    served += 1

        async with trio.open_nursery() as nursery:
            for _ in range(4):
                nursery.start_soon(ask)
            await eventually(lambda: served > 20)
            desk.send(signal.SIGHUP)
            await desk.until_said("all processes have been replaced")
            nursery.cancel_scope.cancel()
        assert lost <= 8  # of each of the four, as each of the two processes ends


@pytest.mark.again
async def test_websockets_are_spread_over_the_processes_and_told_of_a_restart() -> None:
    async with running(transport="websocket", processes=2) as desk:
        assert desk.url.startswith("ws://127.0.0.1:")
        before = desk.pids()
        await desk.served_by(*before)
        desk.send(signal.SIGHUP)
        await desk.until_said("all processes have been replaced")
        assert not before & desk.pids()
        await desk.served_by(*desk.pids())


@pytest.mark.again
async def test_a_program_that_fails_in_each_child_ends_with_its_status() -> None:
    async with running(processes=1, crash=True) as desk:
        assert await desk.ended() == 7
    assert "5 processes in a row have ended before any has served" in desk.text


async def test_several_addresses_with_tls_and_a_unix_socket_whose_file_the_supervisor_removes(tmp_path: Path) -> None:
    path = tmp_path / "desk.sock"
    given, trusting = over_tls(tmp_path)
    config = {
        "bind": ["127.0.0.1:0"],
        "insecure_bind": [f"unix:{path}"],
        "certfile": given.certfile,
        "keyfile": given.keyfile,
    }
    async with running(processes=1, config=config, runner="h11") as desk:
        health = desk.url.removesuffix("/mcp") + "/health"
        assert health.startswith("https://127.0.0.1:")
        async with httpx.AsyncClient(verify=trusting) as http:
            assert (await http.get(health)).json() == {"status": "ok"}
        async with httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(uds=str(path))) as http:
            assert (await http.get("http://localhost/health")).json() == {"status": "ok"}
        [first] = desk.pids()
        desk.send(signal.SIGHUP)
        await desk.until_said("all processes have been replaced")
        assert first not in desk.pids()
        async with httpx.AsyncClient(transport=httpx.AsyncHTTPTransport(uds=str(path))) as http:
            assert (await http.get("http://localhost/health")).json() == {"status": "ok"}
        desk.send(signal.SIGTERM)
        assert await desk.ended() == 0
    assert not path.exists()


# --- signals of terminals and containers ------------------------------------------------------------------------------


@pytest.mark.again
@pytest.mark.skipif(sys.platform != "linux", reason="setsid is of Linux")
async def test_the_end_of_its_terminal_ends_all() -> None:
    """SIGHUP then has its other meaning."""
    ours, theirs = os.openpty()
    async with running(processes=1, start=["setsid", "-c", sys.executable], stdin=theirs) as desk:
        os.close(theirs)
        os.close(ours)
        assert await desk.ended() == 0
    assert "replacing" not in desk.text


@pytest.mark.root
async def test_as_the_first_process_of_a_container_it_reaps_orphans_and_ends_on_sigterm() -> None:
    start = ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable]
    async with running(processes=1, start=start) as desk:
        [supervisor] = psutil.Process(desk.process.pid).children()
        await desk.call("orphan")
        await eventually(lambda: len(supervisor.children()) == 2)
        await eventually(lambda: len(supervisor.children()) == 1)
        supervisor.send_signal(signal.SIGTERM)
        assert await desk.process.wait() == 0


def test_only_processes_that_nobody_waits_for_are_reaped() -> None:
    known, orphan = subprocess.Popen([sys.executable, "-c", ""]), subprocess.Popen([sys.executable, "-c", ""])
    for each in (known, orphan):
        os.waitid(os.P_PID, each.pid, os.WEXITED | os.WNOWAIT)
    reap({known.pid})
    assert known.wait() == 0
    reap({known.pid})
    with pytest.raises(ChildProcessError):
        os.waitid(os.P_PID, orphan.pid, os.WEXITED)
    orphan.wait()
