"""Programs of others that tests talk to, installed once into a folder of the checkout that git ignores."""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

INSTALL_SECONDS = 300
"""A cold install over a slow network stays far below this; a registry that accepts and never answers does not."""

CACHE = Path(__file__).resolve().parents[2] / ".cache"


class InstallError(Exception):
    """Something could not be installed: the tests that need it cannot run, and must not be skipped."""


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
    cache = CACHE / name
    target = cache / hashlib.sha256(manifest.read_bytes() + depends.encode()).hexdigest()[:16]
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
