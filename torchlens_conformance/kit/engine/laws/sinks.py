"""Laws about sinks: the ledger, a sink that fails, hangs or is interrupted, and their end. Clauses: PROT-5, PROT-6."""

from __future__ import annotations

from collections.abc import Mapping

from ...model import Finding
from ..looking import finding, unexpected
from ..observation import RAISED, Law, Observed, SinkFacts

Observations = Mapping[str, Observed]


def _ledger(observations: Observations) -> list[Finding]:
    findings = []
    for observed in observations.values():
        report = observed.report
        if report is None or len(report.sinks) != len(observed.rows):
            seen = "no report" if report is None else f"{len(report.sinks)} rows"
            findings.append(
                finding(
                    "The ledger has not one row a sink.", len(observed.rows), seen, "dropped silently", observed.case
                )
            )
            continue
        everything = max((len(rows) for rows in observed.rows.values()), default=0)
        for told, (name, rows) in zip(report.sinks, observed.rows.items()):
            where = f"{observed.case}: sink {name!r}"
            if told.emitted != len(rows):
                text = "The ledger counts other points than the sink took."
                findings.append(finding(text, len(rows), told.emitted, "coerced", where))
            should_fail = name == "middle" and bool(observed.facts.get("fails_at"))
            if told.failed != should_fail:
                text = "The ledger latches a sink that did not fail, or not the one that did."
                findings.append(finding(text, f"failed={should_fail}", f"failed={told.failed}", "coerced", where))
            if told.failed and "planted failure" not in told.why:
                text = "The ledger does not name the first failure."
                findings.append(finding(text, "OSError: planted failure ...", told.why, "dropped silently", where))
            if not should_fail and len(rows) != everything:
                text = "A healthy sink did not get every point that was computed."
                findings.append(finding(text, everything, len(rows), "dropped silently", where))
    return findings


def _isolation(observations: Observations) -> list[Finding]:
    healthy = next(observed for observed in observations.values() if observed.case.endswith("/healthy"))
    findings = unexpected(healthy)
    right = [(row.tag, row.step, row.value, row.counts) for row in healthy.first_rows if row.kind != "text"]
    if not right:
        findings.append(finding("No row came.", "rows", "none", "dropped silently", healthy.case))
    for observed in observations.values():
        for name in ("first", "last"):
            seen = [(row.tag, row.step, row.value, row.counts) for row in observed.rows[name] if row.kind != "text"]
            if seen != right:
                text = "The failure of one sink changed what another one got."
                where = f"{observed.case}: sink {name!r}"
                findings.append(finding(text, f"{len(right)} rows", f"{len(seen)} rows", "dropped silently", where))
        if observed.facts["parameters"] != healthy.facts["parameters"]:
            text = "The failure of a sink changed the training."
            findings.append(finding(text, "the same parameters", "others", "coerced", observed.case))
        findings += unexpected(observed)
    return findings


def _latched(observations: Observations) -> list[Finding]:
    return [
        finding(
            "A sink that failed was called again.",
            f"{observed.facts['fails_at']} calls",
            f"{observed.facts['calls']} calls",
            "coerced",
            observed.case,
        )
        for observed in observations.values()
        if observed.facts["fails_at"] and observed.facts["calls"] != observed.facts["fails_at"]
    ]


def _slow(observations: Observations) -> list[Finding]:
    findings = _isolation(observations)
    for observed in observations.values():
        told = _row_of(observed, "middle")
        short = len(observed.rows["middle"]) < len(observed.first_rows)
        if short and not (told is not None and told.failed and told.why):
            text = "A sink that was slow missed points, and the ledger does not say so."
            shown = f"{len(observed.rows['middle'])} of {len(observed.first_rows)} rows"
            findings.append(finding(text, "every point, or a named failure", shown, "dropped silently", observed.case))
    return findings


def _row_of(observed: Observed, name: str) -> SinkFacts | None:
    told = observed.report.sinks if observed.report is not None else ()
    return next((row for row, sink in zip(told, observed.rows) if sink == name), None)


def _ending(observations: Observations) -> list[Finding]:
    findings = _isolation(observations)
    for observed in observations.values():
        way, closed = observed.facts["raises_in"], observed.facts["closed"]
        if set(closed.values()) != {1}:
            text = "Not every sink was closed once."
            findings.append(finding(text, "each once", closed, "dropped silently", observed.case))
        told = _row_of(observed, "middle")
        if told is None or told.failed != bool(way) or (way and f"planted failure in {way}" not in told.why):
            text = "The ledger does not tell what became of the sink at its end."
            wanted = f"failed: planted failure in {way}" if way else "not failed"
            shown = "no row" if told is None else f"failed={told.failed} {told.why}".strip()
            findings.append(finding(text, wanted, shown, "dropped silently", observed.case))
    return findings


def _interrupted(observations: Observations) -> list[Finding]:
    findings = []
    for observed in observations.values():
        if not observed.facts.get("interrupted"):
            text = "An interrupt from the keyboard was swallowed."
            findings.append(finding(text, "KeyboardInterrupt comes out", "it did not", "coerced", observed.case))
        told = _row_of(observed, "first")
        if told is not None and told.failed:
            text = "An interrupt from the keyboard latched the sink."
            findings.append(finding(text, "not failed", told.why, "coerced", observed.case))
        if observed.facts["before"] != observed.facts["after"]:
            text = "After an interrupt and close hooks are left."
            before, after = observed.facts["before"], observed.facts["after"]
            findings.append(finding(text, before, after, "coerced", observed.case))
        # Whether such a run has something to show is not said, so close may refuse; it must not crash.
        findings += [
            finding("close did not return.", "it returns, or refuses", event.exception, "crashed", observed.case)
            for event in observed.events
            if (event.what, event.outcome) == ("close", RAISED)
        ]
    return findings


LAWS = (
    Law(
        "ledger.balance",
        ("CLOSE-1", "PROT-5"),
        "Does the ledger count, sink by sink, the points that each took, and latch the one that failed?",
        ("failing-sink",),
        _ledger,
        ("histograms",),
        remedy="Count after the sink returned, and key rows by the sink object.",
    ),
    Law(
        "ledger.isolation",
        ("PROT-5",),
        "Does a sink that raises at its n-th point change nothing for the others, and nothing of the training?",
        ("failing-sink",),
        _isolation,
        ("histograms",),
        remedy="Catch around each sink, not around all of them.",
    ),
    Law(
        "ledger.latched",
        ("PROT-5",),
        "Is a sink that failed left alone?",
        ("failing-sink",),
        _latched,
        ("histograms",),
        remedy="Skip a sink whose row has a failure.",
    ),
    Law(
        "ledger.slow",
        ("PROT-5",),
        "Does a sink that hangs for a second change nothing for the others, and nothing of the training?",
        ("slow-sink",),
        _slow,
        ("histograms",),
        remedy="Emission waits for the sink; a sink that is given up is latched by name.",
    ),
    Law(
        "ledger.ending",
        ("PROT-6", "CLOSE-1"),
        "Is every sink closed once, and told in the ledger, also when one raises in flush or in close?",
        ("ending-sink",),
        _ending,
        ("histograms",),
        remedy="Attempt every flush and every close on its own, and latch what raises.",
    ),
    Law(
        "ledger.interrupts",
        ("PROT-5", "CLOSE-3"),
        "Does an interrupt from the keyboard pass through an emission, and latch nothing?",
        ("interrupted-sink",),
        _interrupted,
        remedy="Catch Exception, and never BaseException.",
    ),
)
"""The laws about sinks."""
