"""URI templates: what RFC 6570 says of expansion, and that matching is its inverse, safe and linear."""

from __future__ import annotations

import string
import sys
from types import FrameType
from typing import Any

import pytest
from hypothesis import example, given, strategies as st

from tests.tables import by_outcome, listed
from trio_mcp import uri_templates
from trio_mcp.uri_templates import MAX_URI, UriTemplate

VALUES: dict[str, Any] = {"var": "value", "hello": "Hello World!", "path": "/foo/bar", "x": "1024", "y": "768", "e": ""}


@pytest.mark.parametrize(
    ("template", "expansion"),
    [
        ("{var}", "value"),
        ("{hello}", "Hello%20World%21"),
        ("{+hello}", "Hello%20World!"),
        ("{+path}/here", "/foo/bar/here"),
        ("X{#hello}", "X#Hello%20World!"),
        ("map?{x,y}", "map?1024,768"),
        ("{x,hello,y}", "1024,Hello%20World%21,768"),
        ("{+x,hello,y}", "1024,Hello%20World!,768"),
        ("{+path,x}/here", "/foo/bar,1024/here"),
        ("X{.x,y}", "X.1024.768"),
        ("{/var,x}/here", "/value/1024/here"),
        ("{;x,y,e}", ";x=1024;y=768;e"),
        ("{?x,y,e}", "?x=1024&y=768&e="),
        ("?fixed=yes{&x,y}", "?fixed=yes&x=1024&y=768"),
        ("{?x,missing}", "?x=1024"),
    ],
)
def test_expansion_is_that_of_the_rfc(template: str, expansion: str) -> None:
    """RFC 6570, sections 1.2 and 3.2: its own examples."""
    assert UriTemplate(f"a:{template}").expand(VALUES) == f"a:{expansion}"


def test_an_exploded_query_takes_the_pairs_of_a_dict() -> None:
    """RFC 6570, section 3.2.8."""
    template = UriTemplate("a:b{?x,keys*}")
    uri = template.expand({"x": "1", "keys": {"semi": ";", "dot": "."}})
    assert uri == "a:b?x=1&semi=%3B&dot=."
    assert template.match(uri) == {"x": "1", "keys": {"semi": ";", "dot": "."}}
    assert template.match("a:b") == {"keys": {}}


# --- the inverse ---------------------------------------------------------------------------------------------------

texts = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
names_in_a_path = texts.filter(lambda text: text not in (".", "..") and not set(text) & set("/\\\0"))
# What would end such a variable, and what an expansion keeps although matching decodes it.
paths = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="%?#"), min_size=1, max_size=12)
# Literals that an expansion of a simple variable never holds.
letters = st.text(string.ascii_letters + string.digits, min_size=1, max_size=4)


