"""What `trio-mcp bench` measures, on a clock that the tests turn: the figures are exact."""

from __future__ import annotations

import contextlib
import math
import re
from collections.abc import AsyncIterator, Sequence

import pytest
import trio
from hypothesis import given, settings, strategies as st
from pydantic import BaseModel
from trio.testing import MockClock

from tests.effort import examples
from trio_mcp import Client, Context, Server
from trio_mcp.bench.figures import Latencies, Ratio, Sample, Step, bend, paired
from trio_mcp.bench.html import html
from trio_mcp.bench.ladder import Bench, Side
from trio_mcp.bench.plan import BenchTerms, NamedTool, Plan, ToolCall, choose
from trio_mcp.bench.report import BenchReport, Measured, ToolFigures, report_of
from trio_mcp.bench.table import table
from trio_mcp.errors import SessionClosed, ToolError
from trio_mcp.types.tools import Tool, ToolAnnotations


class Choice(BaseModel):
    name: str


READS = ToolAnnotations(read_only_hint=True)


# --- statistics -------------------------------------------------------------------------------------------------------


DURATIONS = st.lists(st.floats(1e-6, 2000.0), min_size=1, max_size=300)


def nearest_rank(values: Sequence[float], share: float) -> float:
    return sorted(values)[max(1, math.ceil(share * len(values))) - 1]


@settings(max_examples=examples(200))
@given(DURATIONS, st.floats(0, 1))
def test_a_quantile_is_the_nearest_rank_to_within_a_hundredth(values: list[float], share: float) -> None:
    latencies = Latencies()
    for value in values:
        latencies.add(value)
    assert latencies.quantile(share) == pytest.approx(nearest_rank(values, share), rel=0.0101)
    assert latencies.quantile(1) == max(values)
    assert latencies.count == len(values)


@settings(max_examples=examples(100))
@given(DURATIONS, DURATIONS, st.floats(0, 1))
def test_merged_histograms_are_that_of_all_durations(some: list[float], others: list[float], share: float) -> None:
    merged, whole, part = Latencies(), Latencies(), Latencies()
    for value in some:
        merged.add(value)
        whole.add(value)
    for value in others:
        part.add(value)
        whole.add(value)
    merged.merge(part)
    assert (merged.count, merged.quantile(share)) == (whole.count, whole.quantile(share))


def test_durations_beyond_the_buckets_stay_within_what_was_measured() -> None:
    latencies = Latencies()
    for value in (0.0, 1e-9, 1e9, 2e9):
        latencies.add(value)
    assert [latencies.quantile(share) for share in (0.25, 1)] == [0.0, 2e9]
    assert 0.0 <= latencies.quantile(0.75) <= 2e9


def test_there_is_no_quantile_of_nothing() -> None:
    with pytest.raises(ValueError, match="no durations"):
        Latencies().quantile(0.5)


def step(in_flight: int, rate: float, p50: float, *, busy: float = 0.1, failed: int = 0) -> Step:
    return Step(
        in_flight, 100, {"timeout": failed} if failed else {}, rate, p50, p50, p50, 1.0, busy, None, True, False
    )


@pytest.mark.parametrize(
    ("steps", "index"),
    [
        # Twice as many in flight, twice as many calls.
        ([step(1, 100, 0.01), step(4, 400, 0.01), step(16, 1600, 0.01)], None),
        # As many calls, each of which takes as many times as long.
        ([step(1, 100, 0.01), step(4, 400, 0.01), step(16, 404, 0.04)], 1),
        ([step(1, 100, 0.01), step(4, 99, 0.04), step(16, 101, 0.16)], 0),
        # More than a tenth more is still more.
        ([step(1, 100, 0.01), step(4, 111, 0.036)], None),
        # Fewer calls, but the median is as short: something else fails or stalls.
        ([step(1, 100, 0.01), step(4, 100, 0.01)], None),
        ([step(1, 100, 0.01)], None),
        ([], None),
    ],
)
def test_the_bend_is_where_calls_only_wait_longer(steps: list[Step], index: int | None) -> None:
    assert bend(steps) == index


