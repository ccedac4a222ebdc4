"""Laws about conduct: the end, being a guest, what is moved, refusals at attach."""

from __future__ import annotations

from collections.abc import Mapping

from ...model import Finding
from ..looking import data_rows, finding, unexpected
from ..observation import ACKNOWLEDGED, REFUSED, Law, Observed

Observations = Mapping[str, Observed]

MOST_BYTES_PER_ELEMENT = 0.5
"""Growth of Python's own memory at one boundary, per element: a copy on the host takes at least one byte more."""


def _after_close(observations: Observations) -> list[Finding]:
    findings = []
    for observed in observations.values():
        facts = observed.facts
        findings += unexpected(observed, among=("attach", "close", "train"))
        extra = len(observed.first_rows) - facts.get("rows_at_close", 0)
        if extra:
            findings.append(finding("Rows came after close.", "no row", f"{extra} rows", "coerced", observed.case))
        if not facts.get("same_report"):
            text = "Closing again did not return the same report."
            findings.append(finding(text, "the same report", "another, or none", "coerced", observed.case))
        last = observed.events[-1]
        if last.what == "step" and last.outcome != REFUSED:
            text = "A step after close is not refused."
            findings.append(finding(text, "a refusal", last.outcome, "coerced", observed.case))
    return findings


def _empty_close(observations: Observations) -> list[Finding]:
    findings = []
    for observed in observations.values():
        close = next((event for event in observed.events if event.what == "close"), None)
        wanted = "watch_close_empty" if observed.case.endswith("/failed") else None
        seen = "it was never closed" if close is None else close.code or close.outcome
        if close is None or close.code != wanted or (wanted is None and close.outcome != ACKNOWLEDGED):
            text = "A run that saw steps and has nothing to show must not close as if it had."
            findings.append(finding(text, wanted or "it returns", seen, "dropped silently", observed.case))
    return findings


def differing(observed: Observed, text: str) -> list[Finding]:
    """Return a finding when the watched run did not leave what the unwatched one left."""
    watched, unwatched = observed.facts["watched"], observed.facts["unwatched"]
    other = [part for part in unwatched if watched.get(part) != unwatched[part]]
    return [finding(text, "the same bits", f"other {', '.join(other)}", "coerced", observed.case)] if other else []


def _twins(observations: Observations) -> list[Finding]:
    findings = []
    for observed in observations.values():
        findings += differing(observed, "The watched run is not the unwatched one, bit for bit.")
        for signal in observed.facts["signals"]:
            arrived = {row.step for row in data_rows(observed.first_rows) if row.tag.startswith(f"{signal}/norm/")}
            missing = [n for n in observed.facts["steps"] if n not in arrived]
            if missing:
                text = f"No {signal} arrived, so being no burden proves nothing."
                shown = f"none at {len(missing)} steps, the first of them {missing[0]}"
                findings.append(finding(text, "rows on every step", shown, "dropped silently", observed.case))
        findings += unexpected(observed)
    return findings


def _hooks(observations: Observations) -> list[Finding]:
    findings = []
    for observed in observations.values():
        if "before" in observed.facts and observed.facts["before"] != observed.facts["after"]:
            text = "After close the hooks are not those that were there before attach."
            before, after = observed.facts["before"], observed.facts["after"]
            findings.append(finding(text, before, after, "coerced", observed.case))
        raised = [event for event in observed.events if event.what == "step" and event.outcome != ACKNOWLEDGED]
        own = 'LookupError: "the loop\'s own"', "LookupError: the loop's own"
        if observed.case.endswith("/raising") and [event.exception for event in raised] not in [[text] for text in own]:
            text = "The loop's own exception did not come out as it was."
            shown = [event.exception for event in raised] or "nothing was raised"
            findings.append(finding(text, own[1], shown, "coerced", observed.case))
    return findings


def _transfer(observations: Observations) -> list[Finding]:
    small, large = sorted(observations.values(), key=lambda observed: observed.facts["size"])
    findings = [*unexpected(small), *unexpected(large)]
    grown = large.facts["elements"] - small.facts["elements"]
    if None in (small.facts.get("peak"), large.facts.get("peak")):
        return findings
    per_element = (large.facts["peak"] - small.facts["peak"]) / grown
    if per_element > MOST_BYTES_PER_ELEMENT:
        text = "What one boundary takes of the host's memory grows with the elements."
        wanted = f"at most {MOST_BYTES_PER_ELEMENT} bytes an element"
        findings.append(finding(text, wanted, f"{per_element:.2f} bytes an element", "coerced", large.case))
    if not data_rows(large.first_rows):
        findings.append(finding("No row came.", "rows", "none", "dropped silently", large.case))
    return findings


