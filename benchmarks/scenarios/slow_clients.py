"""What slow readers and slow writers cost the others: the time of a good client's call, without them and with them."""

from __future__ import annotations

import statistics
from contextlib import ExitStack, closing
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.load.http import HttpLoad
from benchmarks.measure.processes import Process, allow_files, python
from benchmarks.measure.samples import Comparison, Group, Target, interleave
from benchmarks.servers.commands import installed_runners, our_server

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.options import Options

ALONE, WITH = "{}, alone", "{}, with slow clients"
WARM_UP = 200  # calls
PATIENCE = 600.0  # seconds: no slow client is cut off while the clock runs


def median_call(runner: str, slow: int, seconds: float) -> float:
    """Return the milliseconds of a call at the median, while as many clients read slowly and as many write slowly."""
    settings = {
        "max_connections": 2 * slow + 10,
        "max_requests": 2 * slow + 10,
        "write_timeout": PATIENCE,
        "body_timeout": PATIENCE,
    }
    with ExitStack() as stack:
        load = stack.enter_context(closing(HttpLoad(our_server(runner, **settings))))
        load.greet()
        load.answer(WARM_UP)
        if not slow:
            return statistics.median(load.times(seconds)) * 1000
        crowd = stack.enter_context(Process(python("-m", "benchmarks.load.slow", load.url, str(slow))))
        with crowd.deadline():
            crowd.read_line()
        times = load.times(seconds)
        with crowd.deadline():
            crowd.finish()  # which fails if a slow client has been dropped, or was not slow
    return statistics.median(times) * 1000


def run(options: Options) -> Iterator[Group]:
    """Measure a new server for each sample."""
    slow = 50 if options.quick else 1000
    options.progress(f"slow clients, {slow} readers and {slow} writers")
    allow_files(2 * slow + 100)
    contenders = {}
    for runner in installed_runners():
        contenders[ALONE.format(runner)] = partial(median_call, runner, 0, options.seconds)
        contenders[WITH.format(runner)] = partial(median_call, runner, slow, options.seconds)
    samples = interleave(contenders, options.rounds, options.progress)
    comparisons = [
        Comparison(WITH.format(runner), ALONE.format(runner), Target("<=", 2)) for runner in installed_runners()
    ]
    case = f"median time of a call, with {slow} slow readers and {slow} slow writers"
    yield Group("slow", case, "ms", samples, comparisons)
