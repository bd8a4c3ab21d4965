"""Running the official conformance suite, and reading what it has found."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import attrs
import pytest

from .serving import CHECKOUT, DEADLINE

if TYPE_CHECKING:
    from tests.interop.node_peers import NodePeers

__all__ = ["TOTALS", "Check", "Side", "Suite", "expected_failures", "judge", "verdict"]

MANIFEST = Path(__file__).with_name("package.json")
EXPECTED_FAILURES = Path(__file__).with_name("expected_failures.yml")

SCENARIO_MILLISECONDS = "60000"
"""What the suite gives a scenario; a net for a busy machine, as the suite's own 30 seconds are for an idle one."""

_NO_HANDSHAKE = re.compile("Client did not send a (initialize|notifications/initialized) request")
"""What http-standard-headers skips, because there is no such request in 2026-07-28, the only revision it is for."""

Side = Literal["client", "server"]
"""Which side of ours is tested."""

TOTALS: dict[tuple[Side, str], tuple[int, int]] = {
    ("server", "2025-03-26"): (1, 3),
    ("server", "2025-06-18"): (27, 56),
    ("server", "2025-11-25"): (33, 84),
    ("server", "2026-07-28"): (40, 152),
    ("client", "2025-03-26"): (0, 0),
    ("client", "2025-06-18"): (2, 3),
    ("client", "2025-11-25"): (5, 20),
    ("client", "2026-07-28"): (8, 64),
}
"""Scenarios that are not expected to fail, and the checks that pass in them. It is exact, because a scenario that gives
up early looks at less, and calls that a pass."""


@attrs.frozen
class Check:
    """One thing that the suite has looked at in a scenario."""

    id: str
    status: str
    text: str


@attrs.frozen
class Suite:
    """The installed suite."""

    peers: NodePeers

    def scenarios(self, side: Side, revision: str) -> list[str]:
        """The names of the scenarios that apply to a revision."""
        output = self._run("list", f"--{side}", "--spec-version", revision, check=True)
        return re.findall(r"^  - (\S+)", output, re.MULTILINE)

    def run(self, side: Side, *arguments: str, revision: str, folder: Path) -> tuple[dict[str, list[Check]], str]:
        """Run some scenarios.

        Args:
            side: Which side of ours is tested.
            arguments: What to test, and with which scenarios, as the suite's command line takes it.
            revision: The revision to speak.
            folder: An empty one, for the suite's results.

        Returns:
            What it looked at in each scenario, and the end of what it said.
        """
        output = self._run(side, *arguments, "--spec-version", revision, "-o", str(folder))
        files = {_scenario(side, file.parent.relative_to(folder)): file for file in folder.rglob("checks.json")}
        return {scenario: _checks(file) for scenario, file in files.items()}, output[-4000:]

    def _run(self, *arguments: str, check: bool = False) -> str:
        script = self.peers.modules / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
        done = subprocess.run(
            [self.peers.node, script, *arguments],
            cwd=CHECKOUT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=check,
            timeout=DEADLINE,
        )
        return done.stdout.decode(errors="replace")


def _scenario(side: Side, folder: Path) -> str:
    name = re.sub(r"-\d{4}-\d\d-\d\dT[-\d]+Z$", "", str(folder))
    return name.removeprefix("server-") if side == "server" else name


def _checks(file: Path) -> list[Check]:
    found = []
    for each in json.loads(file.read_bytes()):
        text = each.get("errorMessage") or each.get("description", "")
        found.append(Check(each["id"], each["status"], text))
    complaints = file.with_name("stderr.txt")  # of our client
    if complaints.exists() and (said := complaints.read_text()):
        found.append(Check("stderr", "FAILURE", said[-2000:]))
    return found


def verdict(scenario: str, checks: list[Check]) -> list[str]:
    """What is wrong: a line for each check that failed, warned or was skipped, or one if there was nothing to check."""
    wrong = [
        check for check in checks if check.status not in ("SUCCESS", "INFO") and not _NO_HANDSHAKE.match(check.text)
    ]
    if not any(check.status == "SUCCESS" for check in checks) and not wrong:
        return [f"{scenario}: the suite has checked nothing"]
    return [f"{scenario}: {check.status} {check.id}: {check.text}" for check in wrong]


def expected_failures(side: Side) -> list[str]:
    """The scenarios that the file names for a side; the suite takes the file, too (``--expected-failures``)."""
    listed: dict[str, list[str]] = {}
    names: list[str] = []
    for line in EXPECTED_FAILURES.read_text().splitlines():
        if match := re.fullmatch(r"(client|server):(?: \[\])?", line):
            names = listed.setdefault(match[1], [])
        elif match := re.fullmatch(r"  - (\S+)", line):
            names.append(match[1])
        elif line and not line.lstrip().startswith("#"):
            raise ValueError(f"{EXPECTED_FAILURES}: can't read {line!r}")
    return listed.get(side, [])


def judge(side: Side, revision: str, checks: dict[str, list[Check]]) -> str:
    """Fail the test if anything differs from what was expected: a failure, a pass, or how much was looked at.

    Returns:
        The totals, in words.
    """
    expected = expected_failures(side)
    found = {scenario: verdict(scenario, each) for scenario, each in checks.items()}
    lines = [line for scenario, wrong in found.items() if scenario not in expected for line in wrong]
    passes = [scenario for scenario in expected if scenario in found and not found[scenario]]
    lines += [f"{scenario}: passes now; remove it from {EXPECTED_FAILURES.name}" for scenario in passes]
    counted = [each for scenario, each in checks.items() if scenario not in expected]
    totals = (len(counted), sum(check.status == "SUCCESS" for each in counted for check in each))
    if not lines and totals != TOTALS[side, revision]:
        lines = [f"(scenarios, checks passed) are {totals} instead of {TOTALS[side, revision]}: see suite.py"]
    if lines:
        pytest.fail("\n".join(["The conformance suite has found:", *sorted(lines)]), pytrace=False)
    return f"conformance: {side}, {revision}: {totals[1]} checks passed in {totals[0]} scenarios"