def test_a_bend_that_may_be_the_clients_own_is_said_to_be() -> None:
    steps = (step(1, 100, 0.01), step(4, 101, 0.04, busy=0.97))
    assert Measured("x", "", "stdio", "2026-07-28", steps).bends == (
        "The throughput curve bends after 1 in flight: 4 give +1% calls a second, and the median call takes 4.0 times"
        " as long; but the client was busy 97% of the time, so the server may be able to do more."
    )


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        (
            (step(1, 100, 0.01), step(4, 400, 0.01), step(16, 20, 1.0, failed=300)),
            "The throughput curve does not bend up to 4 in flight; with 16 in flight, 75% of the calls fail.",
        ),
        (
            (step(1, 100, 0.01), step(4, 20, 1.0, failed=100)),
            "Whether the throughput curve bends can't be said; with 4 in flight, 50% of the calls fail.",
        ),
        (
            (step(1, 100, 0.01), step(4, 101, 0.04), step(16, 9, 1.0, failed=100)),
            "The throughput curve bends after 1 in flight: 4 give +1% calls a second, and the median call takes 4.0"
            " times as long.",
        ),
        ((step(1, 100, 0.01), step(4, 400, 0.01, failed=1)), "The throughput curve does not bend up to 4 in flight."),
        ((step(1, 100, 0.01, failed=100),), ""),
    ],
)
def test_steps_in_which_many_calls_fail_show_no_bend(steps: tuple[Step, ...], said: str) -> None:
    """What fails is quick, or takes the time of what does not."""
    assert Measured("x", "", "stdio", "2026-07-28", steps).bends == said


def test_the_longest_bar_of_a_page_fills_its_row() -> None:
    """A browser fills only a part of the row if the sum of the factors is below 1, as that of seconds is."""
    steps = (step(1, 100, 0.001), step(4, 110, 0.084))
    report = BenchReport(
        (Measured("x", "", "stdio", "2026-07-28", steps),), BenchTerms(), (), (), (), {}, "complete", ""
    )
    rows = re.findall(r'<div class="bar large".*?</div>', html(report))
    bars = [[float(factor) for factor in re.findall(r"flex-grow:([0-9.]+)", row)] for row in rows]
    assert len(bars) == 4
    assert [round(sum(bar), 4) for bar in bars] == [1, 1, 1, 1]
    # Calls a second, then milliseconds: each in proportion to the largest, whose filler is empty.
    assert [round(1 - bar[-1], 3) for bar in bars] == [round(100 / 110, 3), 1, round(1 / 84, 3), 1]


def sample(seconds: float, *, calls: int = 10, complete: bool = True) -> Sample:
    found = Sample(1, call_seconds=seconds * calls, complete=complete)
    for _ in range(calls):
        found.succeeded("x", seconds)
    return found


def test_ratios_are_those_of_pairs() -> None:
    """A slow minute of the machine, which strikes both of a pair, does not show."""
    ours = [sample(seconds) for seconds in (1, 5, 1, 1, 1, 1)]
    theirs = [sample(seconds) for seconds in (0.5, 2.5, 0.5, 0.5, 0.4, 0.5)]
    rate, p50 = paired(ours, theirs)
    assert (rate.median, rate.low, rate.high, rate.pairs) == pytest.approx((2, 2, 2.5, 6))
    assert (p50.median, p50.low, p50.high) == pytest.approx((0.5, 0.4, 0.5))
    assert not rate.within_noise


def test_a_pair_of_which_one_was_interrupted_or_failed_does_not_count() -> None:
    ours = [sample(1), sample(1), sample(1, complete=False)]
    rate, _ = paired(ours, [sample(0.5), sample(1, calls=0), sample(9)])
    assert (rate.pairs, rate.median) == (1, 2)
    assert paired([], []) == []