@st.composite
def templates_with_values(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    template, values = draw(st.sampled_from(["a:", "files://", "x+y://h:80/é/"])), {}
    count = 0

    def variables(strategy: st.SearchStrategy[str], most: int = 3) -> str:
        nonlocal count
        fresh = [f"v{count + number}" for number in range(draw(st.integers(1, most)))]
        count += len(fresh)
        values.update({name: draw(strategy) for name in fresh})
        return ",".join(fresh)

    for operator in draw(st.lists(st.sampled_from(["", "/", ";"]), max_size=3)):
        template += f"{draw(letters)}/{{{operator}{variables(names_in_a_path)}}}/{draw(letters)}"
    if draw(st.booleans()):
        template += f"!{{+{variables(paths, most=1)}}}"
    kind = draw(st.sampled_from(["", "?", "?*", "&"]))
    if kind:
        template += "?fixed=1" if kind == "&" else ""
        names = variables(st.one_of(texts, st.just("")))
        for name in draw(st.sets(st.sampled_from(names.split(",")))):
            del values[name]
        if kind == "?*":
            names += ",rest*"
            values["rest"] = draw(st.dictionaries(texts.filter(lambda text: text not in names.split(",")), texts))
        template += f"{{{kind[0]}{names}}}"
    return template, values


@given(templates_with_values())
@example(("a:{+v0}?fixed=1{&v1}", {"v0": "&", "v1": "0"}))  # a "&" before the query
def test_matching_an_expansion_gives_the_values_back(case: tuple[str, dict[str, Any]]) -> None:
    template = UriTemplate(case[0])
    uri = template.expand(case[1])
    assert uri.isascii()
    assert template.match(uri) == case[1]


@pytest.mark.parametrize(
    ("template", "uri", "values"),
    [
        ("a:{n}.{e}", "a:x.tar.gz", {"n": "x.tar", "e": "gz"}),
        ("a:{+p}/{n}", "a:b/c/d", {"p": "b/c", "n": "d"}),
        ("a:{+p}-{n}", "a:p/x-q/r-s", {"p": "p/x-q/r", "n": "s"}),
        ("a:{n}", "a:ann@example.org", {"n": "ann@example.org"}),
        ("a:{n}", "a:%c3%bc", {"n": "ü"}),
        ("a:{n}", "a:ü", {"n": "ü"}),
        ("a:{n}", "a:x,y", {"n": "x,y"}),
        ("a:ü{n}", "a:%c3%BCx", {"n": "x"}),
        ("a:{n}", "a:%2541", {"n": "%41"}),
        ("a:{+u}", "a:http://x/y?z=1#f", {"u": "http://x/y?z=1#f"}),
        ("a:{+p}{?q}", "a:b/c?q=1", {"p": "b/c", "q": "1"}),
        ("a:{+p}{#f}", "a:b/c#1/2", {"p": "b/c", "f": "1/2"}),
        ("a:{+p}{?q,r}", "a:b?r=/../&q", {"p": "b", "r": "/../", "q": ""}),
        ("a:{?q}", "a:?q=1+2", {"q": "1+2"}),
        ("a:?k={n}&z=1{&q}", "a:?k=2&z=1&q=3", {"n": "2", "q": "3"}),
        ("a:{?q*}", "a:?q=1", {"q": {"q": "1"}}),
        ("a:{n}{?q*}", "a:x?n=y", {"n": "x", "q": {"n": "y"}}),
    ],
)
def test_what_matches(template: str, uri: str, values: dict[str, Any]) -> None:
    """Earlier variables are as long as they can be; everything is decoded once; a query has names of its own."""
    assert UriTemplate(template).match(uri) == values


@by_outcome(
    "uri",
    "template",
    {
        "a:{n}": [
            *listed(
                "a: | b:x | A:x | a:x/y | a:x?y | a:x#y | a:%2F | a:..%2fetc | a:..%5Cetc | a:.. | a:%2e%2E | "
                "a:%2E | a:x%00 | a:%ff | a:% | a:%4 | a:%zz | a:x y | a:x\n | a:\ud800"
            ),
            "a:" + "x" * MAX_URI,
        ],
        "a:{+n}": "a:",
        "a:{n,m}": "a:x,y,z",
        "a:{n}{?q}": "a:x?n=y",
        "a:x{/n}": "a:x/..",
        "a:x{/n,m}": "a:x/y/%2e.",
        "a:x{;n}": "a:x;n=..",
        "a:{?q}": "a:? | a:?q=1&q=2 | a:?z=1 | a:?q=1& | a:?q=1#f | a:?q=%ff",
        "a:{?q*}": "a:?x=1&x=2 | a:?q=1&q=2",
        "a:?k=1{&q}": "a:?k=1?q=1 | a:&q=1",
    },
)
def test_what_does_not_match(template: str, uri: str) -> None:
    """A simple variable is one name in a path: never a slash, however it is written, and no dot segment."""
    assert UriTemplate(template).match(uri) is None


# --- hostile URIs --------------------------------------------------------------------------------------------------

HOSTILE = ["files://{+p}", "u://{a}-{b}-{c}/{d}.{e}", "u://{+a}/{+b}/{+c}{?q,r*}", "u://x?a={a}&b={b}{&c*}"]


@given(
    st.sampled_from([UriTemplate(text) for text in HOSTILE]),
    st.one_of(st.text(), st.text("files:/ux?&=-.%2Ff#a").map("u://".__add__)),
)
def test_no_uri_raises_anything(template: UriTemplate, uri: str) -> None:
    values = template.match(uri)
    if values is not None:
        assert set(template.variables) <= set(values)


def steps_of(template: UriTemplate, uri: str) -> int:
    """How many calls of functions of the module matching makes: at least one for each character that is looked at."""
    steps = 0

    def count(frame: FrameType, event: str, argument: object) -> None:
        nonlocal steps
        steps += event == "call" and frame.f_code.co_filename == uri_templates.__file__

    before = sys.getprofile()
    sys.setprofile(count)
    try:
        template.match(uri)
    finally:
        sys.setprofile(before)
    return steps


def test_another_scheme_is_told_by_its_beginning() -> None:
    """A server with many templates asks each: the others must cost next to nothing."""
    template = UriTemplate("files://{+p}")
    assert template.match("x://" + "a" * 8000) is None
    assert steps_of(template, "x://" + "a" * 8000) < 10
    assert steps_of(template, "files://" + "a" * 8000) >= 8000


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("filling", ["a", "-", "/", "/a", "-a/", "&", "&b=", "?", "%2F", "%41-", "ü"])
def test_the_steps_grow_no_faster_than_the_uri(text: str, filling: str) -> None:
    """Each variable looks at each character twice at most."""
    template = UriTemplate(text)
    for length in (100, 4000):
        uri = (text.partition("{")[0] + filling * length)[:MAX_URI]
        for end in ("", "\\", "?", "x"):
            hostile = uri[: MAX_URI - 1] + end
            most = 2 * len(template.variables) * len(hostile) * 6  # %C3%BC for one ü
            assert steps_of(template, hostile) <= most


# --- refused -------------------------------------------------------------------------------------------------------


@by_outcome(
    "template",
    "problem",
    {
        "nothing stands between the variables 'x' and 'y'": "a:{x}{y}",
        "nothing stands between": "a:{+x}{y}",
        "'x' occurs twice": "a:{x}/{x} | a:{x}{?x} | a:{x}{?x*} | a:{x,x}",
        "unknown operator": ["a:{|x}", "a:{=x}"],
        "prefixes": "a:{x:3}",
        r"with slashes write '\{\+x\}'": "a:{x*}",
        "at the end of a query": "a:{x*} | a:{/x*} | a:{?x*,y}",
        "last in the query": "a:{?x*}{&y}",
        "can't be a variable": "a:{} | a:{?} | a:{x.y} | a:{%41} | a:{class} | a:{1x}",
        "a URI can't contain": "a:{x | a:x} | a:{{x}} | a:b c/{x} | a:%zz/{x}",
        "begin with a scheme": "{scheme}:x | no/scheme/{x}",
        "last in the template": "a:{?x}/y | a:{?x}{#y}",
        "two": "a:{?x}{?y}",
        "continue a query": "a:?k=1{?x}",
        "no '\\?' before it": "a:{&x}",
        "longer than": ["a:" + "x" * MAX_URI + "{x}"],
    },
)
def test_what_can_not_be_matched_is_refused(template: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        UriTemplate(template)


@given(st.one_of(st.text(), st.text("{}?&+#/;.,*:ab").map("a:".__add__)))
@example("a:{")
def test_a_template_is_good_or_refused_with_a_value_error(text: str) -> None:
    try:
        template = UriTemplate(text)
    except ValueError:
        return
    names = [*template.variables, *template.query_variables]
    expanded = template.expand(dict.fromkeys(names, "v"))
    matched = template.match(expanded)
    assert matched is not None
    assert {name: matched[name] for name in names} == dict.fromkeys(names, "v")


def test_values_must_be_strings() -> None:
    with pytest.raises(TypeError, match="'n' must be a string, got int"):
        UriTemplate("a:{n}").expand({"n": 1})  # type: ignore[dict-item]
    with pytest.raises(TypeError, match="'q' must be a dict"):
        UriTemplate("a:{?q*}").expand({"q": "x"})
    with pytest.raises(TypeError, match="must be a string"):
        UriTemplate(1)  # type: ignore[arg-type]
