"""The directive ``drawing``: a picture in the colours of the page, and in the size of the screen where it has two.

``{drawing} images/cancelled`` shows ``cancelled-light.svg`` or ``cancelled-dark.svg``; on a phone
``cancelled-narrow-light.svg`` or ``cancelled-narrow-dark.svg``, if there are any. A picture without them keeps a size
at which its words can be read, and is scrolled.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective


class Drawing(SphinxDirective):
    """A drawing, as up to four images of which a page shows one."""

    required_arguments = 1
    option_spec: ClassVar[dict[str, Callable[[str], Any]]] = {"alt": directives.unchanged_required}

    def run(self) -> list[nodes.Node]:
        path = self.arguments[0]
        here = Path(self.env.doc2path(self.env.docname)).parent
        narrow = (here / f"{path}-narrow-light.svg").exists()
        shown = [self._box("", ["wide"] if narrow else ["scrolled"])]
        if narrow:
            shown.append(self._box("-narrow", ["narrow"]))
        return shown

    def _box(self, size: str, classes: list[str]) -> nodes.container:
        # Lazy: a browser loads none of the images that it does not show.
        return nodes.container(
            "",
            *(
                nodes.image(
                    uri=f"{self.arguments[0]}{size}-{theme}.svg",
                    alt=self.options["alt"],
                    classes=[f"only-{theme}"],
                    loading="lazy",
                )
                for theme in ("light", "dark")
            ),
            classes=["drawing", *classes],
        )


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.add_directive("drawing", Drawing)
    return {"parallel_read_safe": True}