@pytest.mark.parametrize(
    ("low", "high", "pairs", "noise"), [(0.9, 1.1, 6, True), (1.1, 1.2, 6, False), (1.1, 1.2, 5, True)]
)
def test_a_difference_counts_if_enough_pairs_agree(low: float, high: float, pairs: int, noise: bool) -> None:
    assert Ratio(1, "rate", (low + high) / 2, low, high, pairs).within_noise is noise


def test_a_server_can_not_invent_kinds_of_errors_without_end() -> None:
    found = Sample(1)
    for number in range(1000):
        found.failed(f"error {number}")
    assert len(found.errors) == 21
    assert found.errors.total() == 1000


# --- the choice of tools ----------------------------------------------------------------------------------------------


def tool(name: str, hints: ToolAnnotations | None = READS, **properties: object) -> Tool:
    return Tool(name=name, input_schema={"type": "object", "properties": properties}, annotations=hints)


def named(*tools: Tool) -> dict[str, Tool]:
    return {each.name: each for each in tools}


def test_only_what_is_read_only_is_called_unless_it_is_named() -> None:
    offered = named(
        tool("reads"),
        tool("writes", None),
        tool("unsure", ToolAnnotations()),
        tool("contradicts", ToolAnnotations(read_only_hint=True, destructive_hint=True)),
    )
    plan = choose([offered], [], 0)
    assert (plan.tools, plan.writing) == (["reads"], ())
    assert plan.notes == [
        "not called, since not annotated as read-only (name those to call with --tool): writes, unsure, contradicts"
    ]
    plan = choose([offered], [NamedTool("writes", {"x": 1}), NamedTool("reads")], 0)
    assert (plan.tools, plan.writing) == (["writes", "reads"], ("writes",))
    assert plan.calls[0].arguments == {"x": 1}


def test_what_only_one_server_has_is_not_called() -> None:
    plan = choose([named(tool("a"), tool("b")), named(tool("a", None), tool("b"), tool("c"))], [], 0)
    assert plan.tools == ["b"]
    assert plan.notes[0] == "not called, since only one of the servers has them: c"


def test_a_tool_without_possible_arguments_is_left_out_with_the_reason() -> None:
    plan = choose([named(Tool(name="x", input_schema={"type": "object", "not": {}}, annotations=READS))], [], 0)
    assert plan.calls == []
    assert plan.notes[0].startswith("the tool 'x' is not called: no arguments can be generated from its schema: ")


def test_a_server_with_many_tools_has_some_called() -> None:
    plan = choose([named(*(tool(f"t{number}") for number in range(30)))], [], 0)
    assert len(plan.tools) == 20
    assert plan.notes[0].startswith("not called, since 20 others are: t20, t21")


def test_the_same_seed_makes_the_same_arguments() -> None:
    offered = named(tool("x", READS, a={"type": "integer"}, b={"type": "string"}))
    first, second, other = ([call.arguments for call in choose([offered], [], seed).calls] for seed in (1, 1, 2))
    assert first == second
    assert first != other


# --- the ladder -------------------------------------------------------------------------------------------------------


class Shop:
    """A server whose tools take exact times, and what it has seen."""

    def __init__(self, seconds: float = 0.1, *, at_once: int | None = None) -> None:
        self.server = Server("shop", version="1.0.0", expose_errors=True)
        self.called = self.running = self.most = 0
        room = trio.CapacityLimiter(math.inf if at_once is None else at_once)

        async def work() -> str:
            self.called += 1
            self.running += 1
            self.most = max(self.most, self.running)
            try:
                async with room:
                    await trio.sleep(seconds)
            finally:
                self.running -= 1
            return "done"

        self.server.add_tool(work, annotations=READS)


