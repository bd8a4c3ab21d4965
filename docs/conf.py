"""Sphinx: ``sphinx-build -W -n docs docs/_build``. Nothing here needs the network."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE / "_ext")]

import trio_mcp  # noqa: E402 - found by the line above

project = "trio_mcp"
author = "The trio_mcp authors"
copyright = author
version = release = trio_mcp.__version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinxcontrib_trio",
    "myst_parser",
    "types_overview",
]
exclude_patterns = ["_build", "_ext", "changes"]
html_theme = "furo"
html_title = f"trio_mcp {version}"
html_copy_source = False

# Docstrings put names, paths of the specification and code in single backticks. A name that is documented becomes a
# link, anything else stays code: see `resolve` below.
default_role = "py:obj"

napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True

myst_enable_extensions = ["colon_fence", "fieldlist"]
myst_heading_anchors = 3
myst_number_code_blocks: list[str] = []

# Types of other projects in signatures; there is no inventory to look them up in without the network.
nitpick_ignore_regex = [
    (r"py:.*", r"(trio|pydantic|pydantic_core|attrs|types|typing|typing_extensions|contextlib|collections\.abc)\..*"),
    (r"py:.*", r"(asyncgen|contextmanager|Path|TracebackType|BaseModel|ResultT|FunctionT|StateT|ModelT)"),
]


def resolve(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, contnode: nodes.TextElement
) -> nodes.reference | nodes.TextElement | None:
    """Find a name where readers know it: `trio_mcp.Client`, whatever module it lives in."""
    if node.get("refdomain") != "py":
        return None
    target = node["reftarget"]
    known = env.get_domain("py")
    for candidate in (f"trio_mcp.{target}", f"trio_mcp.{target.rpartition('.')[2]}"):
        if candidate in known.data["objects"] and (target.startswith("trio_mcp.") or "." not in target):
            found: Any = known.resolve_xref(env, node["refdoc"], app.builder, "obj", candidate, node, contnode)
            return found  # type: ignore[no-any-return]
    # The default role, or an annotation's None: code without a link.
    return contnode if node["reftype"] == "obj" else None


def setup(app: Sphinx) -> None:
    """Called by Sphinx."""
    app.connect("missing-reference", resolve)
