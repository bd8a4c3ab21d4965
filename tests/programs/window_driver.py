"""Use examples/egg_timer.py as a person would, in the order that is given, and print what was seen as JSON.

The steps are functions below. Each begins when the window says what it waits for.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import tkinter as tk
from collections.abc import Callable

import psutil

from examples.egg_timer import Window, run_beside_tk

ROOT = tk.Tk()
WINDOW = Window(ROOT)
BEATS: list[int] = []


def boil(minutes: int) -> None:
    WINDOW.minutes.delete(0, "end")
    WINDOW.minutes.insert(0, str(minutes))
    ROOT.after_idle(WINDOW.boil.invoke)


def close() -> None:
    ROOT.tk.call(ROOT.protocol("WM_DELETE_WINDOW"))


def interrupt() -> None:
    os.kill(os.getpid(), signal.SIGINT)


def kill_the_server() -> None:
    for child in psutil.Process().children():
        child.kill()


STEPS: dict[str, tuple[str, Callable[[], object]]] = {
    "boil two": ("which egg?", lambda: boil(2)),
    "boil nine": ("which egg?", lambda: boil(9)),
    "boil nine more": ("here is", lambda: boil(9)),
    "stop": ("1 of 9", WINDOW.stop.invoke),
    "boil one": ("stopped", lambda: boil(1)),
    "close": ("here is", close),
    "close at once": ("connecting", close),
    "close in a call": ("1 of 9", close),
    "interrupt": ("1 of 9", interrupt),
    "kill the server": ("1 of 9", kill_the_server),
    "close after a failure": ("failed", close),
}


def main(names: list[str]) -> None:
    steps = [STEPS[name] for name in names]
    seen: list[str] = []

    def look(*_: object) -> None:
        seen.append(WINDOW.line.get())
        if steps and seen[-1].startswith(steps[0][0]):
            ROOT.after_idle(steps.pop(0)[1])

    def beat() -> None:
        BEATS.append(len(seen))
        ROOT.after(20, beat)

    WINDOW.line.trace_add("write", look)
    beat()
    look()
    handler = signal.getsignal(signal.SIGINT)
    run_beside_tk(ROOT, WINDOW.main)
    ROOT.destroy()
    print(
        json.dumps(
            {
                "seen": seen,
                "not done": len(steps),
                "most beats within a call": max(map(BEATS.count, BEATS)),
                "children": len(psutil.Process().children()),
                "signal handler": signal.getsignal(signal.SIGINT) is handler,
            }
        )
    )


if __name__ == "__main__":
    main(sys.argv[1:])
