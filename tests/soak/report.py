"""The promises, checked against the records; and the figures."""

from __future__ import annotations

import json
import re
import statistics
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import attrs

from tests.soak.calls import WITH_CLIENT, WITH_EFFECT
from tests.soak.record import ANSWERED, CANCELLED, TIMED_OUT, effects
from tests.soak.run import Soak
from trio_mcp.http.runner.h1.incoming import MAX_SEEN

MIB = 2**20
MEASURED = ("steady", "proxies", "driver")  # those that live from the beginning to the end
MORTAL = ("mortal", "stdio-legacy", "proxy-of-mortal", "group")  # lanes whose handlers may die with their process

# What may differ between two settled states.
MORE_DESCRIPTORS = 2
MORE_TASKS = 2
MORE_OBJECTS = 60
REMEMBERED = {"trio_mcp.http.runner.h1.incoming.RequestHead": 4 * MAX_SEEN}  # by each of the servers in a process
MORE_BLOCKS = 20_000  # of Python's allocator: pydantic keeps up to 16,384 short strings that it has parsed
SLOPE_FROM = 10.0  # minutes of load from which on the slope of resident memory is judged
MOST_SLOPE = 0.30  # MiB a minute, over the second half: it goes up and down with what else the machine has to do
MORE_USED = MIB  # what malloc has in use once all is settled: a leak outside Python's allocator


def check_ledger(out: Path) -> tuple[list[str], dict[str, int]]:
    """Compare the record of the calls with the ledger of their effects."""
    done = effects(out / "effects.log")
    did, ended = done.get("did", Counter()), done.get("cancelled", Counter()) + done.get("finished", Counter())
    broken = [f"done {number} times: {call}" for call, number in did.items() if number > 1]
    asked, untold = 0, 0
    for line in (out / "calls.jsonl").open():
        entry = json.loads(line)
        if entry["kind"] not in WITH_EFFECT:
            continue
        asked += 1
        call, outcome = entry["call"], entry["outcome"]
        if outcome == ANSWERED and did[call] != 1:
            broken.append(f"answered, and done {did[call]} times: {call}")
        untold += outcome != ANSWERED and did[call] == 1
        # A cancelled client ends its server's process at once (SIGTERM), and the handlers die with it.
        killed = entry["lane"].startswith("stdio") and entry.get("note") == WITH_CLIENT
        if entry["kind"].startswith("slow") and did[call] and not killed and not entry["lane"].startswith(MORTAL):
            if not ended[call]:
                broken.append(f"began and never ended: {call}")
            direct = not entry["lane"].startswith(("torn", "proxy", "tls-h2"))
            if direct and outcome in (CANCELLED, TIMED_OUT) and not done.get("cancelled", Counter())[call]:
                broken.append(f"given up, and ran on: {call}")
    return broken, {"calls of tools": asked, "effects": sum(did.values()), "effects without an answer": untold}


def unexpected(log: Path) -> list[str]:
    """Return the log's entries with tracebacks, except those of a broken connection (a proxy's to its upstream, or one
    on which a tool has asked the user) and those that httpx makes of a cancelled HTTP/2 request.
    """
    entries = re.split(r"^(?=\d{4}-\d\d-\d\d )", log.read_text(errors="replace"), flags=re.MULTILINE)
    fair = re.compile(
        r"the request '\S+' to the upstream server '\w+' failed"
        r"|the client closed the stream that the request was sent on"
        r"|the client has sent no HTTP request for"
        r"|before the client has confirmed the handshake|^(ValueError: semaphore|KeyError: \d+|h2\.)",
        flags=re.MULTILINE,
    )
    return [entry for entry in entries if "Traceback (" in entry and not fair.search(entry)]