@contextlib.asynccontextmanager
async def bench_of(
    *servers: Server, tools: Sequence[str] = ("work",), mode: str = "auto", **terms: object
) -> AsyncIterator[Bench]:
    async with contextlib.AsyncExitStack() as stack:
        sides = [Side(await stack.enter_async_context(Client(server, mode=mode))) for server in servers]
        plan = Plan([ToolCall(each, {}) for each in tools])
        yield Bench(sides, plan, BenchTerms(**terms))  # type: ignore[arg-type]


def reported(bench: Bench) -> BenchReport:
    return report_of(bench, [Measured(name, "", "memory", "x") for name in "AB"[: len(bench.sides)]])


async def test_a_closed_loop_has_exact_figures(autojump_clock: MockClock) -> None:
    shop = Shop(0.125)
    async with bench_of(shop.server, ladder=(1, 4), seconds=2.0) as bench:
        await bench.run()
    report = reported(bench)
    (server,) = report.servers
    assert [(step.in_flight, step.calls, step.errors) for step in server.steps] == [(1, 16, {}), (4, 64, {})]
    assert [step.rate for step in server.steps] == pytest.approx([8, 32])
    for each in server.steps:
        assert (each.p50, each.p99, each.worst, each.complete) == (0.125, 0.125, 0.125, True)
    assert (report.ended, report.failed) == ("complete", 0)
    # What may follow is about the processor, which a virtual clock keeps busy.
    assert server.bends.startswith("The throughput curve does not bend up to 4 in flight")
    # One to try, a quarter of each step to warm up, and what was measured.
    assert (shop.called, shop.most) == (1 + 4 + 16 + 16 + 64, 4)


async def test_a_server_that_does_four_at_once_bends_there(autojump_clock: MockClock) -> None:
    async with bench_of(Shop(0.125, at_once=4).server, ladder=(1, 4, 16), seconds=2.0) as bench:
        await bench.run()
    (server,) = reported(bench).servers
    assert [step.rate for step in server.steps] == pytest.approx([8, 32, 32])
    assert server.bends.startswith(
        "The throughput curve bends after 4 in flight: 16 give +0% calls a second, and the median call takes 4.0 times"
        " as long"
    )


async def test_two_servers_are_compared_in_turns(autojump_clock: MockClock) -> None:
    order = []
    shops = Shop(0.25), Shop(0.125)
    async with bench_of(*(shop.server for shop in shops), ladder=(1, 4), seconds=3.0) as bench:
        take = bench.sides[0].steps, bench.sides[1].steps

        async def watch() -> None:
            seen = [0, 0]
            while True:
                counts = [sum(map(len, steps)) for steps in take]
                for at in (0, 1):
                    order.extend("AB"[at] * (counts[at] - seen[at]))
                seen = counts
                await trio.sleep(0.1)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch)
            await bench.run()
            nursery.cancel_scope.cancel()
    report = reported(bench)
    assert "".join(order) == 2 * (3 * "ABBA")
    assert [(ratio.in_flight, ratio.of, ratio.pairs) for ratio in report.ratios] == [
        (1, "rate", 6),
        (1, "p50", 6),
        (4, "rate", 6),
        (4, "p50", 6),
    ]
    for ratio in report.ratios:
        wanted = 2 if ratio.of == "rate" else 0.5
        assert (ratio.median, ratio.low, ratio.high) == pytest.approx((wanted, wanted, wanted))
        assert not ratio.within_noise
    text = table(report)
    assert "  1  2.00 (2.00 to 2.00)  more  0.50 (0.50 to 0.50)  shorter\n" in text


