"""Write the docs for language models, beside the HTML: ``llms.txt`` (https://llmstxt.org) and ``llms-full.txt``.

``llms.txt`` lists the pages, in their groups, with their first paragraphs; ``llms-full.txt`` is the pages in the order
of the contents, as plain text, with the reference written out.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from docutils import nodes
from docutils.io import StringOutput
from sphinx.application import Sphinx
from sphinx.builders.text import TextBuilder
from sphinx.environment import BuildEnvironment
from sphinx.writers.text import TextWriter

FULL = "llms-full.txt"

LEFT_OUT = ("reference/requirements", "reference/statements")
"""Tables of what the specification says and which test checks it: two thirds of the text, and no help to users."""


def pages(env: BuildEnvironment, page: str, depth: int = 1) -> Iterator[tuple[str, int]]:
    """Yield a page and those below it, in the order of the contents, each with its depth in it."""
    yield page, depth
    for below in env.toctree_includes.get(page, ()):
        yield from pages(env, below, depth + 1)


def first_paragraph(document: nodes.document) -> str:
    for paragraph in document.findall(nodes.paragraph):
        return paragraph.astext().replace("\n", " ")
    return ""


def name_drawings_once(document: nodes.document) -> None:
    """Leave one of the images of each drawing: they differ in colours and in size, and have the same description."""
    for image in list(document.findall(nodes.image)):
        if "only-dark" in image["classes"] or "narrow" in image.parent["classes"]:
            image.parent.remove(image)


def write(app: Sphinx, exception: Exception | None) -> None:
    """Write both files once the pages have been written."""
    if exception is not None or app.builder.name not in ("html", "dirhtml"):
        return
    env, text = app.env, TextBuilder(app, app.env)
    text.init()
    listed: list[str] = []
    whole: list[str] = []
    for page, depth in pages(env, env.config.root_doc):
        title = env.titles[page].astext()
        document = env.get_and_resolve_doctree(page, text)
        about = first_paragraph(document)
        if depth == 1:
            listed += [f"# {title}", "", f"> {about}", "", f"All pages as one text: [{FULL}]({FULL})"]
        elif page in env.toctree_includes:
            listed += ["", f"{'#' * depth} {title}", "", about]
        else:
            gap = [] if listed[-1].startswith("- [") else [""]
            listed += [*gap, f"- [{title}]({app.builder.get_target_uri(page)}): {about}"]
        if page not in LEFT_OUT:
            name_drawings_once(document)
            writer = TextWriter(text)
            writer.write(document, StringOutput(encoding="unicode"))
            whole.append(writer.output.strip())
    out = Path(app.outdir)
    (out / "llms.txt").write_text("\n".join(listed) + "\n", encoding="utf-8")
    (out / FULL).write_text("\n\n\n".join(whole) + "\n", encoding="utf-8")


def setup(app: Sphinx) -> None:
    """Register with Sphinx."""
    app.connect("build-finished", write)
