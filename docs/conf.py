"""Sphinx: ``sphinx-build -W -n docs docs/_build``. Nothing here needs the network."""

from __future__ import annotations

import re
import sys
from importlib import import_module
from pathlib import Path
from typing import Any, is_typeddict

import attrs
import pydantic
from docutils import nodes
from sphinx.addnodes import pending_xref
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util.nodes import make_refnode
from sphinx.util.typing import stringify_annotation

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE / "_ext")]

# Found by the line above
from types_overview import anchor  # noqa: E402

from trio_mcp import __version__, types  # noqa: E402
from trio_mcp._door import DOORS  # noqa: E402
from trio_mcp._settings import settings_of  # noqa: E402
from trio_mcp.session import calls  # noqa: E402

# Its hints name this model, which it imports only for calls that report progress.
calls.ProgressNotificationParams = types.ProgressNotificationParams  # type: ignore[attr-defined]

# The entries of these are `Annotated[type, Default(…)]`. Sphinx shows the types, and `show_defaults` the defaults.
for module in map(import_module, DOORS):
    for name in module.__all__:
        kind: Any = getattr(module, name)
        if is_typeddict(kind) and settings_of(kind):
            kind.__annotations__ = {
                name: getattr(hint, "__origin__", hint) for name, hint in kind.__annotations__.items()
            }

project = "trio_mcp"
author = "The trio_mcp authors"
copyright = author
version = release = __version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinxcontrib_trio",
    "myst_parser",
    "sphinx_design",
    "drawing_directive",
    "types_overview",
    "changelog_draft",
    "dates",
    "llms_txt",
    "requirements_table",
    "statements_table",
]
exclude_patterns = ["_build", "_ext", "changes"]
html_theme = "furo"
html_title = f"trio_mcp {version}"
html_copy_source = False
html_static_path = ["_static"]
html_css_files = ["pages.css"]
html_js_files = [("filter.js", {"defer": "defer"})]

# Docstrings put names, paths of the specification and code in single backticks. A name that is documented becomes a
# link, anything else stays code: see `resolve` below.
default_role = "py:obj"

napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
autodoc_use_legacy_class_based = True  # what sphinxcontrib-trio builds on
autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True

myst_enable_extensions = ["attrs_block", "colon_fence"]
myst_heading_anchors = 3

nitpicky = True  # as -n on the command line, for builds elsewhere

# In signatures: types of other projects, which can't be looked up without the network, and type variables.
nitpick_ignore_regex = [
    (r"py:.*", r"(trio|pydantic|attrs|types|typing|contextlib|collections\.abc|logging|os|pathlib|sqlite3|ssl)\..*"),
    (r"py:.*", r"(.*\.)?(DefinitionT|FunctionT|ItemT|ModelT|ResultT|StateT)"),
    (r"py:class", r"TypeAdapter|Abstract(Async)?ContextManager"),
    (r"py:.*", r"AttributeValue|MeterProvider|TracerProvider"),  # OpenTelemetry's
    (r"py:.*", r"(.*\.)?SearchStrategy|hypothesis\..*"),  # Hypothesis's
    (r"py:class", r"trio_mcp\.blocking\.portal\.Portal"),  # of what only `listen` makes
    # The inside of the conformance kit:
    (r"py:.*", r"trio_mcp\.(conformance\.(facts|serving|steps|wires)|testing\.strategies)\..*|Judge|Level|Who"),
]

# Internals that some signatures name.
INTERNAL = (
    "A",
    "Additions",
    "Asker",
    "Auth",
    "B",
    "BaseServer",
    "C",
    "ClientConnection",
    "CacheHints",
    "CardSource",
    "Config",
    "ContentBlock",
    "DataT",
    "ElicitationCallback",
    "ElicitationMode",
    "Feed",
    "Fetched",
    "FollowedTask",
    "FollowedTasks",
    "Function",
    "Headers",
    "HasClientSide",
    "Hold",
    "Identify",
    "IncludeContext",
    "IncomingRequest",
    "InputResponse",
    "InputRounds",
    "Keys",
    "LegacyServerEra",
    "Lifespan",
    "Limits",
    "LinkLostError",
    "Listening",
    "LogLevel",
    "LoggingLevel",
    "Messages",
    "MetadataApp",
    "MiddlewareFunction",
    "ModernServerEra",
    "Mounted",
    "OutgoingRequest",
    "OutputSchemas",
    "PathLike",
    "Protection",
    "RegisteredTool",
    "Registry",
    "RequestId",
    "ResourceFeature",
    "QuestionContext",
    "Require",
    "RootList",
    "Roots",
    "Rounds",
    "Rules",
    "Run",
    "RunArguments",
    "Runnable",
    "RunningServer",
    "SamplingCallback",
    "SamplingFeature",
    "Servable",
    "ServedSession",
    "ServerEra",
    "ShowCode",
    "SessionSink",
    "SingleRequest",
    "Sink",
    "T",
    "Target",
    "TaskCalls",
    "TokenEndpoint",
    "Verifier",
    "Verify",
    "Visible",
)


