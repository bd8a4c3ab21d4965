"""Find the statements of the specification: each sentence, list item or table row with MUST, SHOULD and the like."""

from __future__ import annotations

import hashlib
import html
import re
from collections.abc import Iterator
from pathlib import Path

import attrs

KEYWORDS = {"REQUIRED": "MUST", "SHALL": "MUST", "SHALL NOT": "MUST NOT", "RECOMMENDED": "SHOULD"}
"""What counts as another keyword."""

MENTIONED = re.compile(r"^The key words |from SHOULD to MUST")  # keywords that command nothing
MAY = re.compile(r"\bMAY\b")
KEYWORD = re.compile(r"\b(?:(?:MUST|SHALL|SHOULD)(?: NOT)?|REQUIRED|(?:NOT )?RECOMMENDED)\b(?!-)")
# Each replaces what would mislead the search for sentences: code, diagrams, signatures, what is inherited.
DROPPED = re.compile(
    r"""\A---\n.*?\n---\n | ^[ \t]*(?P<fence>```+|~~~+).*?^[ \t]*(?P=fence)[ \t]*$ | \{/\*.*?\*/\} | <!--.*?-->
    | <div[ ]class="tsd-signature">.*?</div> | <pre>.*?</pre> | <aside.*?</aside> | <svg.*?</svg>""",
    re.DOTALL | re.MULTILINE | re.VERBOSE,
)
MEMBER = re.compile(r'<div class="tsd-anchor-link" id="([\w-]+)".*?</div>', re.DOTALL)
ITEM_TAG = re.compile(r"<li>\s*")
INLINE_TAG = re.compile(r"</?(?:a|code|strong|em|b|i|span|sup|sub)\b[^<>`]*>")
BLOCK_TAG = re.compile(r"</?(?:[A-Z]\w*|div|section|p|ul|ol|li|h\d|br|table|protocol-version)\b[^<>`]*>")
TABLE_HEAD = re.compile(r"^ *\|.*\n *\|[-:| ]+$", re.MULTILINE)
HEADING = re.compile(r"#{1,6} +(.*)")
ITEM = re.compile(r"( *)(?:[-*+]|\d+[.)]) +(.*)")
LINK = re.compile(r"!?\[((?:[^\[\]]|\[[^\]]*\])*)\](?:\([^()]*(?:\([^()]*\))?[^()]*\)|\[[\w-]+\])")
SENTENCE_END = re.compile(r"(?<!e\.g\.)(?<!i\.e\.)(?<!etc\.)(?<!vs\.)(?<=[.!?])[\")]? +(?=[A-Z`\"(])")


@attrs.frozen
class Found:
    """A statement in the source: where, how strong, its hash, and for people the sentence."""

    revision: str
    section: str
    keyword: str
    hash: str
    sentence: str = attrs.field(eq=False)

    @property
    def key(self) -> tuple[str, str, str, str]:
        return self.revision, self.section, self.keyword, self.hash


@attrs.frozen
class Block:
    """A paragraph, list item or table row, or the break that code leaves (an empty text)."""

    anchor: str
    kind: str
    indent: int
    text: str


@attrs.define
class Lead:
    """The beginning of a list, such as "Servers MUST:", whose items are statements together with it."""

    block: Block
    sentence: str
    depth: int | None = None

    def has(self, block: Block) -> bool:
        """Whether a block is an item of the list."""
        return block.kind in ("item", "row") and (self.block.kind != "item" or block.indent > self.block.indent)


def statements(checkout: Path, revisions: tuple[str, ...]) -> Iterator[Found]:
    """Yield each statement of these revisions, in the order of files and lines."""
    for revision in revisions:
        for page, text in _pages(checkout, revision):
            for anchor, keyword, sentence in of_page(text):
                yield Found(revision, _section(page, anchor), keyword, short_hash(sentence), sentence)


def of_extension(checkout: Path, page: str, revisions: tuple[str, ...]) -> Iterator[Found]:
    """Yield each statement of an extension's page, such as ``extensions/tasks``, in the revisions that have it."""
    for revision in revisions:
        file = checkout / "specification" / revision / f"{page.rpartition('/')[2]}.md"
        # GitHub numbers the headings of one name from 1, and the specification from 2.
        for anchor, keyword, sentence in of_page(file.read_text("utf-8"), again=1) if file.exists() else ():
            yield Found(revision, _section(page, anchor), keyword, short_hash(sentence), sentence)


def sections(checkout: Path, revision: str) -> set[str]:
    """Return the sections of a revision, and its pages."""
    return {
        _section(page, anchor)
        for page, text in _pages(checkout, revision)
        for anchor in ("", *(block.anchor for block in blocks(text)))
    }


def _pages(checkout: Path, revision: str) -> Iterator[tuple[str, str]]:
    root = checkout / "docs" / "specification" / revision
    pages = sorted(root.rglob("*.mdx"))
    if not pages:
        raise FileNotFoundError(f"{root} has no pages (*.mdx); give the path of a checkout of the specification")
    for page in pages:
        name = page.relative_to(root).with_suffix("").as_posix()
        yield name.removesuffix("/index"), page.read_text(encoding="utf-8")


