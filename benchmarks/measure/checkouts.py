"""The package of another checkout, with the programs of this one."""

from __future__ import annotations

from pathlib import Path

from benchmarks.measure.processes import ROOT, ProcessFailed, run_python


def prepare(stage: Path, checkout: Path) -> Path:
    """Make a directory in which programs find the package of a checkout and these benchmarks; compile both.

    Raises:
        ProcessFailed: If the package can't be imported.
    """
    stage.mkdir()
    (stage / "trio_mcp").symlink_to(checkout / "trio_mcp", target_is_directory=True)
    (stage / "benchmarks").symlink_to(ROOT / "benchmarks", target_is_directory=True)
    run_python("-m", "compileall", "-q", "trio_mcp", "benchmarks", root=stage)
    found = run_python("-c", "import trio_mcp; print(trio_mcp.__file__)", root=stage).strip()
    if Path(found).parent != stage / "trio_mcp":
        raise ProcessFailed(f"trio_mcp was imported from {found}, not from {checkout}")
    return stage
