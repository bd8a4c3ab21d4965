"""Time per MiB of one large text through a stdio server's framing, in both directions."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

from benchmarks import _wire
from benchmarks._load import Load
from benchmarks._measure import Comparison, Group, Target, interleave
from benchmarks._options import peer_installed
from benchmarks._processes import ROOT, Process, server_command

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks._options import Options

MIB = 1 << 20
SIZES = (1, 4, 16)  # MiB
LINEAR, OF_BARE = Target("<=", 1.3), Target("<=", 1.3)
# Quotes, a newline, an accent and an astral character: a copy that skips escaping or decoding would show.
_PATTERN = 'The "quick" brown fox,\n naïve as ever 🦊, jumps over the lazy dog. '


def _text(mebibytes: int) -> str:
    size = len(_PATTERN.encode())
    return _PATTERN * (mebibytes * MIB // size)


def _exchange(process: Process, request: bytes) -> tuple[float, bytes]:
    """Return the seconds from the first byte of `request` to the last of the answer, and the answer.

    A thread writes while this one reads, because the answer may begin before the whole request has been read.
    """
    writer = threading.Thread(target=process.write, args=(request,), daemon=True)
    started = time.perf_counter()
    writer.start()
    answer = process.read_line()
    elapsed = time.perf_counter() - started
    writer.join()
    return elapsed, answer


def _echo(load: Load, mebibytes: int, calls: int) -> float:
    """Return the milliseconds per MiB of text in `calls` calls of ``echo``; encoding and checking are not counted."""
    text = _text(mebibytes)
    elapsed = 0.0
    with load.process.deadline():
        for _ in range(calls):
            request_id = load.take_id()
            seconds, answer = _exchange(load.process, _wire.call(request_id, "echo", {"text": text}, load.era))
            elapsed += seconds
            _wire.check_tool_result(_wire.result_of(answer, request_id), text)
    return elapsed * 1000 / (mebibytes * calls)


def _ceiling(process: Process, mebibytes: int, calls: int) -> float:
    """Measure as `_echo` does, against ``cat``: the cost of the pipes and the load generator."""
    request = _wire.line({"text": _text(mebibytes)})
    elapsed = 0.0
    with process.deadline():
        for _ in range(calls):
            seconds, answer = _exchange(process, request)
            elapsed += seconds
            if answer + b"\n" != request:
                raise _wire.WrongAnswer("cat did not echo what it was sent")
    return elapsed * 1000 / (mebibytes * calls)


def run(options: Options) -> Iterator[Group]:
    """Yield the group of all sizes. Framing that rescans its buffer would be 16 times as slow per MiB at 16 MiB.

    The target allows for a little, because texts beyond the processor's caches cost more per byte, in the bare loop as
    well. Every sample moves as much text as the largest size, in one call or in several.
    """
    options.progress("big messages")
    names = {
        "ours": ("ours", ROOT),
        **({"before": ("ours", options.before)} if options.before else {}),
        **({"official": ("official", ROOT)} if peer_installed() else {}),
        "bare Trio loop": ("bare", ROOT),
    }
    sizes = SIZES[:2] if options.quick else SIZES
    first, last = sizes[0], sizes[-1]
    with ExitStack() as stack:
        contenders = {}
        for label, (name, root) in names.items():
            load = Load(server_command(name), "modern", root)
            stack.callback(load.close)
            load.greet()
            contenders.update({f"{label}, {size} MiB": partial(_echo, load, size, last // size) for size in sizes})
        cat = stack.enter_context(Process(["cat"]))
        contenders[f"load generator against cat, {last} MiB"] = partial(_ceiling, cat, last, 1)
        samples = interleave(contenders, options.rounds, options.progress)
    comparisons = [Comparison(f"ours, {last} MiB", f"ours, {first} MiB", LINEAR)]
    comparisons += [Comparison(f"{n}, {last} MiB", f"{n}, {first} MiB") for n in names if n != "ours"]
    limits = {"bare Trio loop": OF_BARE}
    comparisons += [Comparison(f"ours, {last} MiB", f"{n}, {last} MiB", limits.get(n)) for n in names if n != "ours"]
    yield Group("big", "echo(text), per MiB of text", "ms/MiB", samples, comparisons)
