"""examples/egg_timer.py under Xvfb: Trio as a guest of Tk. And what Tk does to those who call it in other threads."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .test_programs import DEADLINE, EXAMPLES

pytestmark = pytest.mark.xvfb

DRIVER = Path(__file__).with_name("window_driver.py")

CONNECTED = ["connecting", "which egg?"]
STOPPED = [*CONNECTED, "0 of 9 minutes", "1 of 9 minutes"]


@contextlib.contextmanager
def screen() -> Iterator[str]:
    """Run an X server without a monitor, and yield the name of its display."""
    reads, writes = os.pipe()
    command = ["Xvfb", "-displayfd", str(writes), "-screen", "0", "800x600x24", "-nolisten", "tcp"]
    server = subprocess.Popen(command, pass_fds=[writes], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    os.close(writes)
    try:
        with open(reads) as found:
            yield f":{found.readline().strip()}"
    finally:
        server.terminate()
        server.wait()


@pytest.fixture(scope="module")
def display() -> Iterator[str]:
    with screen() as name:
        yield name


def run(display: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "DISPLAY": display, "PYTHONPATH": str(EXAMPLES.parent)}
    return subprocess.run(
        [sys.executable, "-X", "faulthandler", *arguments],
        env=environment,
        cwd=EXAMPLES.parent,
        capture_output=True,
        text=True,
        timeout=DEADLINE,
        check=False,
    )


def used(display: str, *steps: str) -> dict[str, Any]:
    """Return what a person saw who used the window, once it is gone: nothing has failed, and no step is left."""
    done = run(display, str(DRIVER), *steps)
    assert (done.returncode, done.stderr) == (0, "")
    found: dict[str, Any] = json.loads(done.stdout)
    assert found.pop("not done") == 0
    assert found.pop("children") == 0, "the server has ended"
    assert found.pop("signal handler"), "Ctrl-C is again what it was"
    return found


def test_a_window_calls_a_server_and_stays_alive_meanwhile(display: str) -> None:
    found = used(display, "boil two", "close")
    assert found["seen"] == [*CONNECTED, "0 of 2 minutes", "1 of 2 minutes", "here is your 2-minute egg"]
    assert found["most beats within a call"] > 1, "Tk's own timers go off while a call waits"


def test_a_call_is_stopped_and_the_next_one_works(display: str) -> None:
    seen = used(display, "boil nine", "stop", "boil one", "close")["seen"]
    assert seen == [*STOPPED, "stopped", "0 of 1 minutes", "here is your 1-minute egg"]


@pytest.mark.parametrize("end", ["close in a call", "interrupt"])
def test_closing_the_window_and_ctrl_c_end_the_run_of_trio(end: str, display: str) -> None:
    assert used(display, "boil nine", end)["seen"] == STOPPED


def test_the_window_may_be_closed_before_it_is_connected(display: str) -> None:
    assert used(display, "close at once")["seen"] == ["connecting"]


def test_the_end_of_the_server_is_shown(display: str) -> None:
    *before, failed = used(display, "boil nine", "kill the server", "close after a failure")["seen"]
    assert before == STOPPED
    assert failed.startswith("failed: ")


# --- what the page says of Tk -----------------------------------------------------------------------------------------

IN_A_THREAD = """
import threading, tkinter
root = tkinter.Tk()
root.update()
root.bind("<<Wake>>", print)
def work():
    try:
        {}
    except RuntimeError as exc:
        print(exc)
thread = threading.Thread(target=work)
thread.start()
thread.join()
"""

IN_NO_WINDOW = """
import tkinter
root = tkinter.Tk()
root.bind("<<Wake>>", lambda event: print("woken"))
root.event_generate("<<Wake>>", when="tail")
root.update()
print("over")
"""


@pytest.mark.parametrize("call", ["root.after(0, print)", "root.event_generate('<<Wake>>', when='tail')"])
def test_tk_refuses_another_thread_while_its_loop_does_not_run(call: str, display: str) -> None:
    assert run(display, "-c", IN_A_THREAD.format(call)).stdout == "main thread is not in main loop\n"


def test_an_event_for_a_window_that_is_not_there_yet_is_lost(display: str) -> None:
    assert run(display, "-c", IN_NO_WINDOW).stdout == "over\n"