def _section(page: str, anchor: str) -> str:
    return f"{page}#{anchor}" if anchor else page


def short_hash(sentence: str) -> str:
    """Return the hash of a sentence: whether it changed, without what it says."""
    return hashlib.sha256(sentence.encode()).hexdigest()[:8]


def of_page(text: str, again: int = 2) -> Iterator[tuple[str, str, str]]:
    """Yield anchor, keyword and sentence of each statement of a page.

    Args:
        text: The page.
        again: The number in the anchor of the second heading of one name.
    """
    lead: Lead | None = None
    for block in [*blocks(text, again), Block("", "break", 0, "")]:
        if lead is not None and not lead.has(block):
            if lead.depth is None:  # no list followed
                yield from _found(lead.block.anchor, lead.sentence)
            lead = None
        parts = sentences(block.text)
        ends = parts[-1] if parts and parts[-1].endswith(":") and KEYWORD.search(parts[-1]) else None
        if lead is not None and ends is None:
            first = lead.depth is None or block.indent <= lead.depth
            lead.depth = block.indent if first else lead.depth
            alone = [part for part in parts if not KEYWORD.search(part)]
            if alone and alone[0] == parts[0] and (first or not MAY.search(block.text)):
                yield from _found(block.anchor, " ".join([lead.sentence, *alone]))
        for part in parts:
            if part is not ends:
                yield from _found(block.anchor, part)
        if ends is not None:
            if lead is not None and lead.depth is None:
                yield from _found(lead.block.anchor, lead.sentence)
            lead = Lead(block, ends)


def _found(anchor: str, sentence: str) -> Iterator[tuple[str, str, str]]:
    if MENTIONED.search(sentence):
        return
    words = [match.group() for match in KEYWORD.finditer(sentence)]
    for keyword in dict.fromkeys(KEYWORDS.get(word, word).replace("NOT RECOMMENDED", "SHOULD NOT") for word in words):
        yield anchor, keyword, sentence


def sentences(text: str) -> list[str]:
    """Cut a block into sentences."""
    parts = (" ".join(part.replace("`", "").split()) for part in SENTENCE_END.split(text))
    return [part for part in parts if part]


def blocks(text: str, again: int = 2) -> Iterator[Block]:
    """Cut a page into blocks without markup."""
    anchor, anchors = "", dict[str, int]()
    kind, indent, lines = "para", 0, list[str]()
    for line in [*_plain_structure(text).splitlines(), ""]:
        stripped = line.strip().removeprefix("> ")
        heading, item = HEADING.fullmatch(stripped), ITEM.fullmatch(line)
        starts = not stripped or stripped[0] in "|\0\1" or heading or item
        if starts and lines:
            yield Block(anchor, kind, indent, plain(" ".join(lines)))
            kind, indent, lines = "para", 0, []
        if heading:
            anchor = _slug(plain(heading[1]))
            anchors[anchor] = anchors.get(anchor, 0) + 1
            anchor += f"-{anchors[anchor] - 2 + again}" if anchors[anchor] > 1 else ""
        elif stripped.startswith("\1"):
            anchor = stripped[1:]
        if heading or stripped[:1] in ("\0", "\1"):
            yield Block(anchor, "break", 0, "")
        elif stripped.startswith("|"):
            if not set(stripped) <= set("|-: "):
                yield Block(anchor, "row", 0, plain(" ".join(stripped.strip("|").split("|"))))
        elif item:
            kind, indent, lines = "item", len(item[1]), [item[2]]
        elif stripped:
            indent = indent if lines else len(line) - len(line.lstrip())
            lines.append(stripped)


def _plain_structure(text: str) -> str:
    """Turn components and tags into blank lines, items and anchors."""
    text = TABLE_HEAD.sub("\n", DROPPED.sub("\n\0\n", text))
    text = MEMBER.sub(r"\n\n\1\g<1>\n\n".replace(r"\1\g", "\1\\g"), text)
    text = BLOCK_TAG.sub("\n\n", ITEM_TAG.sub("\n- ", text))
    return INLINE_TAG.sub("", text)


def plain(text: str) -> str:
    """Return the words without markup, with single spaces."""
    text = html.unescape(LINK.sub(r"\1", text))
    text = re.sub(r"\*\*|(?<!\w)\*(?=\S)|(?<=\S)\*(?!\w)|\\(?=\W|_)", "", text)
    text = re.sub(r"(?<!\w)_([a-zA-Z][a-zA-Z ]*)_(?!\w)", r"\1", text)
    return " ".join(text.split())


def _slug(title: str) -> str:
    encoded = title.lower().replace("&", "%26").replace("://", "%3A%2F%2F")
    return re.sub(r"[^\w %-]", "", encoded).strip().replace(" ", "-")
