"""Trace context in `_meta`: the formats of W3C (2026-07-28 `basic/index`, OpenTelemetry trace context; SEP-414)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, strategies as st

from tests.tables import each_of
from trio_mcp import TraceContext

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"


@pytest.mark.parametrize(
    "traceparent",
    [
        PARENT,
        f"00-{TRACE}-{SPAN}-00",
        f"00-{TRACE}-{SPAN}-ff",
        f"01-{TRACE}-{SPAN}-01",
        f"cc-{TRACE}-{SPAN}-01-what-the-future-holds",
    ],
)
def test_valid_traceparents(traceparent: str) -> None:
    trace = TraceContext.from_meta({"traceparent": traceparent})
    assert trace == TraceContext(traceparent)
    assert trace is not None
    assert (trace.trace_id, trace.parent_id) == (TRACE, SPAN)
    assert trace.to_meta() == {"traceparent": traceparent}


@pytest.mark.parametrize(
    "traceparent",
    [
        "",
        f"ff-{TRACE}-{SPAN}-01",
        f"0-{TRACE}-{SPAN}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE[:-1]}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-1",
        f"00-{TRACE}-{SPAN}",
        f"00-{TRACE}-{SPAN}-01-more",
        f"01-{TRACE}-{SPAN}-01more",
        f" {PARENT}",
        f"{PARENT}\n",
        f"01-{TRACE}-{SPAN}-01-" + "x" * 1000,
        5,
        None,
        [PARENT],
    ],
)
def test_an_invalid_traceparent_counts_as_absent_and_its_tracestate_with_it(traceparent: Any) -> None:
    """Trace Context, section 4.3: if it can't be parsed, a new trace is started, and the tracestate is not read."""
    assert TraceContext.from_meta({"traceparent": traceparent, "tracestate": "a=1"}) is None
    kept = TraceContext.from_meta({"traceparent": traceparent, "tracestate": "a=1", "baggage": "k=v"})
    assert kept == TraceContext(baggage="k=v")
    assert kept is not None
    assert (kept.trace_id, kept.parent_id, kept.sampled) == (None, None, False)


@each_of(
    "tracestate",
    "rojo=00f067aa0ba902b7,congo=t61rcWkgMzE | a=1 | fw529a3039@dt=FfAAAAAAAA | 0tenant/x*y-z_@sys=! | "
    "a=x y | a=1 \t, \tb=2 | ,a=1,,b=2,",
    "k" * 256 + "=" + "v" * 256,
    ",".join(f"k{n}=v" for n in range(32)),
)
def test_valid_tracestates(tracestate: str) -> None:
    assert TraceContext.from_meta({"traceparent": PARENT, "tracestate": tracestate}) == TraceContext(PARENT, tracestate)


@each_of(
    "tracestate",
    " | a | A=1 | 0a=1 | a=1,a=2 | a=1,b | a= | a=b=c | a=\xe9 | a@b@c=1 | a@0=1 | a=1\n",
    "t" * 242 + "@s=1",
    "k" * 257 + "=v",
    "k=" + "v" * 257,
    ",".join(f"k{n}=v" for n in range(33)),
    "a=1," + " " * 100_000,
    7,
)
def test_an_invalid_tracestate_is_dropped_whole_and_the_traceparent_stays(tracestate: Any) -> None:
    assert TraceContext.from_meta({"traceparent": PARENT, "tracestate": tracestate}) == TraceContext(PARENT)


@each_of(
    "baggage",
    "userId=alice,serverNode=DF%2028,isProduction=false | k= |  k = v ; p ; q=1 , l=2\t | k=v;p=",
    "!#$%&'*+.^_`|~09azAZ-=!#$%&'()*+-./:<=>?@[]^_`{|}~",
    ",".join(f"k{n}=v" for n in range(64)),
    "k=" + "v" * 8190,
)
def test_valid_baggage(baggage: str) -> None:
    assert TraceContext.from_meta({"baggage": baggage}) == TraceContext(baggage=baggage)


@each_of(
    "baggage",
    ' | k | =v | k=v, | k="v" | k=v w | k=a\\b | k=\xe9 | k=v; | (k)=v',
    ",".join(f"k{n}=v" for n in range(65)),
    "k=" + "v" * 8191,
    "k=" + " " * 8000 + "\0",
    "k=v" + ";a= " * 2000 + "\0",
    {},
)
def test_invalid_baggage_counts_as_absent(baggage: Any) -> None:
    assert TraceContext.from_meta({"baggage": baggage}) is None


@pytest.mark.parametrize(("flags", "sampled"), [("00", False), ("01", True), ("02", False), ("03", True)])
def test_the_last_bit_says_whether_the_caller_recorded(flags: str, sampled: bool) -> None:
    assert TraceContext(f"00-{TRACE}-{SPAN}-{flags}").sampled is sampled


@pytest.mark.parametrize(
    ("values", "error", "message"),
    [
        ({"traceparent": "x"}, ValueError, "traceparent is not in W3C format: 'x'"),
        ({"traceparent": PARENT, "tracestate": "x"}, ValueError, "tracestate is not"),
        ({"baggage": "x"}, ValueError, "baggage is not"),
        ({"tracestate": "a=1"}, ValueError, "a tracestate needs a traceparent"),
        ({"traceparent": 5}, TypeError, "traceparent must be a string, got int"),
    ],
)
def test_ones_own_must_be_valid(values: dict[str, Any], error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        TraceContext(**values)


hostile = st.dictionaries(
    st.sampled_from(["traceparent", "tracestate", "baggage", "other"]),
    st.none() | st.integers() | st.text(max_size=80) | st.text("0123456789abcdef-=,;@ \t%", max_size=80),
)


@given(hostile)
def test_whatever_a_peer_sends_what_is_read_of_it_is_valid_and_reads_the_same_again(meta: dict[str, Any]) -> None:
    trace = TraceContext.from_meta(meta)
    if trace is not None:
        assert trace.to_meta().items() <= meta.items()
        assert TraceContext.from_meta(trace.to_meta()) == trace == TraceContext(**trace.to_meta())


HERE = TraceContext(PARENT, "a=1", "k=v")


@pytest.mark.parametrize(
    ("params", "sent"),
    [
        (None, {"_meta": HERE.to_meta()}),
        ({}, {"_meta": HERE.to_meta()}),
        ({"x": 1}, {"x": 1, "_meta": HERE.to_meta()}),
        ({"x": 1, "_meta": {"y": 2}}, {"x": 1, "_meta": {"y": 2, **HERE.to_meta()}}),
        ({"_meta": {"traceparent": "other"}}, {"_meta": {"traceparent": "other"}}),
        ({"_meta": {"baggage": "other"}}, {"_meta": {"baggage": "other"}}),
        ({"_meta": 5}, {"_meta": 5}),
    ],
)
def test_it_is_added_to_parameters_that_name_none(params: dict[str, Any] | None, sent: dict[str, Any]) -> None:
    before = None if params is None else {**params}
    assert HERE.added_to(params) == sent
    assert params == before


def test_a_block_uses_it_and_gives_back_what_was_there() -> None:
    assert TraceContext.current() is None
    with HERE.use():
        assert TraceContext.current() is HERE
        with pytest.raises(KeyError), TraceContext(baggage="k=v").use():
            assert TraceContext.current() == TraceContext(baggage="k=v")
            raise KeyError
        assert TraceContext.current() is HERE
    assert TraceContext.current() is None
