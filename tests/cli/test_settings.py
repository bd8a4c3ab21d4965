"""The options of `trio-mcp check` in a file: the command line comes first, and a mistake is one line."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.running import SHOP, run
from tests.cli.test_mistakes import options as options_of
from trio_mcp.cli import main
from trio_mcp.cli.exits import USAGE
from trio_mcp.cli.parser import parse
from trio_mcp.cli.settings import add_settings

KIT = ("hypothesis", "trio_mcp.conformance.engine", "trio_mcp.conformance.clients", "trio_mcp.conformance.report")

EVERYTHING = """
client = false
revision = ["2025-11-25"]
rules = "answered-once"
examples = 30
time = "5m"
seed = 0
timeout = 2.5
rate = 100
allow-writes = true
tool = ["price", "pack"]
report = "report.html"
replays = "replays"
baseline = "known.yml"
write-baseline = "new.yml"
dry-run = true
json = true
env = {A = "b"}
header = {"X-Key" = "c"}
variable = {workspaceFolder = "/srv"}
auth = "off"
auth-a = "env:ALICE"
auth-b = "file:bob"
auth-elsewhere = "env:OTHER"
auth-server = 9000
"""
MEANT = {
    "client": False,
    "protected": False,
    "issuers": False,
    "sign_in": False,
    "client_id": None,
    "revisions": ["2025-11-25"],
    "rules": ["answered-once"],
    "examples": 30,
    "time": 300.0,
    "seed": 0,
    "timeout": 2.5,
    "rate": 100.0,
    "allow_writes": True,
    "tool": ["price", "pack"],
    "report": ["report.html"],
    "replays": "replays",
    "baseline": "known.yml",
    "write_baseline": "new.yml",
    "dry_run": True,
    "json": True,
    "env": [("A", "b")],
    "header": [("X-Key", "c")],
    "variable": [("workspaceFolder", "/srv")],
    "auth": "off",
    "auth_a": "env:ALICE",
    "auth_b": "file:bob",
    "auth_elsewhere": "env:OTHER",
    "auth_server": 9000,
    "snapshot": None,
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def read(*words: str) -> dict[str, Any]:
    found: argparse.Namespace = parse(["check", *words])
    add_settings(found)
    return vars(found)


@pytest.mark.parametrize("file", ["trio-mcp.toml", "pyproject.toml"])
def test_every_option_may_stand_in_a_file(file: str, folder: Path) -> None:
    table = "[check]" if file == "trio-mcp.toml" else "[tool.trio-mcp.check]"
    (folder / file).write_text(table + EVERYTHING)
    found = read("shop.py")
    assert {name: found[name] for name in MEANT} == MEANT
    # No option has been forgotten here.
    names = {each.settings.get("dest") or each.name[2:].replace("-", "_") for each in options_of("check")}
    assert names == MEANT.keys()


def test_a_snapshot_may_stand_in_a_file(folder: Path) -> None:
    (folder / "trio-mcp.toml").write_text('[check]\nsnapshot = "surface.json"\ntimeout = 3')
    assert (read("shop.py")["snapshot"], read("shop.py")["timeout"]) == ("surface.json", 3)


def test_the_command_line_comes_first(folder: Path) -> None:
    (folder / "pyproject.toml").write_text("[tool.trio-mcp.check]" + EVERYTHING)
    found = read("shop.py", "--examples", "7", "--seed", "9", "--tool", "other", "--revision", "2026-07-28")
    assert (found["examples"], found["seed"], found["tool"]) == (7, 9, ["other"])
    assert found["revisions"] == ["2026-07-28"]
    assert found["time"] == 300


def test_what_has_no_meaning_beside_the_command_line_is_left_out(folder: Path) -> None:
    (folder / "trio-mcp.toml").write_text(f"[check]{EVERYTHING}")
    found = read("shop.py", "--snapshot", "surface.json")
    assert (found["rules"], found["examples"], found["allow_writes"], found["timeout"]) == (None, None, False, 2.5)
    (folder / "trio-mcp.toml").write_text(f"[check]{EVERYTHING}protected = true\n")
    assert not read("shop.py")["protected"]
    found = read("--client", "--", "client")
    assert found["protected"]
    assert (found["tool"], found["rate"], found["env"], found["header"], found["examples"]) == ([], None, [], [], 30)
    (folder / "trio-mcp.toml").write_text(f'[check]{EVERYTHING}sign-in = true\nclient-id = "x"\n')
    found = read("shop.py")
    assert (found["sign_in"], found["client_id"]) == (False, None)
    found = read("--issuers", "http://host.example/mcp")
    assert (found["sign_in"], found["client_id"], found["rules"]) == (True, "x", ["answered-once"])
    assert (found["examples"], found["header"], found["auth_a"], found["dry_run"]) == (None, [], None, False)
    (folder / "trio-mcp.toml").write_text('[check]\nsnapshot = "surface.json"\nexamples = 30')
    assert read("shop.py")["examples"] is None
    found = read("shop.py", "--rules", "*")
    assert (found["snapshot"], found["examples"]) == (None, 30)


def test_one_file_is_read_that_of_the_current_folder(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "pyproject.toml").write_text("[tool.trio-mcp.check]\nexamples = 5\ntime = 7")
    assert read("shop.py")["examples"] == 5
    (folder / "trio-mcp.toml").write_text("[check]\nexamples = 6")
    assert (read("shop.py")["examples"], read("shop.py")["time"]) == (6, None)
    (folder / "trio-mcp.toml").write_text("[other]\nexamples = 6")
    assert read("shop.py")["examples"] == 5
    (folder / "below").mkdir()
    monkeypatch.chdir("below")
    assert read("shop.py")["examples"] is None


CHECK = "trio-mcp.toml: [check]"
MISTAKES = {
    "a misspelt key": ("exmaples = 5", f"{CHECK} 'exmaples': unknown key; did you mean 'examples'?"),
    "an unknown key": (
        "xyzzy = 5",
        f"{CHECK} 'xyzzy': unknown key; the keys are client, protected, issuers, sign-in, client-id, snapshot, ",
    ),
    "a key that hides": ('"a\\u202eb" = 5', f"{CHECK} 'a\\u202eb': unknown key; the keys are client"),
    "a text for a number": ('examples = "many"', f"{CHECK} examples: must be a whole number of at least 1; got 'many'"),
    "a fraction": ("examples = 1.5", f"{CHECK} examples: must be a whole number of at least 1; got 1.5"),
    "true for a number": ("seed = true", f"{CHECK} seed: must be a whole number; got True"),
    "a list for a number": ("rate = [1]", f"{CHECK} rate: must be a number above 0; got [1]"),
    "a time of no unit": ('time = "5x"', f"{CHECK} time: must be a time, such as 90s or 5m; got '5x'"),
    "no flag": ('allow-writes = "yes"', f"{CHECK} allow-writes: must be true or false; got 'yes'"),
    "a number for a name": ("baseline = 5", f"{CHECK} baseline: must be a string; got 5"),
    "a date for a name": ("baseline = 2026-01-01", f"{CHECK} baseline: must be a string; got datetime.date(2026"),
    "a number for a list": ("tool = 5", f"{CHECK} tool: must be a string, or a list of strings; got 5"),
    "numbers in a list": ("tool = [5]", f"{CHECK} tool: must be a string, or a list of strings; got [5]"),
    "an unknown revision": ('revision = "1999"', f"{CHECK} revision: must be one of 2024-11-05, "),
    "an unknown way to sign in": (
        'auth = "magic"',
        f"{CHECK} auth: must be one of browser, paste, device, stored, off",
    ),
    "no table of variables": ('env = ["A=b"]', f"{CHECK} env: must be a table of strings; got ['A=b']"),
    "no text in a table": ("env = {A = 5}", f"{CHECK} env: must be a table of strings; got {{'A': 5}}"),
    "an endless value": (f'examples = "{"x" * 500}"', f"got '{'x' * 76}..."),
    "an unknown rule": ('rules = "nonsense"', "nonsense"),
    "no baseline": ('baseline = "none.yml"', "--baseline: can't read none.yml"),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_one_line_that_names_file_and_key(
    name: str, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    line, said = MISTAKES[name]
    (folder / "shop.py").write_text(SHOP)
    (folder / "trio-mcp.toml").write_text(f"[check]\n{line}\n")
    assert main(["check", "shop.py"]) == USAGE
    told = capfd.readouterr().err
    assert told.startswith("trio-mcp check: ")
    assert told.count("\n") == 1
    assert said in told


FILES: dict[str, tuple[bytes, str]] = {
    "no TOML": (b"[check", "trio-mcp.toml: not valid TOML: "),
    "not UTF-8": (b"\xff", "trio-mcp.toml: not valid TOML: "),
    "no table": (b"check = 5", "trio-mcp.toml: [check] must be a table, got 5"),
    "too large": (b"#" * 1_000_001, "trio-mcp.toml: the file is too large; the limit is 1000000 bytes"),
    "too deep": (b"x = " + b"[" * 100_000, "trio-mcp.toml: nested too deeply"),
}


@pytest.mark.parametrize("name", FILES)
def test_a_file_that_cannot_be_read_is_one_line(name: str, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    content, said = FILES[name]
    (folder / "trio-mcp.toml").write_bytes(content)
    assert main(["check", "shop.py"]) == USAGE
    told = capfd.readouterr().err
    assert told.startswith(f"trio-mcp check: {said}")
    assert told.count("\n") == 1
    (folder / "trio-mcp.toml").unlink()
    (folder / "trio-mcp.toml").mkdir()
    assert main(["check", "shop.py"]) == USAGE
    assert capfd.readouterr().err == "trio-mcp check: can't read trio-mcp.toml: Is a directory\n"


def test_a_check_with_settings_reports_how_much_a_model_reads(tmp_path: Path) -> None:
    (tmp_path / "shop.py").write_text(SHOP)
    (tmp_path / "trio-mcp.toml").write_text('[check]\nrules = "answered-once"\nexamples = 3\nreport = "report.json"\n')
    ended = run(tmp_path, "check", "shop.py", imported=KIT)
    assert ended.returncode == 0, ended.stderr
    assert "3 examples" in ended.stdout
    listed = json.loads(run(tmp_path, "list", "shop.py", "--tools", "--json").stdout)["tools"]
    sizes = {each["name"]: len(json.dumps(each, ensure_ascii=False, separators=(",", ":"))) for each in listed}
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["figures"]["bytes of tools/list"] == sizes
    (advice,) = report["advice"]
    total = sum(sizes.values())
    assert advice.startswith(f"a model reads all tools before it calls one; they take {total:,} bytes: ")
    for name, size in sizes.items():
        assert f"{name} {size:,}" in advice
    assert "\nadvice: a model reads all tools" in ended.stdout
