"""Keeps the dates that revisions are called by in one piece: a browser would break 2025-11-25 behind a hyphen."""

from __future__ import annotations

import re
from typing import Any

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

DATE = re.compile(r"(\b\d{4}-\d{2}-\d{2}\b)")


class Dates(SphinxPostTransform):
    """Gives the dates in tables a class, which `pages.css` does not let wrap; what is copied keeps its hyphens."""

    default_priority = 900

    def run(self, **kwargs: Any) -> None:
        """Wrap each date."""
        for cell in self.document.findall(nodes.entry):
            for text in list(cell.findall(nodes.Text)):
                parts = DATE.split(text)
                if len(parts) > 1:
                    made = [
                        nodes.inline(part, part, classes=["date"]) if n % 2 else nodes.Text(part)
                        for n, part in enumerate(parts)
                    ]
                    text.parent.replace(text, made)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register with Sphinx."""
    app.add_post_transform(Dates)
    return {"parallel_read_safe": True}