async def test_no_more_calls_are_made_than_allowed(autojump_clock: MockClock) -> None:
    """What is left is shared among the steps, and a step that can't have a call for each worker is not made."""
    shop = Shop(0.001)
    async with bench_of(shop.server, ladder=(1, 4, 16), seconds=10.0, max_calls=200) as bench:
        await bench.run()
    report = reported(bench)
    assert shop.called <= 200
    assert [(step.complete, step.cut) for step in report.servers[0].steps] == [(True, True)] * 3
    assert report.ending == "All steps were measured. Cut short by --max-calls: 1, 4, 16 in flight."

    shop = Shop(0.001)
    async with bench_of(shop.server, ladder=(1, 4, 64), seconds=10.0, max_calls=60) as bench:
        await bench.run()
    assert bench.ended == "calls"
    assert shop.called <= 60
    assert [step.in_flight for step in reported(bench).servers[0].steps] == [1, 4]


async def test_the_trial_keeps_to_the_number_of_calls_too(autojump_clock: MockClock) -> None:
    shop = Shop()
    async with bench_of(shop.server, tools=["work"] * 8, max_calls=3) as bench:
        await bench.run()
    assert (bench.ended, shop.called) == ("calls", 3)


async def test_it_ends_when_its_time_is_up_with_what_it_has(autojump_clock: MockClock) -> None:
    async with bench_of(Shop(0.5).server, ladder=(1, 4), seconds=8.0, max_time=16.25) as bench:
        await bench.run()
        assert trio.current_time() == pytest.approx(16.25)
    first, second = reported(bench).servers[0].steps
    assert (first.calls, first.complete, second.complete) == (16, True, False)
    # One call to try, 2 s to warm up, 8 s of the first step, 2 s to warm up; then 3.75 s, in which 7 calls end.
    assert (bench.ended, second.calls) == ("time", 4 * 7)


async def test_a_cancelled_benchmark_has_what_was_measured_until_then(autojump_clock: MockClock) -> None:
    async with bench_of(Shop(0.5).server, ladder=(1,), seconds=100.0) as bench:
        with trio.move_on_after(0.5 + 25 + 10.25) as scope:
            await bench.run()
        assert scope.cancelled_caught
    report = reported(bench)
    assert (report.ended, report.servers[0].steps[0].calls) == ("interrupted", 20)
    assert report.servers[0].steps[0].rate == pytest.approx(2.0)


async def test_a_step_in_which_nothing_responds_ends(autojump_clock: MockClock) -> None:
    """Every call has a timeout, and no further step is made."""
    server, called = Server("stuck"), 0

    @server.tool
    async def work() -> None:
        nonlocal called
        called += 1
        if called > 101:
            await trio.sleep_forever()
        await trio.sleep(0.5)

    async with bench_of(server, ladder=(1, 4, 16), seconds=40.0, timeout=3.0) as bench:
        await bench.run()
    report = reported(bench)
    assert bench.ended == "stuck"
    assert [(step.calls, step.errors) for step in report.servers[0].steps] == [(80, {}), (0, {"timeout": 12})]


async def test_no_step_is_made_after_one_in_which_every_call_failed(autojump_clock: MockClock) -> None:
    server, called = Server("fails"), 0

    @server.tool
    async def work() -> None:
        nonlocal called
        called += 1
        await trio.sleep(0.5)
        if called > 1:
            raise ToolError("no")

    async with bench_of(server, ladder=(1, 4), seconds=4.0) as bench:
        await bench.run()
    assert (bench.ended, [step.in_flight for step in reported(bench).servers[0].steps]) == ("failing", [1])


