"""How long a stdio server takes to exit: on SIGINT while idle, and at the end of its stdin while a tool runs."""

from __future__ import annotations

import signal
import time
from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.load.pipes import Load
from benchmarks.measure.samples import Comparison, Group, Target, interleave
from benchmarks.options import peer_installed
from benchmarks.servers.commands import server_command

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.options import Options

CAP = 5.0  # seconds after which a server that has not exited is killed; this is then its figure
_SETTLE = 0.2  # seconds for the server to become idle, or for the tool to start


@contextmanager
def _default_in_children() -> Iterator[None]:
    """Have processes that are started meanwhile begin with the default of SIGINT.

    They inherit that it is ignored, as ``nohup ... &`` has it, but no handler.
    """
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        yield
        return
    signal.signal(signal.SIGINT, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.SIG_IGN)


class Leaving:
    """One way to make a server exit; it remembers whether the server ever had to be killed."""

    def __init__(self, name: str, cap: float) -> None:
        self._command = server_command(name)
        self._cap = cap
        self.killed = 0
        self.exit_codes: set[int] = set()

    def on_sigint(self) -> float:
        """Return the milliseconds from SIGINT to the exit of an idle server."""
        with _default_in_children(), closing(Load(self._command, "modern")) as load:
            load.greet()
            time.sleep(_SETTLE)
            return self._exit_time(load, lambda: load.process.send_signal(signal.SIGINT))

    def on_eof_in_mid_run(self) -> float:
        """Return the milliseconds from the end of stdin to the exit while a tool sleeps."""
        with closing(Load(self._command, "modern")) as load:
            load.greet()
            load.send_call("pause", {"seconds": 3600})
            load.call("add", {"a": 1, "b": 2}, 3)  # once this is answered, the call before it has been read
            time.sleep(_SETTLE)
            return self._exit_time(load, load.process.close_stdin)

    def _exit_time(self, load: Load, leave: Callable[[], None]) -> float:
        with load.process.deadline(self._cap) as expired:
            started = time.perf_counter()
            leave()
            code = load.process.wait()
            elapsed = time.perf_counter() - started
        if expired.is_set():
            self.killed += 1
        else:
            self.exit_codes.add(code)
        return elapsed * 1000

    def note(self, label: str) -> str | None:
        """Return how often the server was killed, or its exit statuses, for a note below the table."""
        if self.killed:
            return f"{label}: killed {self.killed} times, because it had not exited after {self._cap:g} s"
        return f"{label}: exit status {', '.join(map(str, sorted(self.exit_codes)))}"


def run(options: Options) -> Iterator[Group]:
    """Measure a new server for each sample."""
    names = {"ours": "ours", **({"official": "official"} if peer_installed() else {})}
    cap = 0.5 if options.quick else CAP
    cases = [
        ("SIGINT on an idle server to its exit", Leaving.on_sigint, Target("<=", 100)),
        ("end of stdin with a tool in mid-run to the exit", Leaving.on_eof_in_mid_run, Target("<=", 1000)),
    ]
    for case, method, target in cases:
        options.progress(case)
        leavers = {label: Leaving(name, cap) for label, name in names.items()}
        samples = interleave(
            {label: partial(method, leaver) for label, leaver in leavers.items()}, options.rounds, options.progress
        )
        comparisons = [Comparison("ours", "official")] if "official" in samples else []
        notes = [note for label, leaver in leavers.items() if (note := leaver.note(label))]
        yield Group("signals", case, "ms", samples, comparisons, {"ours": target}, notes)
