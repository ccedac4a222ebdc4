"""The pytest plugin: a module-level ``name = certification(SUBJECT)`` becomes one test item a check.

It costs nothing when it is not used: nothing of the kit is imported before a certification is collected. What each
item saw travels with its report, also between processes, so the verdict is made where all results meet.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from .certification import Certification
    from .conclude import SubjectFacts
    from .model import CheckResult, ControlResult

_ATTRIBUTE = "torchlens_certification"
_UNCOLLECTED = "torchlens_uncollected"
_MODULE = "torchlens_conformance.kit.certification"
_CONTROLS, _WIREDNESS = "controls", "wiredness"
_MOST_SHOWN = 4
_JUDGEMENTS = pytest.StashKey["dict[str, dict[str, Any]]"]()


def pytest_pycollect_makeitem(collector: pytest.Module | pytest.Class, name: str, obj: object) -> Any:
    """Collect a module-level certification under its name."""
    if type(obj).__module__ == _MODULE and type(obj).__name__ == "Certification":
        return CertificationCollector.from_parent(collector, name=name, bound=obj)
    return None


class CertificationCollector(pytest.Collector):
    """The items of one certification, in a fixed order with stable ids."""

    bound: Certification

    @classmethod
    def from_parent(cls, parent: pytest.Collector, *, name: str, bound: Any) -> CertificationCollector:  # type: ignore[override]
        """Make the collector of ``bound`` under ``parent``."""
        node: CertificationCollector = super().from_parent(parent, name=name)
        node.bound = bound
        return node

    def collect(self) -> Iterator[pytest.Item]:
        """Yield the controls, the wiredness probe, and every check of the profile."""
        for name in (_CONTROLS, _WIREDNESS, *self.bound.profile.levels):
            # Each is a function, so that the marks and fixtures of the module hold for it, one that skips as well.
            yield CertificationItem.from_parent(self, name=name, callobj=_an_item)


def _an_item() -> None:
    """Stand for the function of a test: what an item runs is in its ``runtest``."""


class CheckFailed(Exception):
    """What a check or control found wrong, as text."""


class CertificationItem(pytest.Function):
    """One check, or the controls, or the wiredness probe."""

    parent: CertificationCollector
    told: dict[str, Any]

    def runtest(self) -> None:
        """Run it; what it saw is kept for the report whatever the outcome."""
        if self.name == _CONTROLS:
            self._control(self.parent.bound.runs().controls())
        elif self.name == _WIREDNESS:
            self._control((self.parent.bound.runs().probe(),))
        else:
            self._check(self.parent.bound.runs().result(self.name))

    def _control(self, controls: tuple[ControlResult, ...]) -> None:
        from .report import Steadied, control_row

        self.told = {"controls": [control_row(control, Steadied()) for control in controls]}
        broken = [f"{row.control}: had to {row.expected}; {row.seen}" for row in controls if not row.ok]
        if broken:
            raise CheckFailed("\n".join(broken))

    def _check(self, result: CheckResult) -> None:
        from .report import Steadied, result_row

        runs = self.parent.bound.runs()
        profile = self.parent.bound.profile
        facts = runs.facts()
        row = result_row(result, profile.levels[result.check], Steadied({runs.nonce: "NONCE"}))
        self.told = {"result": row, "subject": _packed(facts)}
        self._say(result, row, facts)

    def _say(self, result: CheckResult, row: dict[str, Any], facts: SubjectFacts) -> None:
        """Translate a check's outcome into pytest's."""
        from .model import COULD_NOT_RUN, FAILED, PASSED

        known, problems = _excused(self.parent.bound, result, facts)
        if problems:
            raise CheckFailed(f"The list of known deviations is wrong: {' '.join(problems)}")
        if result.outcome == FAILED and known is not None:
            pytest.xfail(f"known {known}")
        if result.outcome == FAILED and row["level"] == "should":
            pytest.xfail(f"a sink should do this: {row['findings'][0]['message']}")
        if result.outcome in (FAILED, COULD_NOT_RUN):
            raise CheckFailed(_text(row))
        if result.outcome != PASSED:
            pytest.skip(f"{result.outcome}: {result.reason}")

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Show what was found, without a traceback of ours."""
        if isinstance(excinfo.value, CheckFailed):
            return f"{excinfo.value}\n\nagain: pytest '{self.nodeid}'"
        return super().repr_failure(excinfo)

    def reportinfo(self) -> tuple[Any, int, str]:
        """Name the file and the item."""
        return self.path, 0, f"{self.parent.name}::{self.name}"


def _excused(bound: Certification, result: CheckResult, facts: SubjectFacts) -> tuple[str | None, list[str]]:
    from datetime import datetime, timezone

    from .deviations import excused

    (marked,), problems = excused(
        [result],
        facts.known(),
        version=facts.told["version"],
        profile=bound.profile.levels,
        today=datetime.now(timezone.utc).date(),
        partial=True,
    )
    # What is wrong with other entries is told at the end; here only what is about this check.
    return marked.deviation, [problem for problem in problems if result.check in problem.split()]


def _text(row: dict[str, Any]) -> str:
    lines = [f"{row['check']} [{', '.join(row['clauses'])}] {row['outcome']}"]
    shown = row["findings"][:_MOST_SHOWN]
    for finding in shown:
        lines.append(f"{finding['message']} [{finding['loss']}]")
        lines += [f"    {key}: {finding[key]}" for key in ("expected", "seen", "where") if finding[key]]
    if row["findings_in_all"] > len(shown):
        lines.append(f"and {row['findings_in_all'] - len(shown)} more")
    if row["reason"]:
        lines.append(row["reason"])
    return "\n".join(lines)


