"""The result of a check as plain data; `trio_mcp.conformance.report` renders it."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any, Literal, TypeAlias

import attrs

from trio_mcp.conformance.facts import Facts
from trio_mcp.conformance.members import object_of
from trio_mcp.conformance.rules.model import Rule
from trio_mcp.conformance.serving.script import Script
from trio_mcp.conformance.steps import Plan
from trio_mcp.conformance.transcript.events import Event

__all__ = ["CheckReport", "Ended", "Failure", "Kind", "Outcome", "Preview", "Progress", "Reached", "Status"]

Status: TypeAlias = Literal["held", "broken", "not exercised", "not checkable"]
Kind: TypeAlias = Literal["tool", "prompt", "resource", "template"]
Ended: TypeAlias = Literal[
    "complete", "time", "bytes", "interrupted", "no handshake", "target died", "target hangs", "target floods"
]


@attrs.frozen
class Progress:
    """The progress of a check.

    Attributes:
        examples: How many examples were run.
        of: How many examples are to be run.
        seconds: How long the check has taken so far.
        requests: How many requests were sent.
        broken: How many rules are broken so far.
    """

    examples: int
    of: int
    seconds: float
    requests: int
    broken: int


@attrs.frozen
class Preview:
    """A preview of a check, made without running it.

    Attributes:
        facts: The facts about the target, for each revision that would be spoken.
        rules: The rules that would be judged.
        moves: The names of the moves that would be made, by revision.
        not_checkable: The reasons why rules could not be checked, by the id of the rule.
    """

    facts: tuple[Facts, ...]
    rules: tuple[Rule, ...]
    moves: Mapping[str, tuple[str, ...]]
    not_checkable: Mapping[str, str] = attrs.Factory(dict)


@attrs.frozen
class Failure:
    """A rule that is broken, and the smallest exchange that shows it.

    Attributes:
        problem: The problem, in one line.
        transcript: The smallest exchange that shows the problem.
        at: The index of the event in the transcript that broke the rule.
        plan: The steps that lead to the failure, which can be replayed; for a client's failure, the script of the
            server; None for an authorization server's.
        revision: The revision spoken.
        seen: How often the rule was broken when these steps were run again.
        of: How often the steps were run again.
        example: The number of the example that showed it first.
        command: A line for a shell that shows it without the kit, with masks in place of secrets; empty if there is
            none.
    """

    problem: str
    transcript: tuple[Event, ...]
    at: int
    plan: Plan | Script | None
    revision: str
    seen: int
    of: int
    example: int
    command: str = ""

    @property
    def steps(self) -> Plan | None:
        """The steps that can be replayed: those of the plan that a server was sent. None for any other failure."""
        return None if isinstance(self.plan, Script) else self.plan

    @property
    def is_rare(self) -> bool:
        """Whether the steps were run again, and never broke the rule in these runs."""
        return self.seen == 0 < self.of

    @property
    def messages(self) -> int:
        """The number of messages in the failing example, in both directions; handshakes and the listing don't count.

        The requests that the kit repeats, to see whether an overdue response was lost, don't count either.
        """
        count, again = 0, False
        main, hellos = 0, set[tuple[int, Any]]()
        before: Event | None = None
        for event in self.transcript:
            what = event.facts.get("what") if event.kind == "mark" else None
            # All events before the mark are a prologue that does not count: the handshake, the listing, and earlier
            # examples.
            if what == "begin":
                count, main = 0, event.connection
            elif what in ("again", "overdue", "repeated"):
                again = what == "again"
            # Streams begin with an event without data, which does not count.
            elif (event.kind == "message" or (event.kind == "text" and event.text)) and not again:
                # The lines of a message that was broken into several follow one another, and count as one.
                pieces = event.kind == "text" and before is not None and before.kind == "text"
                joined = pieces and before is not None and before.sender == event.sender == "server"
                count += not (joined or (event.connection != main and _greets(event, hellos)))
            before = event
        return count


def _greets(event: Event, hellos: set[tuple[int, Any]]) -> bool:
    """Return whether a message belongs to the handshake of a connection.

    Args:
        event: The event of the message.
        hellos: The connection and the id of each ``initialize`` so far, which is added to.
    """
    message = object_of(event.message)
    key = event.connection, str(message.get("id"))
    if event.sender == "client":
        if message.get("method") == "initialize":
            hellos.add(key)
        return message.get("method") in ("initialize", "notifications/initialized")
    return "method" not in message and key in hellos


@attrs.frozen
class Outcome:
    """The finding of a check about one rule.

    Attributes:
        rule: The rule.
        status: Whether the rule held, was broken, had no occasion, or can't be checked on this target.
        occasions: On how many occasions the rule was judged.
        reason: Why the rule had no occasion or can't be checked.
        failure: The failure, if the rule is broken.
        known: Whether the failure is in the baseline.
    """

    rule: Rule
    status: Status
    occasions: int = 0
    reason: str = ""
    failure: Failure | None = None
    known: bool = False

    @property
    def fails(self) -> bool:
        """Whether this outcome makes the check fail: a MUST is broken, and the rule is not in the baseline."""
        # Only a MUST counts, because there may be valid reasons not to do what a SHOULD says (RFC 2119, section 3), and
        # no sentence demands what is EXPECTED. A broken MUST counts even if no rerun reproduced the fault.
        return self.status == "broken" and self.rule.level == "MUST" and not self.known

    @property
    def excuse(self) -> str:
        """Why the check does not fail although the rule is broken."""
        if self.known:
            return "known from the baseline"
        return "an EXPECTED rule is broken" if self.rule.level == "EXPECTED" else "a SHOULD is broken"


@attrs.frozen
class Reached:
    """The calls of a tool, prompt, resource or template, or those to which a schema keyword applied, by what became of
    them.

    Only calls that are valid by the schema count, with headers and metadata that a server must accept.

    Attributes:
        kind: What was called.
        name: Its name, URI or URI template.
        called: How many calls were made.
        accepted: How many were answered with a result that does not say `isError`.
        refused: How many were answered with an error. The others had no answer, for example because they were
            cancelled.
        why: Why no call was accepted; empty if one was.
        keyword: For a keyword, its place in the input schema, as a JSON pointer; otherwise empty.
        broken: For a keyword, how many further calls broke it on purpose.
    """

    kind: Kind
    name: str
    called: int = 0
    accepted: int = 0
    refused: int = 0
    why: str = ""
    keyword: str = ""
    broken: int = 0


@attrs.frozen
class CheckReport:
    """The result of a check.

    Attributes:
        target: The target's name, without secrets.
        side: The side that was checked; ``issuer`` is an authorization server.
        transport: The name of the transport.
        revisions: The revisions that were spoken.
        info: The name and the version of the target, as it states them.
        seed: The seed of everything random in the check.
        examples: How many plans were run.
        requests: How many requests were sent.
        seconds: How long the check took.
        generating: How many seconds of the check were spent on generating plans.
        outcomes: The outcome of each rule.
        notes: Facts that the user must know, for example which tools were not called and why.
        ended: Why the check ended.
        figures: Latencies, memory and the like, by name.
        wanted: How many plans were to be run.
        undecided: The reasons why the result does not show that the unbroken rules hold, one sentence each.
        advice: What could be better although no rule is about it, such as how much a model has to read.
        causes: The ids of the broken rules, those with one cause together, the deepest first; a rule that is missing
            has a cause of its own.
        reached: What became of the calls of each tool, prompt, resource and template of a server, each followed by the
            keywords of its schema.
    """

    target: str
    side: Literal["server", "client", "issuer"]
    transport: str
    revisions: tuple[str, ...]
    info: str
    seed: int
    examples: int
    requests: int
    seconds: float
    generating: float
    outcomes: tuple[Outcome, ...]
    notes: tuple[str, ...] = ()
    ended: Ended = "complete"
    figures: Mapping[str, Any] = attrs.Factory(dict)
    wanted: int = 0
    undecided: tuple[str, ...] = ()
    advice: tuple[str, ...] = ()
    causes: tuple[tuple[str, ...], ...] = ()
    reached: tuple[Reached, ...] = ()

    @property
    def findings(self) -> tuple[tuple[Outcome, ...], ...]:
        """The outcomes of the broken rules, those with one cause together, the deepest first.

        Known failures are apart from others.
        """
        broken = {outcome.rule.id: outcome for outcome in self.broken}
        group = {rule: rules for rules in self.causes for rule in rules}
        found: dict[tuple[bool, str], tuple[Outcome, ...]] = {}
        for rule, outcome in broken.items():
            together = [broken[each] for each in group.get(rule, (rule,)) if each in broken]
            same = tuple(each for each in together if each.known == outcome.known)
            found.setdefault((outcome.known, same[0].rule.id), same)
        return tuple(found.values())

    @property
    def broken(self) -> tuple[Outcome, ...]:
        """The outcomes of the rules that are broken."""
        return tuple(outcome for outcome in self.outcomes if outcome.status == "broken")

    def knowing(self, baseline: Container[str]) -> CheckReport:
        """Return the report with the failures of all rules in a baseline marked as known."""
        return attrs.evolve(
            self,
            outcomes=tuple(
                attrs.evolve(each, known=each.status == "broken" and each.rule.id in baseline) for each in self.outcomes
            ),
        )

    @property
    def status(self) -> int:
        """The exit status.

        It is 1 if a MUST is broken that is not in the baseline; otherwise 2 if there are `doubts`, for example because
        the target died, hung or flooded the kit, or is `untested`; otherwise 0.
        """
        if any(outcome.fails for outcome in self.outcomes):
            return 1
        return 2 if self.doubts else 0

    @property
    def doubts(self) -> tuple[str, ...]:
        """The reasons why the result does not show that the unbroken rules hold; empty if it does."""
        found = self.undecided or ((f"the {self.ended}",) if self.ended.startswith("target") else ())
        return (*found, self.untested) if self.untested else found

    @property
    def untested(self) -> str:
        """A sentence that says that calls were made, and none was accepted; empty if one was, or none was made."""
        items = [each for each in self.reached if not each.keyword]
        called = sum(each.called for each in items)
        if not called or any(each.accepted for each in items):
            return ""
        calls = "the only call" if called == 1 else f"each of the {called:,} calls"
        refused = sum(each.refused for each in items)
        became = "was refused" if refused == called else "was refused or had no answer" if refused else "had no answer"
        return f"the server is untested, as {calls} {became}"
