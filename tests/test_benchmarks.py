"""The benchmarks run, and check what they measure. Their figures are no business of the tests."""

from __future__ import annotations

import json
import re
import signal
import socket
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from benchmarks import against, peers, profile, publish, transports
from benchmarks.__main__ import main as benchmarks_main
from benchmarks.load.http import Connection
from benchmarks.measure.samples import Comparison, Group, Target, Times, interval_of_median
from benchmarks.measure.throughput import groups
from benchmarks.options import Options
from benchmarks.report import formats, pictures
from benchmarks.report.earlier import Row, compare, verdict
from benchmarks.report.plan import TYPICAL, Plan, about
from benchmarks.scenarios import SCENARIOS
from benchmarks.scenarios.signals import Leaving

ROOT = Path(__file__).parent.parent


def run(*arguments: str, module: str = "benchmarks") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)


def labels(report: dict[str, Any]) -> dict[str, set[str]]:
    """Return the contenders of each scenario."""
    found: dict[str, set[str]] = {}
    for group in report["groups"]:
        found.setdefault(group["scenario"], set()).update(group["samples"])
    return found


@pytest.mark.long
def test_every_contender_gives_right_answers(tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    scenarios = [each for each in SCENARIOS if each not in ("rss", "import", "signals", "hops", "replicas")]
    installing = run("--install")
    assert installing.returncode == 0, installing.stderr
    done = run(*scenarios, "--seconds", "0.02", "--rounds", "1", "--before", str(ROOT), "--json", str(report))
    assert done.returncode == 0, done.stderr
    assert "left out" not in done.stderr
    for scenario in scenarios:
        assert f"== {scenario}:" in done.stdout
    rows = labels(json.loads(report.read_text()))
    for scenario in ("stdio", "http", "http-client", "startup"):
        assert {"before, modern", "TypeScript v2, modern"} <= rows[scenario]
    for scenario, label in (("stdio", "FastMCP, modern"), ("http", "FastMCP on uvicorn, modern, JSON")):
        assert label in rows[scenario]
    assert "before, modern, encoded" in rows["memory"]
    assert "before, 1 MiB" in rows["payloads"]
    figures = transports.tables(json.loads(report.read_text()))
    for row in ("Unix socket / stdio", "WebSocket / bare trio-websocket echo", "client of a list, WebSocket first /"):
        assert f"| {row}" in figures
    assert transports.put_into(f"before {transports.BEGIN} old {transports.END} after", "new") == (
        f"before {transports.BEGIN}\n\nnew\n\n{transports.END} after"
    )
    assert transports.BEGIN in transports.PAGE.read_text()


@pytest.mark.interop
def test_the_official_client_and_server_are_measured_in_both_eras() -> None:
    """A quick run leaves the legacy era out, so the rows that need it have a run of their own.

    `test_every_contender_gives_right_answers` runs the others.
    """
    servers = ("ours on hypercorn, modern, new heads", "ours on hypercorn, legacy", "official on uvicorn, legacy, as")
    clients = ("ours, legacy", "ours, modern, events", "official, modern, events", "official on Trio, legacy")
    rows = servers + clients
    only = [argument for row in rows for argument in ("--only", row)]
    done = run("http", "http-client", "--seconds", "0.05", "--rounds", "2", *only)
    assert done.returncode == 0, done.stderr
    assert "TypeScript v" not in done.stdout
    assert "ours, modern, signed in" not in done.stdout
    for row in rows:
        assert row in done.stdout


@pytest.mark.again
@pytest.mark.interop
def test_the_peers_of_other_languages_are_measured_in_both_eras() -> None:
    installing = run("--install")
    assert installing.returncode == 0, installing.stderr
    only = ("--only", "TypeScript", "--only", "FastMCP")
    done = run("stdio", "http", "http-client", "--seconds", "0.05", "--rounds", "2", *only)
    assert done.returncode == 0, done.stderr
    for label in ("TypeScript v2, legacy", "TypeScript v1, legacy", "FastMCP, legacy", "FastMCP on uvicorn, legacy"):
        assert label in done.stdout


@pytest.mark.again
@pytest.mark.interop
def test_proxies_are_measured_beside_the_call_itself_and_those_of_the_peers(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    installing = run("--install")
    assert installing.returncode == 0, installing.stderr
    done = run("proxies", "--seconds", "0.05", "--rounds", "1", "--json", str(file))
    assert done.returncode == 0, done.stderr
    groups = {group["case"]: group["samples"] for group in json.loads(file.read_text())["groups"]}
    ours = {f"ours, {way}" for way in ("the call itself", "a mount", "ProxyServer")}
    fastmcp = {f"FastMCP, {way}" for way in ("the call itself", "a mount", "create_proxy")}
    official = {f"official, {way}" for way in ("the call itself", "a forwarding server")}
    for case in ("sequential", "64 in flight"):
        assert groups[f"add(a, b) over HTTP, {case}"].keys() == ours | fastmcp | official
        assert groups[f"add(a, b) in memory, {case}"].keys() == ours | fastmcp
        if sys.platform == "linux":
            costs = groups[f"add(a, b) over HTTP, {case}: CPU time of the processes"]
            assert costs.keys() == ours | fastmcp | official


@pytest.mark.parametrize(
    ("main", "arguments"),
    [
        (benchmarks_main, "memroy"),
        (benchmarks_main, "--seconds soon"),
        (benchmarks_main, "--rounds 0"),
        (benchmarks_main, "--before nowhere"),
        (benchmarks_main, "--against nowhere.json"),
        (benchmarks_main, "--against README.md"),
        (benchmarks_main, "--against tests/interop/package.json"),
        (benchmarks_main, "--quick --smoke"),
        (against.main, ""),
        (against.main, "nowhere"),
        (against.main, ". --pairs 0"),
        (against.main, ". --calls 1"),
        (against.main, ". --rows stdoi"),
        (profile.main, "stdio"),
        (profile.main, "memory --in-flight 0"),
        (profile.main, "memory --seconds -1"),
        (profile.main, "memory --contender ours"),
        (publish.main, "nowhere.json"),
        (transports.main, "--seconds soon"),
        (transports.main, "--page nowhere.md"),
    ],
)
def test_wrong_arguments_get_one_line_and_status_2(
    main: Callable[[list[str]], object],
    arguments: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(ROOT)
    with pytest.raises(SystemExit) as exited:
        main(arguments.split())
    assert exited.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("benchmarks: ")


@pytest.mark.again
def test_cpu_time_stands_beside_calls_per_second_and_runs_are_compared(tmp_path: Path) -> None:
    """The JSON has a format, all samples, and ratios that a later run is judged by."""
    file = tmp_path / "first.json"
    done = run("memory", "--smoke", "--rounds", "2", "--json", str(file))
    assert done.returncode == 0, done.stderr
    assert "1 scenario, about" in done.stderr
    report = json.loads(file.read_text())
    assert report["format"] == 2
    assert {"mcp", "node", "fastmcp", "trio-mcp"} <= report["versions"].keys()
    cases = {group["case"]: group for group in report["groups"]}
    rate, cost = cases["add(a, b), sequential"], cases["add(a, b), sequential: CPU time of the process"]
    assert (rate["unit"], cost["unit"]) == ("calls/s", "µs/call")
    assert rate["samples"].keys() == cost["samples"].keys()
    ratios = [ratio for group in report["groups"] for ratio in group["ratios"]]
    for ratio in ratios:
        assert ratio["better"] == "higher"
        ratio["values"] = [value * 100 for value in ratio["values"]]
    file.write_text(json.dumps(report))  # as if it had been a hundred times as good
    done = run("memory", "--smoke", "--rounds", "2", "--against", str(file))
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("WORSE") == len(ratios)
    assert f"{len(ratios)} of {len(ratios)} ratios" in done.stdout


def _row(better: str, then: list[float], now: list[float]) -> Row:
    return Row("row", better, then, now)


def test_a_sample_belongs_to_its_case_alone() -> None:
    """What warms a contender up for the next case is not a sample of the last one."""

    class Contender:
        def __init__(self) -> None:
            self.measured = Times()

        def throughput(self, in_flight: int, seconds: float) -> float:
            self.measured.add([in_flight], in_flight)
            return in_flight

    options = Options(seconds=1, rounds=3, quick=False, explain=False, before=None, progress=lambda text: None)
    found = list(groups("some", {"a": Contender()}, {1: "one", 64: "many"}, [], options, times=True))
    for group in found:
        assert len(group.samples["a"]) == 3, group.case
        assert len(set(group.samples["a"])) == 1, group.case


def test_a_row_is_worse_if_its_median_is_by_more_than_5_percent_and_the_intervals_do_not_overlap() -> None:
    assert _row("higher", [1.0, 1.1, 1.2], [0.7, 0.8, 0.9]).worse
    assert not _row("lower", [1.0, 1.1, 1.2], [0.7, 0.8, 0.9]).worse
    assert _row("lower", [0.7, 0.8, 0.9], [1.0, 1.1, 1.2]).worse
    assert not _row("higher", [1.0, 1.1, 1.2], [0.7, 0.8, 1.0]).worse  # the intervals touch
    assert not _row("higher", [1.0, 1.0, 1.0], [0.96, 0.96, 0.96]).worse  # they are apart, but by 4 %
    # Of six samples or more it is the 95 % interval of the median that counts, not the range.
    assert _row("higher", [1.0] * 8 + [0.1], [0.5] * 8 + [1.5]).worse


def _report_of(left: str, right: str, values: list[float]) -> dict[str, Any]:
    samples = {left: values, right: [1.0] * len(values)}
    group = Group("memory", "sequential", "calls/s", samples, [Comparison(left, right)])
    return formats.as_json([group], {"date": "then"})


def test_only_what_both_runs_have_and_what_is_ours_is_compared() -> None:
    then = _report_of("ours, modern", "official, modern", [5.0, 5.1])
    now = _report_of("ours, modern", "official, modern", [2.0, 2.1])
    rows = compare(then, now)
    assert [(row.name, row.worse) for row in rows] == [("memory: sequential: ours, modern / official, modern", True)]
    assert verdict(rows, then).startswith("1 of 1 ratios that the run of then has, too, is worse")
    assert compare(_report_of("ours, legacy", "official, modern", [5.0]), now) == []
    assert compare(_report_of("bare h11", "cat", [5.0]), _report_of("bare h11", "cat", [1.0])) == []


def test_a_ratio_of_costs_is_better_the_other_way_round() -> None:
    samples = {"ours": [1.0], "official": [2.0]}
    plain = Comparison("ours", "official", calls={1: 2}, cpu={1: 3})
    turned = plain.by_cpu(1)
    assert turned == Comparison("official", "ours", Target(">=", 3), about_right=True)
    assert plain.by_calls(1).target == Target(">=", 2)
    assert plain.by_calls(64).target is None
    for unit, comparison, better in (
        ("calls/s", plain, "higher"),
        ("ms", plain, "lower"),
        ("µs/call", turned, "higher"),
    ):
        assert Group("scenario", "case", unit, samples).better(comparison) == better


def test_a_run_knows_how_long_each_scenario_takes() -> None:
    assert TYPICAL.keys() == SCENARIOS.keys()
    # as benchmarks/README.md says
    assert about(Plan(list(TYPICAL), quick=False, scale=1).left()) == "about 42 minutes"
    assert about(Plan(list(TYPICAL), quick=True, scale=1).left()) == "about 6 minutes"


@pytest.mark.redis
def test_replicas_are_measured_and_a_call_is_no_round_trip_or_two(tmp_path: Path) -> None:
    file = tmp_path / "report.json"
    done = run("replicas", "--smoke", "--json", str(file))
    assert done.returncode == 0, done.stderr
    groups = {group["case"]: group for group in json.loads(file.read_text())["groups"]}
    for case, trips in (("modern", 0), ("in a session", 2)):
        (counts,) = groups[f"add(a, b), {case}: round trips to the engine"]["samples"].values()
        assert min(counts) == trips
    goals = [group["targets"] or any(ratio["target"] for ratio in group["ratios"]) for group in groups.values()]
    assert sum(map(bool, goals)) == 14
    assert all(spread for group in groups.values() for spread in group["samples"].values())


def test_without_an_engine_replicas_are_left_out_in_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    said: list[str] = []
    assert list(SCENARIOS["replicas"](Options(0.02, 1, True, False, None, said.append))) == []
    assert len(said) == 1
    assert "left out" in said[0]


def test_a_server_gets_its_sigint_though_the_run_ignores_it() -> None:
    """``nohup python -m benchmarks &`` ignores SIGINT, and what is ignored is inherited."""
    server = Leaving("ours", cap=60)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        server.on_sigint()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    assert (server.killed, server.exit_codes) == (0, {130})


def test_the_time_to_go_follows_the_pace_of_what_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0.0, 30.0])
    monkeypatch.setattr("benchmarks.report.plan.time.perf_counter", lambda: next(clock))
    plan = Plan(["fast", "slow"], quick=False, scale=1, typical={"fast": (10, 1), "slow": (100, 10)})
    assert plan.left() == 110
    plan.done("fast")  # it took three times as long as on a quiet machine
    assert plan.left() == 300


CHUNKED = {
    "application/json": (rb'{"id":1,"result":"\r\n0\r\n\r\n"}', 20),
    "text/event-stream": (b'event: message\ndata: {"id":1,"result":"\\r\\n0\\r\\n\\r\\n"}\n\n', 1000),
}


@pytest.mark.parametrize("kind", CHUNKED)
def test_the_load_generator_reads_bodies_in_chunks(kind: str) -> None:
    """RFC 9112 section 7.1: a chunk is as long as its size says. It may arrive in any pieces."""
    body, size = CHUNKED[kind]
    parts = [body[place : place + size] for place in range(0, len(body), size)]
    chunks = b"".join(b"%x\r\n%b\r\n" % (len(part), part) for part in [*parts, b""])
    head = f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nTransfer-Encoding: chunked\r\n\r\n".encode()
    with socket.create_server(("127.0.0.1", 0)) as listener, closing(Connection(listener.getsockname())) as connection:
        peer, _ = listener.accept()
        with peer:
            for piece in (head[:20], head[20:] + chunks[:7]):
                peer.sendall(piece)
                assert connection.take() is None
            peer.sendall(chunks[7:])
            answer = connection.answer()
    assert json.loads(answer) == {"id": 1, "result": "\r\n0\r\n\r\n"}


def test_what_an_installation_lacks_is_said_and_left_out(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("benchmarks.peers.installs.CACHE", tmp_path)
    assert peers.missing() == [peers.TYPESCRIPT, peers.FASTMCP]
    assert peers.typescript("stdio", "v2") is None
    assert peers.fastmcp() is None
    assert set(peers.versions().values()) == {"not installed"}


def test_a_checkout_is_compared_with_itself(tmp_path: Path) -> None:
    report, table = tmp_path / "pairs.json", tmp_path / "pairs.md"
    chosen = ["--pairs", "1", "--calls", "64", "--rows", "in-memory-modern"]
    done = run(str(ROOT), *chosen, "--json", str(report), "--markdown", str(table), module="benchmarks.against")
    if not sys.platform.startswith("linux"):
        assert done.returncode == 1
        assert "on Linux only" in done.stderr
        return
    assert done.returncode == 0, done.stderr
    rows = json.loads(report.read_text())["rows"]
    assert [row["row"] for row in rows] == ["in-memory-modern: sequential", "in-memory-modern: 64 in flight"]
    for row in rows:
        assert row["ratios"] == [row["after"][0] / row["before"][0]]
        assert row["verdict"] == "too few pairs"
        assert f"| {row['row']} |" in table.read_text()
        assert row["row"] in done.stdout


def test_the_interval_of_the_median_comes_from_the_order_of_the_values() -> None:
    assert interval_of_median(range(5)) is None
    assert interval_of_median([5, 3, 1, 2, 4, 0]) == (0, 5)
    assert interval_of_median(range(1, 21)) == (6, 15)


def test_the_page_and_the_pictures_come_from_the_same_run() -> None:
    """Figures of two runs can't be compared."""
    report = json.loads(publish.REPORT.read_text())
    page = publish.PAGE.read_text()
    assert publish.put_into(page, report) == page
    for name in pictures.PICTURES:
        assert f"{{drawing}} images/performance/{name}\n" in page
        for theme in pictures.THEMES:
            for size in pictures.SIZES:
                assert pictures.described(report) in (publish.IMAGES / f"{name}{size}-{theme}.svg").read_text()


def test_the_scenarios_of_another_run_take_the_place_of_earlier_ones_and_say_when_they_were_measured() -> None:
    report = json.loads(publish.REPORT.read_text())
    group = Group(
        "memory", "alone", "µs", {"ours": [7.5]}, value_targets={"ours": Target("<=", 8)}, notes=["by itself"]
    )
    around = {key: value for key, value in report.items() if key not in ("groups", "runs")}
    whole = publish.added(report, formats.as_json([group], {**around, "date": "another day"}))
    others = [each for each in report["groups"] if each["scenario"] != "memory"]
    assert [each for each in whole["groups"] if each["scenario"] != "memory"] == others
    assert publish.added(whole, formats.as_json([group], {**around, "date": "another day"})) == whole
    page = publish.put_into(publish.PAGE.read_text(), whole)
    table = re.search("(?s)<summary>memory: 1 of 1 goals met</summary>.*?</details>", page)
    assert table is not None
    assert "Measured on another day" in table[0]
    assert "| alone | ours | 7.50 µs | 7.50 to 7.50 | <= 8: met |" in table[0]
    assert "- alone: by itself" in table[0]
    assert page.count("another day") == 1


def test_every_figure_of_a_report_can_be_printed(capsys: pytest.CaptureFixture[str]) -> None:
    report = json.loads(publish.REPORT.read_text())
    assert publish.main([str(publish.REPORT), "--tables"]) == 0
    printed = capsys.readouterr().out
    for group in report["groups"]:
        assert f"## {group['scenario']}: {group['case']}\n" in printed
        assert all(f"| {label} |" in printed for label in group["samples"])


def test_every_number_of_the_pictures_has_its_unit() -> None:
    """A reader of the landing page sees the pictures and not the text beside the figures."""
    for picture in publish.IMAGES.iterdir():
        texts = re.findall(r"(?<=>)[^<>\n]+(?=</text>)", picture.read_text())
        # A number alone is on an axis that says what it counts.
        bare = [text for text in texts if re.fullmatch(r" *[\d,.]+", text)]
        assert not bare or {"calls in flight", "MiB in one message"} & set(texts), f"{picture.name}: {bare}"


def _shown(picture: Path) -> Counter[str]:
    """Return the texts and the colours of a picture; where they are depends on the version of matplotlib."""
    return Counter(re.findall(r"(?<=>)[^<>\n]+(?=</text>)|(?:fill|stroke): #\w+", picture.read_text()))


@pytest.mark.again  # needs the extra `benchmarks`
def test_a_run_that_is_published_again_gives_the_same_page_and_pictures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    committed = {name: getattr(publish, name) for name in ("REPORT", "PAGE", "IMAGES")}
    for name, path in committed.items():
        monkeypatch.setattr(publish, name, tmp_path / path.name)
    monkeypatch.setattr(publish, "ROOT", tmp_path)
    publish.IMAGES.mkdir()
    publish.PAGE.write_text(f"{publish.BEGIN} old {publish.END}")
    assert publish.main([str(committed["REPORT"])]) == 0
    assert publish.REPORT.read_bytes() == committed["REPORT"].read_bytes()
    assert publish.PAGE.read_text() in committed["PAGE"].read_text()
    drawn = {file.name: _shown(file) for file in publish.IMAGES.iterdir()}
    assert drawn == {file.name: _shown(file) for file in committed["IMAGES"].iterdir()}
    assert all(shown.total() > 20 for shown in drawn.values())
