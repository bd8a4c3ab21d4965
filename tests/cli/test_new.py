"""`trio-mcp new` makes a project that works as it stands."""

from __future__ import annotations

import shlex
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
import trio

from tests.cli.running import ROOT
from trio_mcp.cli import main


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    monkeypatch.chdir(tmp_path)
    assert main(["new", "Word-counter"]) == 0
    return tmp_path / "Word-counter"


def test_its_tests_pass(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(project / "src"))
    there: dict[str, object] = {}
    path = project / "tests" / "test_server.py"
    exec(compile(path.read_text(), path, "exec"), there)
    tests = [function for name, function in there.items() if name.startswith("test_")]
    assert len(tests) == 3
    for test in tests:
        trio.run(test)
    for name in ("word_counter", "word_counter.server"):
        del sys.modules[name]


@pytest.mark.parametrize("name", ["../x", "_a", "a.b", "café", "class", "json", "pydantic", "pytest-trio", "Trio-mcp"])
def test_a_name_that_would_not_work(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new", name]) == 2
    assert f"a project can't be called {name!r}" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_an_existing_folder_stays_as_it_is(project: Path) -> None:
    (project / "README.md").write_text("mine")
    assert main(["new", project.name]) == 2
    assert (project / "README.md").read_text() == "mine"


@pytest.mark.parametrize(
    ("installed_from", "said", "written"),
    [
        ('{"url": "file:///a%20clone"}', "'/a clone' ", '"$TRIO_MCP" '),
        (
            '{"url": "https://host/x", "vcs_info": {"vcs": "git", "commit_id": "f00"}}',
            "git+https://host/x@f00 ",
            "git+https://host/x@f00 ",
        ),
        (None, "", ""),  # a package index
    ],
)
def test_it_installs_what_this_was_installed_from_but_its_readme_names_no_folder_of_this_machine(
    installed_from: str | None,
    said: str,
    written: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    # In the class of the one that is found: packages that were imported may have put another finder in place.
    found = type(metadata.distribution("trio-mcp"))
    monkeypatch.setattr(found, "read_text", lambda *_: installed_from)
    assert main(["new", "word-counter"]) == 0
    readme = (tmp_path / "word-counter" / "README.md").read_text()
    assert f'  .venv/bin/pip install {said}-e ".[test]"\n' in capsys.readouterr().out
    assert f'$ .venv/bin/pip install {written}-e ".[test]"\n' in readme
    assert ("`TRIO_MCP` is the folder of a clone" in readme) == ("TRIO_MCP" in written)
    assert "/a" not in readme
    assert "\n\n\n" not in readme


@pytest.mark.again
def test_all_that_it_says_and_that_its_readme_says_works(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With this checkout in place of the package that is not published yet."""
    monkeypatch.chdir(tmp_path)
    assert main(["new", "word-counter"]) == 0
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()[1:]]
    readme = (tmp_path / "word-counter" / "README.md").read_text()
    lines += [line[2:] for line in readme.splitlines() if line.startswith("$ ") and "install" not in line]
    install = next(line for line in lines if "install" in line)
    lines[lines.index(install)] = f".venv/bin/pip install -q {shlex.quote(str(ROOT))} -e '.[test]'"
    done = subprocess.run(["bash", "-e"], input="\n".join(lines), cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.count("3 passed") == 2
    assert done.stdout.count("count(text: string)") == 2
    assert '{"words":2,"characters":7}' in done.stdout
    served = subprocess.run(
        [tmp_path / "word-counter" / ".venv" / "bin" / "word-counter"], input="", capture_output=True, text=True
    )
    assert (served.returncode, served.stdout) == (0, "")
