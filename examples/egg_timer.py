"""A window of Tk that calls a server: Trio runs as a guest of Tk's loop.

$ python examples/egg_timer.py
"""

import queue
import signal
import socket
import sys
import tkinter as tk
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any

import trio

from trio_mcp import Client, Context, Server, StdioServerParameters, TrioMcpError
from trio_mcp.types import ProgressNotificationParams

server = Server("kitchen")


@server.tool
async def boil(minutes: int, ctx: Context) -> str:
    """Boil an egg. Here a minute takes a second."""
    for minute in range(minutes):
        await ctx.report_progress(minute, minutes)
        await trio.sleep(1)
    return f"here is your {minutes}-minute egg"


def run_beside_tk(root: tk.Tk, main: Callable[[], Awaitable[None]]) -> None:
    """Run Tk's loop, and Trio as its guest, until ``main`` ends; closing the window, or Ctrl-C, cancels it."""
    jobs = queue.SimpleQueue[Callable[[], object]]()
    alarm, bell = socket.socketpair()
    alarm.setblocking(False)
    bell.setblocking(False)
    scope = trio.CancelScope()
    outcomes: list[Any] = []

    def soon(job: Callable[[], object]) -> None:  # in any thread, so it must not touch Tk
        jobs.put(job)
        with suppress(BlockingIOError):  # Tk has not read yet what woke it
            bell.send(b"!")

    def run_jobs(*event: object) -> None:  # in Tk's thread
        alarm.recv(4096)
        for _ in range(jobs.qsize()):
            jobs.get()()

    async def run() -> None:
        with scope:
            await main()

    def done(outcome: Any) -> None:
        outcomes.append(outcome)
        root.quit()

    def leave(*_: object) -> None:
        with suppress(trio.RunFinishedError):
            token.run_sync_soon(scope.cancel)

    on_ctrl_c = signal.getsignal(signal.SIGINT)
    root.createfilehandler(alarm, tk.READABLE, run_jobs)
    trio.lowlevel.start_guest_run(run, run_sync_soon_threadsafe=soon, done_callback=done)
    token = trio.lowlevel.current_trio_token()
    root.protocol("WM_DELETE_WINDOW", leave)
    signal.signal(signal.SIGINT, leave)
    root.mainloop()
    signal.signal(signal.SIGINT, on_ctrl_c)
    root.deletefilehandler(alarm)
    alarm.close()
    bell.close()
    outcomes[0].unwrap()  # raises what `main` has raised


class Window:
    """A number, two buttons, and a line that says what happens. Tk calls its methods, and so do tasks on Trio."""

    def __init__(self, root: tk.Tk) -> None:
        self.minutes = tk.Spinbox(root, from_=1, to=10)
        self.boil = tk.Button(root, text="Boil", command=self.start, state="disabled")
        self.stop = tk.Button(root, text="Stop", command=self.cancel, state="disabled")
        self.line = tk.StringVar(root, "connecting")
        for widget in (self.minutes, self.boil, self.stop, tk.Label(root, textvariable=self.line)):
            widget.pack(fill="x")

    async def main(self) -> None:
        """Keep a client until the window is closed."""
        target = StdioServerParameters(sys.executable, ["-m", "trio_mcp", "run", __file__])
        async with Client(target) as self._client, trio.open_nursery() as self._nursery:
            self._token = trio.lowlevel.current_trio_token()
            self.boil["state"] = "normal"
            self.line.set("which egg?")
            await trio.sleep_forever()

    def start(self) -> None:
        self._call = trio.CancelScope()
        self.boil["state"], self.stop["state"] = "disabled", "normal"
        self._token.run_sync_soon(self._nursery.start_soon, self._boil, int(self.minutes.get()))

    def cancel(self) -> None:
        self._token.run_sync_soon(self._call.cancel)

    async def _boil(self, minutes: int) -> None:
        def show(step: ProgressNotificationParams) -> None:
            self.line.set(f"{step.progress:g} of {minutes} minutes")

        with self._call:
            try:
                result = await self._client.call_tool("boil", {"minutes": minutes}, on_progress=show)
            except TrioMcpError as exc:
                self.line.set(f"failed: {exc}")
            else:
                self.line.set(result.text)
        if self._call.cancelled_caught:
            self.line.set("stopped")
        self.boil["state"], self.stop["state"] = "normal", "disabled"


def main() -> None:
    root = tk.Tk()
    run_beside_tk(root, Window(root).main)
    root.destroy()


if __name__ == "__main__":
    main()
