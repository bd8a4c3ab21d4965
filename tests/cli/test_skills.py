"""``trio-mcp skills``, run as a user runs it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.running import command, run
from tests.extensions.skills.folders import write_skill

SERVER = """\
from pathlib import Path
from trio_mcp import Server
from trio_mcp.extensions import Skills

skills = Skills(Path(__file__).with_name("skills"))
server = Server("desk", extensions=[skills])
"""

DYNAMIC = """
@skills.dynamic("skill://daily/SKILL.md", description="Today")
def daily():
    return "now"
"""

FALSE = """\
import sys
sys.path.insert(0, {root!r})
from tests.extensions.skills.hostile import GOOD, HostileServer, entry_of
from tests.extensions.skills.folders import skill_text

hostile = HostileServer()
hostile.files["skill://good/a.md"] = b"B\\x1b[31m"
hostile.entries.append({{"uri": "skill://bad/SKILL.md\\x1b[31m"}})
server = hostile.server()
"""


@pytest.fixture
def desk(tmp_path: Path) -> Path:
    """Return a folder with a server's file and its skills."""
    write_skill(tmp_path / "skills", "pdf", {"a.md": "A", "b.bin": b"\x00"}, extra="license: MIT\n")
    write_skill(tmp_path / "skills", "acme/refunds")
    (tmp_path / "server.py").write_text(SERVER)
    return tmp_path


@pytest.fixture
def false(tmp_path: Path) -> Path:
    """Return a folder with the file of a server that sends other content than it lists."""
    (tmp_path / "server.py").write_text(FALSE.format(root=str(Path(__file__).parents[2])))
    return tmp_path


def test_list_shows_each_skill(desk: Path) -> None:
    done = run(desk, "skills", "list", "server.py")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "skill://acme/refunds/SKILL.md (1 file, 57 bytes)\n    About refunds\n"
        "skill://pdf/SKILL.md (3 files, 64 bytes)\n    About pdf\n"
    )
    listed = json.loads(run(desk, "skills", "list", "server.py", "--json").stdout)["skills"]
    assert listed[1]["frontmatter"] == {"name": "pdf", "description": "About pdf", "license": "MIT"}
    assert listed[1]["fingerprint"].startswith("sha256:")


def test_show_loads_one(desk: Path) -> None:
    done = run(desk, "skills", "show", "server.py", "skill://pdf/SKILL.md")
    assert done.returncode == 0, done.stderr
    assert '    license: "MIT"\n    SKILL.md: 62 bytes\n    a.md: 1 bytes\n' in done.stdout
    assert done.stdout.endswith("\nDo it.\n")
    own = ["--", *command("run", "server.py")]
    shown = json.loads(run(desk, "skills", "show", "skill://pdf/SKILL.md", "--json", *own).stdout)
    assert shown["text"] == (desk / "skills" / "pdf" / "SKILL.md").read_text()


def test_verify_reads_every_listed_file(desk: Path) -> None:
    with (desk / "server.py").open("a") as file:
        file.write(DYNAMIC)
    done = run(desk, "skills", "verify", "server.py")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (
        "ok skill://acme/refunds/SKILL.md: 57 bytes\n"
        "dynamic skill://daily/SKILL.md: nothing of it can be verified\n"
        "ok skill://pdf/SKILL.md: 62 bytes\nok skill://pdf/a.md: 1 bytes\nok skill://pdf/b.bin: 1 bytes\n"
    )
    done = run(desk, "skills", "verify", "server.py", "skill://acme/refunds/SKILL.md", "--json")
    assert [each["state"] for each in json.loads(done.stdout)["files"]] == ["ok"]


def test_verify_fails_if_one_file_does(false: Path) -> None:
    done = run(false, "skills", "verify", "server.py")
    assert done.returncode == 1, done.stderr
    lines = done.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["FAILED", "ok", "FAILED"]
    assert lines[2].startswith("FAILED skill://good/a.md: it has 6 bytes instead of 1")
    assert "\x1b" not in done.stdout, "what a server says controls the terminal"
    done = run(false, "skills", "list", "server.py")
    assert done.returncode == 1
    assert done.stderr.startswith("refused: skill://bad/SKILL.md")
    assert "\x1b" not in done.stderr


def test_mistakes_are_told(desk: Path, tmp_path: Path) -> None:
    done = run(desk, "skills", "show", "server.py")
    assert (done.returncode, "the URI of the skill is missing" in done.stderr) == (2, True)
    done = run(desk, "skills", "show", "server.py", "skill://none/SKILL.md")
    assert (done.returncode, "no skill is served at" in done.stderr) == (1, True)
    (tmp_path / "plain.py").write_text("from trio_mcp import Server\nserver = Server('plain')\n")
    done = run(desk, "skills", "list", "plain.py")
    assert (done.returncode, "the server has no skills" in done.stderr) == (1, True)
    (desk / "skills" / "pdf" / "link").symlink_to("/etc/hostname")
    done = run(desk, "skills", "list", "server.py")
    assert (done.returncode, "pdf/link: it is a symbolic link" in done.stderr) == (1, True)