def _plan(observations: Observations) -> list[Finding]:
    small, large = sorted(observations.values(), key=lambda observed: observed.facts["size"])
    planned = [observed.facts.get("planned") for observed in (small, large)]
    if planned[0] is not None and planned[0] == planned[1]:
        return []
    text = "The bytes that the plan states depend on how many elements there are."
    return [finding(text, "the same number twice", planned, "coerced", large.case)]


def _refusals(observations: Observations) -> list[Finding]:
    findings = []
    for observed in observations.values():
        first, code = observed.events[0], observed.facts["code"]
        if first.code != code:
            later = [event.code for event in observed.events[1:] if event.code]
            seen = f"{first.code or first.outcome}{f', later {later}' if later else ''} {first.exception}".strip()
            text = "An attach that has to be refused was not refused by its code."
            findings.append(finding(text, code, seen, "coerced", observed.case))
    return findings


def _clean(observations: Observations) -> list[Finding]:
    findings = []
    for observed in observations.values():
        if observed.events[0].outcome == ACKNOWLEDGED:
            # It attached, which another law tells; there is no failed attach to look at.
            continue
        before, after = observed.facts["before"], observed.facts["after"]
        if before != after:
            text = "A refused attach left a hook behind."
            findings.append(finding(text, before, after, "coerced", observed.case))
        rows = sum(map(len, observed.rows.values()))
        if rows:
            text = "A refused attach sent rows."
            findings.append(finding(text, "no row", f"{rows} rows", "coerced", observed.case))
        if not observed.facts["again"]:
            text = "After a refused attach the model cannot be watched."
            findings.append(finding(text, "it attaches and closes", "it does not", "refused", observed.case))
    return findings


LAWS = (
    Law(
        "close.final",
        ("CLOSE-3", "CLOSE-4", "PROT-6"),
        "After close: the same report again, no row, and no further step?",
        ("after-close",),
        _after_close,
        remedy="Take the hooks away at close, and keep the report.",
    ),
    Law(
        "close.empty",
        ("CLOSE-2",),
        "Does a run that saw steps and has no data point refuse to close quietly?",
        ("empty-close",),
        _empty_close,
        remedy="Count data points apart from heartbeat and manifest.",
    ),
    Law(
        "close.hooks",
        ("CLOSE-3", "TAG-4"),
        "Are hooks after close those that were there before attach, also when the loop raised?",
        ("hooks",),
        _hooks,
        ("parameters", "updates"),
        remedy="Keep every handle, and remove all of them in close.",
    ),
    Law(
        "guest.twins",
        ("ATTACH-6", "STEP-1", "CLOSE-3"),
        "Is a watched run of 50 steps the unwatched one, bit for bit, while rows arrive on every step?",
        ("twins",),
        _twins,
        ("parameters", "updates", "histograms", "amp"),
        remedy="Write to nothing, draw no random number, change no mode, and take every hook away.",
    ),
    Law(
        "guest.closure",
        ("ATTACH-6", "STEP-10", "CLOSE-3"),
        "The same with an optimizer that evaluates a closure several times a step?",
        ("twins-closure",),
        _twins,
        ("parameters", "updates", "histograms", "amp", "closure"),
        remedy="Call the closure as often as the optimizer does, and return what it returned.",
    ),
    Law(
        "guest.modules",
        ("TIER-1", "ATTACH-6", "CLOSE-3"),
        "The same with the outputs of modules watched as well?",
        ("twins-modules",),
        _twins,
        ("parameters", "updates", "histograms", "amp", "closure", "activations"),
        remedy="Return None from forward hooks, and put back what a forward at attach changed.",
    ),
    Law(
        "transfer.bounded",
        ("XFER-1",),
        "Does what one boundary takes of the host's memory not grow with the elements?",
        ("transfer",),
        _transfer,
        ("histograms",),
        remedy="Reduce where the tensors are, and move counts and statistics only.",
    ),
    Law(
        "transfer.plan",
        ("XFER-1",),
        "Do the bytes that the plan states not depend on how many elements there are?",
        ("transfer",),
        _plan,
        ("plan", "histograms"),
        remedy="State sites times buckets.",
    ),
    Law(
        "attach.refusals",
        ("ATTACH-1", "ATTACH-2", "ATTACH-3", "ATTACH-4", "ATTACH-5", "TAG-3", "PROT-3", "PROT-4", "PROT-7"),
        "Is everything that cannot work refused at attach, by its code?",
        ("refusals",),
        _refusals,
        ("histograms",),
        remedy="Check all of it before the first hook.",
    ),
    Law(
        "attach.clean",
        ("ATTACH-6",),
        "Does a refused attach leave no hook, no row and a model that can be watched?",
        ("refusals",),
        _clean,
        ("histograms",),
        remedy="Register last.",
    ),
)
"""The laws about conduct."""
