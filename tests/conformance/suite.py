"""Running the official conformance suite, and reading its findings."""

from __future__ import annotations

import contextlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import attrs
import pytest

from tests.interop.node_peers import NodePeers
from tests.interop.support import marked_environment
from tests.round_robin import Place, round_robin

CHECKOUT = Path(__file__).parents[2]

COMMAND = [sys.executable, "-W", "error", "-m", "tests.conformance.everything_server"]
"""To be run in the checkout; with ``stdio``, or a port, as the last argument."""

DEADLINE = 180
"""Seconds. A net against a hang."""

MANIFEST = Path(__file__).with_name("package.json")
EXPECTED_FAILURES = Path(__file__).with_name("expected_failures.yml")
EXPECTED_FAILURES_BARE = Path(__file__).with_name("expected_failures_bare.yml")
"""What the bare suite adds to the other."""

REVISIONS = ("2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
"""Those that the suite has scenarios for."""

BARE = "bare"
"""In place of a revision: the suite chooses one for each scenario. Only so it runs those of extensions."""

SCENARIO_MILLISECONDS = "60000"
"""What the suite gives a scenario; a net for a busy machine, as the suite's own 30 seconds are for an idle one."""

_NO_HANDSHAKE = re.compile("Client did not send a (initialize|notifications/initialized) request")
"""What http-standard-headers skips, because there is no such request in 2026-07-28, the only revision it is for."""

REQUIRED: dict[str, dict[str, int]] = {
    "2025-11-25": {"server": 30, "client": 18},
    "2026-07-28": {"server": 37, "client": 32},
}
"""Revision -> how many scenarios the suite requires of each side for conformance. It has no others."""

Side = Literal["client", "server", "authorization"]
"""What is tested: one of our two sides, or the authorization server of `trio_mcp.auth.testing`."""

TOTALS: dict[tuple[Side, str], tuple[int, int]] = {
    ("server", "2025-03-26"): (1, 3),
    ("server", "2025-06-18"): (27, 56),
    ("server", "2025-11-25"): (33, 84),
    ("server", "2026-07-28"): (40, 152),
    ("client", "2025-03-26"): (2, 19),
    ("client", "2025-06-18"): (5, 60),
    ("client", "2025-11-25"): (19, 250),
    ("client", "2026-07-28"): (33, 418),
    ("server", BARE): (64, 276),
    ("client", BARE): (12, 82),
    ("authorization", "2025-03-26"): (2, 2),
    ("authorization", "2025-06-18"): (2, 2),
    ("authorization", "2025-11-25"): (2, 3),
    ("authorization", "2026-07-28"): (2, 3),
}
"""Scenarios that are not expected to fail, and the checks that pass in them. It is exact, because a scenario that gives
up early looks at less, and calls that a pass."""


@attrs.frozen
class Check:
    """One check of the suite in a scenario."""

    id: str
    status: str
    text: str


@attrs.frozen
class Suite:
    """The installed suite.

    Attributes:
        peers: Where it is installed.
        checkout: The checkout whose client it starts.
    """

    peers: NodePeers
    checkout: Path = CHECKOUT

    def scenarios(self, side: Side, revision: str) -> list[str]:
        """Return the names of the scenarios that apply to a revision, or of all scenarios."""
        return list(self._tags(side, revision))

    def only_bare(self, side: Side) -> list[str]:
        """Return the names of the scenarios that only the bare suite runs.

        Without ``--spec-version`` the suite chooses the revision (``resolveScenarioSpecVersion`` in its
        ``src/runner/client.ts``): 2026-07-28 for what is new there, else 2025-11-25. Nothing else in a run depends on
        the option. So these are extensions, and scenarios that 2025-11-25 no longer has.
        """

        def chosen(first: str) -> str:
            return "2026-07-28" if first == "2026-07-28" else "2025-11-25"

        return [name for name, tags in self._tags(side, BARE).items() if chosen(tags[0]) not in tags]

    def required(self, revision: str) -> dict[str, list[str]]:
        """Return the names of the scenarios that conformance to a revision requires, for ``server`` and ``client``.

        The suite has frozen them when the revision was released.
        """
        output = self._run("list", "--requirements", revision, check=True)
        counted, _, _ = output.partition("never scored")
        parts = re.split(r"^(Server|Client) scenarios .*$", counted, flags=re.MULTILINE)[1:]
        return {
            kind.lower(): re.findall(r"^  - (\S+)$", part, re.MULTILINE)
            for kind, part in zip(parts[::2], parts[1::2], strict=True)
        }

    def _tags(self, side: Side, revision: str) -> dict[str, list[str]]:
        """Scenarios, each with the revisions that have it, the oldest first; or with ``extension``."""
        output = self._run("list", f"--{side}", *_spec_version(revision), check=True)
        return {name: tags.split(",") for name, tags in re.findall(r"^  - (\S+) \[(.*)\]", output, re.MULTILINE)}

    def run(self, side: Side, *arguments: str, revision: str, folder: Path) -> tuple[dict[str, list[Check]], str]:
        """Run some scenarios.

        Args:
            side: Which of our two sides is tested.
            arguments: What to test, and with which scenarios, as the suite's command line takes it.
            revision: The revision to speak, or `BARE`.
            folder: An empty folder for the suite's results.

        Returns:
            The suite's checks in each scenario, and the end of its output.
        """
        output = self._run(side, *arguments, *_spec_version(revision), "-o", str(folder))
        return self.found(side, folder), output[-4000:]

    def found(self, side: Side, folder: Path) -> dict[str, list[Check]]:
        """Return the suite's checks in each scenario whose results are in a folder."""
        return {_scenario(side, file.parent.relative_to(folder)): _checks(file) for file in folder.rglob("checks.json")}

    def command(self, *arguments: str) -> list[str]:
        """Return the command line of the suite."""
        script = self.peers.modules / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
        return [str(self.peers.node), str(script), *arguments]

    def _run(self, *arguments: str, check: bool = False) -> str:
        done = subprocess.run(
            self.command(*arguments),
            cwd=self.checkout,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=check,
            timeout=DEADLINE,
        )
        return done.stdout.decode(errors="replace")


def _spec_version(revision: str) -> list[str]:
    return [] if revision == BARE else ["--spec-version", revision]


def _scenario(side: Side, folder: Path) -> str:
    name = re.sub(r"-\d{4}-\d\d-\d\dT[-\d]+Z$", "", str(folder))
    return name.removeprefix({"server": "server-", "authorization": "authorization-server-"}.get(side, ""))


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
    """Return a line for each check that failed, warned or was skipped, or one line if nothing was checked."""
    wrong = [
        check for check in checks if check.status not in ("SUCCESS", "INFO") and not _NO_HANDSHAKE.match(check.text)
    ]
    if not any(check.status == "SUCCESS" for check in checks) and not wrong:
        return [f"{scenario}: the suite has checked nothing"]
    return [f"{scenario}: {check.status} {check.id}: {check.text}" for check in wrong]


def expected_failures(side: Side, revision: str) -> list[str]:
    """Return the scenarios that may fail for a side; for the bare suite, those of both files."""
    files = [EXPECTED_FAILURES, EXPECTED_FAILURES_BARE] if revision == BARE else [EXPECTED_FAILURES]
    return [name for file in files for name in _listed(file).get(side, [])]


def _listed(file: Path) -> dict[str, list[str]]:
    """Return a file in the format that the suite itself takes with ``--expected-failures``."""
    listed: dict[str, list[str]] = {}
    names: list[str] = []
    for line in file.read_text().splitlines():
        if match := re.fullmatch(r"(client|server):(?: \[\])?", line):
            names = listed.setdefault(match[1], [])
        elif match := re.fullmatch(r"  - (\S+)", line):
            names.append(match[1])
        elif line and not line.lstrip().startswith("#"):
            raise ValueError(f"{file}: can't read {line!r}")
    return listed


def judge(side: Side, revision: str, checks: dict[str, list[Check]]) -> str:
    """Fail the test if anything differs from what was expected: a failure, a pass, or the number of checks.

    Returns:
        The totals, in words.
    """
    expected = expected_failures(side, revision)
    found = {scenario: verdict(scenario, each) for scenario, each in checks.items()}
    lines = [line for scenario, wrong in found.items() if scenario not in expected for line in wrong]
    passes = [scenario for scenario in expected if scenario in found and not found[scenario]]
    lines += [f"{scenario}: passes now; take it off the list of expected failures" for scenario in passes]
    lines += [line for scenario in expected for line in _malformed(scenario, checks.get(scenario, []))]
    counted = [each for scenario, each in checks.items() if scenario not in expected]
    totals = (len(counted), sum(check.status == "SUCCESS" for each in counted for check in each))
    if not lines and totals != TOTALS[side, revision]:
        lines = [f"(scenarios, checks passed) are {totals} instead of {TOTALS[side, revision]}: see suite.py"]
    if lines:
        pytest.fail("\n".join(["The conformance suite has found:", *sorted(lines)]), pytrace=False)
    return f"conformance: {side}, {revision}: {totals[1]} checks passed in {totals[0]} scenarios"


def _malformed(scenario: str, checks: list[Check]) -> list[str]:
    """Return the failures that no missing feature excuses: messages we sent that violate the specification's schema."""
    wrong = [check for check in checks if check.id.startswith("wire-schema") and check.status != "SUCCESS"]
    return [f"{scenario}: {check.status} {check.id}: {check.text}" for check in wrong]


@contextlib.contextmanager
def everything_url(checkout: Path = CHECKOUT, runner: str = "hypercorn") -> Iterator[str]:
    """Serve a checkout's server over HTTP. It must not complain of anything, and must exit cleanly when told to."""
    with marked_environment() as environment:
        server = subprocess.Popen(
            [*COMMAND, "0", runner], cwd=checkout, env=environment, stderr=subprocess.PIPE, text=True
        )
        try:
            assert server.stderr is not None
            yield server.stderr.readline().split()[-1]
        finally:
            server.terminate()
            _, complaints = server.communicate(timeout=DEADLINE)
    assert (server.returncode, complaints) == (0, "")


@contextlib.contextmanager
def everything_front(place: Place = "file") -> Iterator[str]:
    """Serve with three processes, to which nginx gives requests in turn. None of them may complain of anything."""
    command = [*COMMAND, "0"]
    with (
        marked_environment() as environment,
        round_robin(command, environment, place=place, cwd=CHECKOUT) as front,
    ):
        yield front.url
    assert front.said == ""