def slope(points: list[tuple[float, float]]) -> float:
    """Return the median slope of all pairs (Theil and Sen), thinned out to some hundred points: MiB a minute."""
    points = points[:: max(1, len(points) // 200)]
    slopes = [
        (later[1] - earlier[1]) / (later[0] - earlier[0])
        for number, earlier in enumerate(points)
        for later in points[number + 1 :]
        if later[0] > earlier[0]
    ]
    return statistics.median(slopes) * 60 / MIB if slopes else 0.0


def slopes(samples: list[dict[str, Any]], name: str) -> dict[str, float]:
    """Return how resident memory grew under load, by quarter and in the second half."""
    load = [(line["time"], line[name]["rss"]) for line in samples if line["phase"] == "load" and "rss" in line[name]]
    if not load:
        return {}
    start, length = load[0][0], load[-1][0] - load[0][0]
    found = {
        f"quarter {quarter + 1}": slope(
            [p for p in load if quarter <= (p[0] - start) / (length or 1) * 4 <= quarter + 1]
        )
        for quarter in range(4)
    }
    found["second half"] = slope([point for point in load if point[0] - start >= length / 2])
    return {part: round(each, 3) for part, each in found.items()}


def compare(settled: list[dict[str, Any]], name: str) -> tuple[list[str], dict[str, int]]:
    """Compare the settled states of a process: of objects the last with the first, of allocators with the one before.

    Allocators hold caches, which fill in the first half of a long run.
    """
    broken = []
    first, before, second = settled[0][name], settled[-2][name], settled[-1][name]
    for what, most in (("descriptors", MORE_DESCRIPTORS), ("tasks", MORE_TASKS), ("children", 0)):
        more = second.get(what, 0) - first.get(what, 0)
        if more > most:
            broken.append(f"{name}: {more} more {what}: {first[what]} -> {second[what]}")
    if second["blocks"] > before["blocks"] + MORE_BLOCKS:
        broken.append(f"{name}: blocks of Python's allocator: {before['blocks']} -> {second['blocks']}")
    used = [each["malloc"].get("used", 0) for each in (before, second)]
    if used[1] > used[0] + MORE_USED:
        broken.append(f"{name}: bytes that malloc has in use: {used[0]} -> {used[1]}")
    grown = {
        kind: number - first["objects"].get(kind, 0)
        for kind, number in second["objects"].items()
        if number != first["objects"].get(kind, 0)
    }
    broken += [
        f"{name}: {more} more of {kind}"
        for kind, more in grown.items()
        if more > MORE_OBJECTS and kind != "all" and second["objects"][kind] > REMEMBERED.get(kind, 0)
    ]
    return broken, grown


def cpu(samples: list[dict[str, Any]]) -> float:
    """Return the share of one core that the steady processes took together under load."""
    load = [line for line in samples if line["phase"] == "load"]
    if len(load) < 2:
        return 0.0
    used = sum(load[-1][name].get("cpu", 0) - load[0][name].get("cpu", 0) for name in MEASURED)
    return float(used / (load[-1]["time"] - load[0]["time"]))


def lanes_of(soak: Soak) -> dict[str, dict[str, int]]:
    """Count the outcomes by lane."""
    table: dict[str, dict[str, int]] = {lane.name: {} for lane in soak.lanes}
    for (lane, outcome), number in sorted(soak.record.outcomes.items()):
        table.setdefault(lane, {})[outcome] = number
    return table


def report(soak: Soak) -> int:
    """Write report.json and the plots, print a summary, and return the exit status."""
    out, record = soak.out, soak.record
    samples = [json.loads(line) for line in (out / "samples.jsonl").open()]
    broken = [f"{each['what']}: {each}" for each in record.violations]
    ledger, counts = check_ledger(out)
    broken += ledger
    figures: dict[str, Any] = {}
    for name in MEASURED:
        more, grown = compare(soak.settled, name)
        broken += more
        figures[name] = {
            "settled MiB": [round(each[name]["rss"] / MIB, 1) for each in soak.settled],
            "MiB once trimmed": round(soak.settled[-1][name]["trimmed"] / MIB, 1),
            "MiB a minute": slopes(samples, name),
            **{what: [each[name][what] for each in soak.settled] for what in ("descriptors", "tasks", "blocks")},
            "malloc": [each[name]["malloc"] for each in soak.settled],
            "objects grown": grown,
        }
        rate = figures[name]["MiB a minute"].get("second half", 0.0)
        if soak.plan.minutes >= SLOPE_FROM and rate > MOST_SLOPE and name != "driver":  # which is the load itself
            broken.append(f"{name}: resident memory grew by {rate} MiB a minute in the second half")
    broken += [f"in {path.name}: {entry[:300]}" for path in sorted(out.glob("*.log")) for entry in unexpected(path)]
    broken += [f"no answer at all in {lane}" for lane, found in lanes_of(soak).items() if not found.get(ANSWERED)]
    told = {
        "broken promises": broken,
        "minutes": soak.plan.minutes,
        "seed": soak.plan.seed,
        "session_timeout": soak.plan.session_timeout,
        **counts,
        "calls": sum(record.outcomes.values()),
        "outcomes by lane": lanes_of(soak),
        "lives": {f"{lane} {how}": number for (lane, how), number in sorted(record.lives.items())},
        "errors": {f"{lane}: {note}": number for (lane, note), number in record.errors.most_common(60)},
        "on_error": soak.load.notes,
        "connections": {name: attrs.asdict(proxy.statistics()) for name, proxy in soak.torn.items()},
        "streams resumed": soak.resumed,
        "starts": soak.settled[-1]["starts"],
        "latest end of a call given up": round(record.late, 2),
        "cores": round(cpu(samples), 2),
        "processes": figures,
    }
    (out / "report.json").write_text(json.dumps(told, indent=1))
    (out / "report.md").write_text(markdown(told))
    draw_all(samples, out)
    show(told)
    return 1 if broken else 0


def markdown(told: dict[str, Any]) -> str:
    """Write the figures as tables, for the documentation."""
    outcomes: Counter[str] = Counter()
    for found in told["outcomes by lane"].values():
        outcomes.update(found)
    through = told["connections"].values()
    steps = Counter[str]()
    for each in through:
        steps.update(each["steps"])
    hurt = steps.total() - steps["Pass"] - steps["Await"]  # each has at most one fault
    rows = [
        ("calls", f"{told['calls']:,}"),
        *((outcome, f"{outcomes.get(outcome, 0):,}") for outcome in ("answered", "cancelled", "timed out", "failed")),
        ("wrong, hung", f"{outcomes.get('wrong', 0)}, {outcomes.get('hung', 0)}"),
        (
            "effects in the ledger; of calls without an answer",
            f"{told['effects']:,}; {told['effects without an answer']:,}",
        ),
        (
            "connections through the tearing proxies; hurt",
            f"{sum(each['connections'] for each in through):,}; {hurt:,}",
        ),
        ("streams resumed", f"{told['streams resumed']:,}"),
        ("starts of the mortal server", f"{told['starts']['mortal']:,}"),
        ("cores in use, of one", f"{told['cores']}"),
        ("broken promises", f"{len(told['broken promises'])}"),
    ]
    lines = [f"| {told['minutes']:g} minutes, seed {told['seed']} | |", "|---|---|"]
    lines += [f"| {name} | {value} |" for name, value in rows]
    lines += [
        "",
        "| settled: after the warm-up, halfway, at the end | steady | proxies | driver |",
        "|---|---|---|---|",
    ]
    processes = told["processes"].values()
    pairs: dict[str, Callable[[Any], list[Any]]] = {
        "resident, MiB": lambda each: each["settled MiB"],
        "the same, once malloc is trimmed": lambda each: [each.get("MiB once trimmed", "")],
        "in use by malloc, MiB": lambda each: [round(now["used"] / MIB, 2) for now in each["malloc"]],
        "free in malloc, MiB": lambda each: [round(now["free"] / MIB, 2) for now in each["malloc"]],
        "blocks of Python's allocator": lambda each: each["blocks"],
        "descriptors": lambda each: each["descriptors"],
        "Trio tasks": lambda each: each["tasks"],
        "objects more than before": lambda each: [each["objects grown"].get("all", 0)],
        "MiB a minute, by quarter of the load": lambda each: list(each["MiB a minute"].values())[:4],
        "MiB a minute, second half": lambda each: [each["MiB a minute"].get("second half", "")],
    }
    for name, pair in pairs.items():
        cells = (", ".join(str(value) for value in pair(each) if value != "") for each in processes)
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def show(told: dict[str, Any]) -> None:
    """Print the short of it."""
    print(f"\n{'lane':18}{'answered':>10}{'failed':>10}{'cancelled':>10}{'timed out':>10}{'wrong':>7}{'hung':>6}")
    for lane, found in told["outcomes by lane"].items():
        cells = [found.get(outcome, 0) for outcome in ("answered", "failed", "cancelled", "timed out")]
        print(f"{lane:18}{''.join(f'{cell:10}' for cell in cells)}{found.get('wrong', 0):7}{found.get('hung', 0):6}")
    for what in (
        "calls",
        "calls of tools",
        "effects",
        "effects without an answer",
        "streams resumed",
        "starts",
        "cores",
    ):
        print(f"{what}: {told[what]}")
    for name, each in told["processes"].items():
        print(f"{name}: {each}")
    print(f"broken promises: {len(told['broken promises'])}")
    for line in told["broken promises"][:40]:
        print(f"  {line[:400]}")


# --- plots, as plain SVG ---------------------------------------------------------------------------------------

WIDTH, HEIGHT, LEFT, RIGHT, TOP, BOTTOM = 760, 300, 60, 130, 34, 40
COLOURS = ("#1f77b4", "#d62728", "#2ca02c", "#9467bd", "#ff7f0e", "#8c564b")

Points = list[tuple[float, float]]


def nice(most: float) -> float:
    """Return a round step that gives about five grid lines."""
    step = 1.0
    while True:
        for factor in (1, 2, 5):
            if most / (step * factor) <= 6:
                return step * factor
        step *= 10


def plot(title: str, unit: str, lines: dict[str, Points]) -> str:
    """Draw lines over minutes, from zero."""
    lines = {name: points for name, points in lines.items() if points}
    last = max((points[-1][0] for points in lines.values()), default=1.0) or 1.0
    most = max((value for points in lines.values() for _, value in points), default=1.0) or 1.0
    across, up = nice(last), nice(most)
    top = up * (int(most / up) + 1)

    def at(minute: float, value: float) -> str:
        x = LEFT + minute / last * (WIDTH - LEFT - RIGHT)
        return f"{x:.1f},{HEIGHT - BOTTOM - value / top * (HEIGHT - TOP - BOTTOM):.1f}"

    def text(x: float, y: float, said: str, anchor: str = "start", colour: str = "#333") -> str:
        return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" fill="{colour}">{escape(said)}</text>'

    drawn = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}"',
        ' font-family="sans-serif" font-size="12">',
        f'<rect width="{WIDTH}" height="{HEIGHT}" fill="white"/>',
        text(LEFT, 18, f"{title} ({unit})"),
    ]
    value = 0.0
    while value <= top:
        x, y = at(0, value).split(",")
        drawn.append(f'<path d="M{x},{y} H{WIDTH - RIGHT}" stroke="#ddd"/>')
        drawn.append(text(LEFT - 6, float(y) + 4, f"{value:g}", "end"))
        value += up
    minute = 0.0
    while minute <= last:
        x, y = at(minute, 0).split(",")
        drawn.append(text(float(x), HEIGHT - BOTTOM + 16, f"{minute:g}", "middle"))
        minute += across
    drawn.append(text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 6, "minutes", "middle"))
    for number, (name, points) in enumerate(lines.items()):
        colour = COLOURS[number % len(COLOURS)]
        path = " ".join(at(*point) for point in points)
        drawn.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        drawn.append(text(WIDTH - RIGHT + 8, TOP + 16 * number + 8, name, colour=colour))
    return "\n".join([*drawn, "</svg>\n"])