def resolve(
    app: Sphinx, env: BuildEnvironment, node: pending_xref, contnode: nodes.TextElement
) -> nodes.reference | nodes.TextElement | None:
    """Find a name where readers know it: `trio_mcp.Client`, whatever module it lives in; models in the overview."""
    if node.get("refdomain") != "py":
        return None
    target: str = node["reftarget"]
    name = target.rpartition(".")[2]
    known: Any = env.domains["py"]
    if target.startswith("trio_mcp.") or target == name:
        for room in ("", "low_level.", "statistics.", "jsonrpc.", "auth.", "auth.testing.", "extensions.", "stores."):
            candidate = f"trio_mcp.{room}{name}"
            if candidate in known.objects and not target.startswith("trio_mcp.types."):
                page, identifier = known.objects[candidate].docname, known.objects[candidate].node_id
                return make_refnode(app.builder, node["refdoc"], page, identifier, contnode)
        if name in types.__all__ and isinstance(getattr(types, name), type):
            return make_refnode(app.builder, node["refdoc"], "reference/types", anchor(name), contnode)
    # The default role, or an internal: code without a link.
    return contnode if node["reftype"] == "obj" or name in INTERNAL else None


def keep_colons(app: Sphinx, what: str, name: str, obj: object, options: object, lines: list[str]) -> None:
    """Napoleon takes the words before a colon for a type, in a property's first line and in what is returned."""
    prose = [0] if what in ("property", "attribute") else []
    prose += [number for number in range(1, len(lines)) if lines[number - 1].strip() in ("Returns:", "Yields:")]
    for number in prose:
        if number < len(lines):
            lines[number] = lines[number].replace(": ", " \N{EN DASH} ", 1)


def show_defaults(
    app: Sphinx, what: str, name: str, obj: object, options: object, signature: str | None, returns: str | None
) -> tuple[str | None, str | None] | None:
    """Show the defaults that attrs means by the words of its `__init__`, and nothing of that of pydantic's models.

    Nor what only catches unknown keywords, for an error that says more than Python's.
    """
    if signature is not None and "**unknown" in signature:
        return re.sub(r", \*\*unknown: (\w+\.)*Never", "", signature), returns
    if is_typeddict(obj) and (settings := settings_of(obj)):
        shown = [
            f"{name}: {_short(obj.__annotations__[name])} = {getattr(each.default, 'name', repr(each.default))}"
            for name, each in settings.items()
            if f" {name}: " in str(obj.__doc__)  # those of a base are shown there
        ]
        return f"(*, {', '.join(shown)})", None
    if isinstance(obj, type) and issubclass(obj, pydantic.BaseModel):
        return None if signature is None else ("", returns)
    if not (isinstance(obj, type) and attrs.has(obj) and signature):
        return None
    for field in attrs.fields(obj):
        default = getattr(field.default, "__name__", repr(field.default))
        signature = signature.replace(f"attr_dict['{field.name}'].default", default)
        if isinstance(field.default, attrs.Factory):  # type: ignore[arg-type]  # a function, to mypy
            made = getattr(field.default.factory, "__name__", "…")
            signature = re.sub(rf"(\b{field.alias}: [^=]*) = NOTHING", rf"\1 = {made}()", signature)
    return signature, returns


def _short(hint: Any) -> str:
    """Return a type as signatures show it: without modules."""
    return re.sub(r"(?:~|\b)(?:\w+\.)+(?=\w)", "", stringify_annotation(hint, "smart").replace("~", ""))


def setup(app: Sphinx) -> None:
    """Register with Sphinx."""
    app.connect("missing-reference", resolve)
    app.connect("autodoc-process-signature", show_defaults)
    app.connect("autodoc-process-docstring", keep_colons, priority=100)
