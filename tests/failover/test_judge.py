"""The judge of `tests.failover` finds each broken promise: a run that can't fail would prove nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.failover.judge import Judge
from tests.failover.load import Call
from tests.failover.run import BACK, Plan, Run


def call(kind: str, outcome: str, began: float = 10, ended: float = 11, way: int = 0) -> Call:
    return Call("c", kind, began, ended, outcome, way=f"http://127.0.0.1:{way}/mcp" if way else "")


# Ways 1 and 2 are up, but for a break of the first at 20 s; from 40 s all is calm, from 50 s quiet; 60 s is the end.
ROWS = {
    "": [
        (call("act", "succeeded"), 1),
        (call("fail", "succeeded"), 1),
        (call("act", "failed"), 0),
        (call("act", "unknown", 19, 21, way=1), 0),
        (call("act", "unknown", 19, 21, way=1), 1),
        (call("act again", "succeeded"), 2),
        (call("put", "succeeded"), 3),
        (call("look", "succeeded"), 0),
    ],
    "the response is wrong": [(call("look", "wrong"), 0), (call("act", "wrong"), 1)],
    "safe, and it unknown, although a way was up": [(call("look", "unknown", 10, 39), 0)],
    "safe, and it failed, although a way was up": [(call("put", "failed", 10, 39), 1), (call("look", "failed"), 0)],
    "it succeeded, and the ledger does not have it": [(call("act", "succeeded"), 0), (call("put", "succeeded"), 0)],
    "it may not be repeated, and the ledger has it 2 times": [
        (call("act", "succeeded"), 2),
        (call("act", "unknown", 19, 21, way=1), 2),
    ],
    "it failed, and the ledger has it": [(call("act", "failed"), 1)],
    "nothing has broken its way": [(call("act", "unknown", 19, 21, way=2), 0)],
    "a way was up": [(call("act", "unknown", 10, 39), 0)],
    "all ways were up, and each client on its best": [(call("fail", "failed", 51, 52), 0)],
}


def judged(tmp_path: Path, *calls: tuple[Call, int]) -> tuple[Run, Judge]:
    out = tmp_path / "out"
    out.mkdir()
    run = Run(Plan(minutes=1, seed=1, out=out, rate=2, every=1, longest=1))
    for number, way in enumerate(run.ways.values(), 1):
        way.release()  # none is started
        way.reached, way.up = number, [(0, 20), (20, 60)] if number == 1 else [(0, 60)] if number == 2 else []
    run.calmed, run.quiet, run.ended = 40, 50, 60
    (out / "effects.log").write_text("".join(f"{each.name} did\n" * times for each, times in calls))
    for side in run.sides:
        # What keeps the other promises: a success each half second, and each change told at once.
        side.load.calls += [Call("x", "look", at / 2, at / 2, "succeeded") for at in range(120)]
        side.heard += [1.0, 45.0]
    run.changes += [1.0, 45.0]
    run.sides[0].load.calls += [each for each, _ in calls]
    return run, Judge(run)


@pytest.mark.parametrize(("promise", "row"), [(promise, row) for promise, rows in ROWS.items() for row in rows])
def test_what_a_caller_was_told_is_compared_with_the_ledger(
    promise: str, row: tuple[Call, int], tmp_path: Path
) -> None:
    broken = list(judged(tmp_path, row)[1].broken())
    assert len(broken) == bool(promise), broken
    assert all(promise in line for line in broken)


def test_what_a_client_has_noticed_is_compared_with_the_times_of_the_ways(tmp_path: Path) -> None:
    run, _ = judged(tmp_path)
    legacy, modern = run.sides
    legacy.load.calls = [each for each in legacy.load.calls if not 25 < each.ended < 35]
    legacy.heard.remove(1.0)
    modern.errors.append(ValueError("odd"))
    modern.lost.append("gone")
    run.quiet = run.calmed + BACK
    modern.load.calls += [Call("y", "act", 1, 2, "unknown") for _ in range(20)]
    expected = (
        "calls are unknown",
        "legacy: no safe call succeeded from 25.00 to 35.00 s; a way was up for 10.0 s",
        "legacy: it was not told of a change from 1.00 to 45.00 s",
        "legacy: not back on its best way",
        "modern: not back on its best way",
        "modern: a subscription was lost: gone",
        "modern: reported 1 times: odd",
    )
    broken = list(Judge(run).broken())
    assert len(broken) == len(expected), broken
    assert all(any(part in line for line in broken) for part in expected)
