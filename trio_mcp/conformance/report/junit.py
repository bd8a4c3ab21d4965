"""Renders a report as JUnit XML, which continuous-integration systems understand.

Each rule is a test. As with the exit status, a test fails only if its rule is a MUST that is broken and not in the
baseline; other failures are skipped tests whose message says why. If the check was undecided, there is one more test,
which is an error.
"""

from __future__ import annotations

from xml.etree.ElementTree import Element, SubElement, indent, tostring

from trio_mcp.conformance.outcomes import CheckReport, Outcome
from trio_mcp.conformance.report.table import failure_lines
from trio_mcp.conformance.report.view import clean, headline, problem_of, reached, reached_line, sections

__all__ = ["junit"]


def junit(report: CheckReport) -> str:
    """Return a report as JUnit XML."""
    suites = Element("testsuites")
    suite = SubElement(suites, "testsuite", name=clean(f"trio-mcp check {report.target}"))
    properties = SubElement(suite, "properties")
    for name in ("side", "transport", "info", "seed", "examples", "requests", "ended"):
        SubElement(properties, "property", name=name, value=clean(str(getattr(report, name))))
    SubElement(properties, "property", name="revisions", value=", ".join(report.revisions))
    if said := reached_line(report):
        SubElement(properties, "property", name="reached", value=clean(said))
    for each in reached(report):
        item = each.item
        counts = f"called {item.called}, accepted {item.accepted}, refused {item.refused}"
        idle = f"; keywords never reached: {', '.join(each.idle)}" if each.idle and not each.why else ""
        text = f"{counts}{f': {each.why}' if each.why else idle}"
        SubElement(properties, "property", name=f"calls of {each.label}", value=text)
    deepest = {outcome.rule.id: found[0].rule.id for found in report.findings for outcome in found[1:]}
    for section in sections(report):
        for outcome in section.outcomes:
            # The class name contains dots, at which JUnit readers split it to show a tree. The time is 0 because the
            # rules were judged together, so no rule has a time of its own; but readers expect the attribute.
            case = SubElement(
                suite, "testcase", classname=section.path.replace("/", "."), name=outcome.rule.id, time="0"
            )
            _judge(case, outcome, deepest.get(outcome.rule.id, ""))
    if report.status == 2:
        case = SubElement(suite, "testcase", classname="check", name="decided", time="0")
        kind = "untested" if report.doubts == (report.untested,) else "undecided"
        SubElement(case, "error", type=kind, message=clean(headline(report)))
    for name, cases in {"errors": "/error", "tests": "", "failures": "/failure", "skipped": "/skipped"}.items():
        suite.set(name, str(len(suite.findall(f"testcase{cases}"))))
    suite.set("time", f"{report.seconds:.3f}")
    indent(suites)
    return tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _judge(case: Element, outcome: Outcome, cause: str) -> None:
    """Write the outcome of a rule; ``cause`` is the deeper rule that the same cause breaks, if there is one."""
    if outcome.status == "held":
        return
    if outcome.status != "broken":
        # The text is cleaned because XML can't represent most control characters, not even as escapes (XML 1.0, section
        # 2.2), and ElementTree does not refuse them.
        SubElement(case, "skipped", message=clean(f"{outcome.status}: {outcome.reason}"))
        return
    problem = (f"the same cause as {cause}: " if cause else "") + problem_of(outcome)
    text = "\n".join(failure_lines(outcome))
    if outcome.fails:
        SubElement(case, "failure", type=outcome.rule.level, message=problem).text = text
        return
    SubElement(case, "skipped", message=f"{outcome.excuse}: {problem}")
    SubElement(case, "system-out").text = text