def series(samples: list[dict[str, Any]], name: str, *path: str, factor: float = 1.0) -> Points:
    """Take one figure of a process out of the samples that have it."""
    points = []
    for line in samples:
        value: Any = line.get(name, {})
        for key in path:
            value = value.get(key) if isinstance(value, dict) else None
        if value is not None:
            points.append((line["time"] / 60, value * factor))
    return points


def draw_all(samples: list[dict[str, Any]], out: Path) -> None:
    """Write the plots."""
    processes = ("steady", "proxies", "driver")
    mib = 1 / 2**20
    plots = {
        "memory": ("Resident memory", "MiB", {name: series(samples, name, "rss", factor=mib) for name in processes}),
        "descriptors": ("Descriptors", "open", {name: series(samples, name, "descriptors") for name in processes}),
        "tasks": ("Trio tasks", "living", {name: series(samples, name, "tasks") for name in processes}),
        "objects": (
            "Objects that the collector knows",
            "thousands",
            {name: series(samples, name, "objects", "all", factor=0.001) for name in processes},
        ),
        "allocators": (
            "The steady server, as its allocators see it",
            "MiB; blocks in hundreds of thousands",
            {
                "resident": series(samples, "steady", "rss", factor=mib),
                "malloc: in use": series(samples, "steady", "malloc", "used", factor=mib),
                "malloc: free": series(samples, "steady", "malloc", "free", factor=mib),
                "malloc: mapped": series(samples, "steady", "malloc", "mapped", factor=mib),
                "Python blocks": series(samples, "steady", "blocks", factor=1e-5),
            },
        ),
    }
    for name, (title, unit, lines) in plots.items():
        (out / f"{name}.svg").write_text(plot(title, unit, lines))


if __name__ == "__main__":
    folder = Path(sys.argv[1])
    print(markdown(json.loads((folder / "report.json").read_text())))
    draw_all([json.loads(line) for line in (folder / "samples.jsonl").open()], folder)