async def test_failures_are_counted_by_kind_and_the_first_is_quoted(autojump_clock: MockClock) -> None:
    server, called = Server("fails"), 0

    @server.tool
    async def work() -> str:
        nonlocal called
        called += 1
        await trio.sleep(0.5)
        if called > 1 and called % 2:
            raise ToolError("odd\n\x1b[31m" + "x" * 1000)
        return "even"

    async with bench_of(server, ladder=(1,), seconds=8.0) as bench:
        await bench.run()
    report = reported(bench)
    assert report.servers[0].steps[0].errors == {"tool error": 10}
    # Of those that failed, two warmed up. None has a latency, or counts as a call.
    assert (report.servers[0].steps[0].calls, report.servers[0].steps[0].rate) == (8, pytest.approx(1.0))
    shown = table(report)
    assert "\n1 in flight: 10 tool error\nthe first tool error: odd \\x1b[31mxxx" in shown
    assert "x" * 200 not in shown
    assert shown.endswith("All steps were measured. 10 calls failed.\n")


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_a_tool_that_asks_is_dropped_at_the_trial(mode: str, autojump_clock: MockClock) -> None:
    shop = Shop()

    @shop.server.tool
    async def asks(ctx: Context) -> str:
        return str(await ctx.elicit("Which?", Choice))

    async with bench_of(shop.server, tools=("asks", "work"), mode=mode, ladder=(1,), seconds=1.0) as bench:
        await bench.run()
    assert (bench.ended, bench.plan.tools, reported(bench).failed) == ("complete", ["work"], 0)
    (note,) = bench.plan.notes
    assert note.startswith("the tool 'asks' is not called any more: ")


async def test_a_tool_that_asks_later_is_dropped_then(autojump_clock: MockClock) -> None:
    server, called = Server("asks"), 0

    @server.tool
    async def work(ctx: Context) -> str:
        nonlocal called
        called += 1
        await trio.sleep(0.5)
        return "no question" if called < 8 else str(await ctx.elicit("Which?", Choice))

    async with bench_of(server, ladder=(1, 2), seconds=4.0) as bench:
        await bench.run()
    report = reported(bench)
    assert (report.ended, report.tools) == ("no tools", ())
    assert (report.servers[0].steps[0].calls, report.servers[0].steps[0].errors) == (4, {"asks for input": 1})
    assert report.notes == ("the tool 'work' is not called any more: it asks for input, which a benchmark can't give",)


async def test_a_server_that_is_lost_ends_it_with_the_reason(autojump_clock: MockClock) -> None:
    shop = Shop(0.5)
    async with bench_of(shop.server, ladder=(1, 4), seconds=8.0) as bench:

        async def close() -> None:
            await trio.sleep(16.25)
            await bench.sides[0].client.aclose()

        async with trio.open_nursery() as nursery:
            nursery.start_soon(close)
            await bench.run()
    report = reported(bench)
    assert bench.ended == "lost"
    assert isinstance(bench.error, SessionClosed)
    first, second = report.servers[0].steps
    # The calls in flight, and as many more as it takes to be sure.
    assert (first.calls, first.errors, second.calls, second.errors) == (16, {}, 28, {"lost connection": 15})
    assert str(bench.error) in report.ending


async def test_tools_take_turns_and_have_figures_of_their_own(autojump_clock: MockClock) -> None:
    shop = Shop(0.25)

    @shop.server.tool
    async def longer() -> str:
        await trio.sleep(0.75)
        return "done"

    async with bench_of(shop.server, tools=("work", "longer"), ladder=(1,), seconds=4.0) as bench:
        await bench.run()
    report = reported(bench)
    assert [(each.name, each.p50) for each in report.tools] == [("work", (0.25,)), ("longer", (0.75,))]
    assert "\n  work       250     250\n  longer     750     750\n" in table(report)


def test_a_page_holds_what_a_server_says_as_text() -> None:
    """Names come from a peer: nothing in them is markup, and nothing is hidden."""
    evil = "</title><script>alert(1)</script>\u202e"
    server = Measured(evil, evil, "stdio", "2026-07-28", (step(1, 100, 0.01), step(4, 110, 0.04)))
    tools = tuple(ToolFigures(name, (0.1, None), (0.1, None)) for name in (evil, "x"))
    report = BenchReport((server, server), BenchTerms(), tools, (), (evil,), {evil: evil}, "lost", evil)
    for text in (html(report), table(report)):
        assert "\u202e" not in text
    assert "<script" not in html(report)
    assert "default-src 'none'" in html(report)