def _packed(facts: SubjectFacts) -> dict[str, Any]:
    return {"told": dict(facts.told), "deviations": dict(facts.deviations)}


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: Any) -> Generator[None, Any, None]:
    """Let what a certification's item saw travel with its report."""
    outcome = yield
    if isinstance(item, CertificationItem) and call.when == "call":
        bound = item.parent.bound
        payload = {
            **getattr(item, "told", {}),
            "certification": item.parent.nodeid,
            "name": bound.subject.name,
            "profile": bound.profile.id,
            "milliseconds": round(1000 * call.duration),
            "report_dir": str(bound.report_dir) if bound.report_dir is not None else None,
        }
        setattr(outcome.get_result(), _ATTRIBUTE, payload)
    elif isinstance(item, CertificationItem) and call.when == "setup" and call.excinfo is not None:
        bound = item.parent.bound
        payload = {"certification": item.parent.nodeid, "name": bound.subject.name, "profile": bound.profile.id}
        setattr(outcome.get_result(), _ATTRIBUTE, {**payload, "skipped": item.name})


@pytest.hookimpl(hookwrapper=True)
def pytest_make_collect_report(collector: pytest.Collector) -> Generator[None, Any, None]:
    """Let the report of a module that skipped itself say that a subject was to be certified there."""
    outcome = yield
    report = outcome.get_result()
    if report.skipped and isinstance(collector, pytest.Module) and _would_certify(collector):
        setattr(report, _UNCOLLECTED, str(report.longrepr[2]) if isinstance(report.longrepr, tuple) else "skipped")


def _would_certify(module: pytest.Module) -> bool:
    """Say whether a module's text binds a subject; it may have skipped itself before that line was reached."""
    try:
        text = module.path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return False
    return "torchlens_conformance" in text and "certification(" in text


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Keep the results where the report hook finds them."""
    config.stash[_JUDGEMENTS] = {}
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(_Meeting(config), "torchlens-conformance-meeting")


class _Meeting:
    """Where all results meet: the only process, or the one that the workers report to."""

    def __init__(self, config: pytest.Config) -> None:
        self.gathered = config.stash[_JUDGEMENTS]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Gather what the items of a certification saw."""
        payload = getattr(report, _ATTRIBUTE, None)
        if payload is None:
            return
        found = self.gathered.setdefault(
            payload["certification"], {"payloads": [], "skipped": [], "profile": payload["profile"]}
        )
        found["payloads"].append(payload)
        if "skipped" in payload:
            found["skipped"].append(payload["skipped"])

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Note a module that would certify a subject and skipped itself: no subject gets away without a verdict."""
        reason = getattr(report, _UNCOLLECTED, None)
        if reason is not None:
            line = f"incomplete, no certificate: the module skipped itself before anything was checked ({reason})"
            self.gathered[report.nodeid] = {"lines": [line], "skipped": [report.nodeid]}

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Judge every certification; one whose items were skipped does not end as a success."""
        from_skips = False
        for found in self.gathered.values():
            if "payloads" in found:
                _judge(found)
            from_skips = from_skips or bool(found["skipped"])
        if from_skips and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Print every verdict."""
        if not self.gathered:
            return
        terminalreporter.write_sep("=", "certification")
        for name, found in sorted(self.gathered.items()):
            for line in found.get("lines", ()):
                terminalreporter.write_line(f"{name}: {line}")


def _judge(found: dict[str, Any]) -> None:
    from .conclude import Observed, SubjectFacts, conclude
    from .model import INCOMPLETE
    from .profiles import get_profile
    from .report import control_from_document, result_from_document, write_report

    payloads = found["payloads"]
    rows = {row["check"]: row for row in (payload.get("result") for payload in payloads) if row is not None}
    profile = get_profile(found["profile"])
    results = [result_from_document(rows[check]) for check in profile.levels if check in rows]
    controls = [control_from_document(row) for payload in payloads for row in payload.get("controls", ())]
    facts = [SubjectFacts(**payload["subject"]) for payload in payloads if "subject" in payload]
    if not facts:
        found["lines"] = [f"incomplete, no certificate: none of its {len(profile.levels)} checks ran."]
        return
    # A process that ran a check without a sink (one that needs none) does not know the words; another one does.
    told = max(facts, key=lambda one: len(one.told["declared"]))
    partial = len(results) < len(profile.levels)
    observed = Observed(
        results=results,
        controls=sorted(controls, key=lambda control: control.control == "wiredness probe"),
        words=told.told["declared"],
        nonce="",
        milliseconds=sum(payload.get("milliseconds", 0) for payload in payloads),
        chosen=list(rows) if partial else None,
    )
    report = conclude(told, profile, observed)
    counts = report.document["checks"]
    word = "incomplete, no certificate" if report.verdict == INCOMPLETE else report.verdict
    found["lines"] = [
        f"{word}: {report.why}",
        f"{counts['executed']} of {counts['expected']} checks executed, profile {profile.id} ({profile.digest})",
    ]
    folder = next((payload["report_dir"] for payload in payloads if payload.get("report_dir")), None)
    if folder is not None:
        from pathlib import Path

        write_report(report.document, Path(folder))
        found["lines"].append(f"report in {folder}")
