"""The kit's commands: certify, list, explain, replay, verify. They parse, call and print."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from ..protocol import Refusal
from .model import CONFORMANT, COULD_NOT_RUN, FAILED, VERDICTS, Report
from .profiles import DEFAULT_PROFILE, get_profile
from .report_kinds import ENGINE, kind_of, reproduction

INCOMPLETE_CODE = 2


def _say(line: str) -> None:
    click.echo(line, err=True)


_PROFILE = click.option("--profile", default=DEFAULT_PROFILE, show_default=True, metavar="ID", help="The profile.")
_REPORT_DIR = click.option(
    "--report-dir",
    type=click.Path(file_okay=False, path_type=Path),
    help="Write report.json, report.html, junit.xml and badge.json into this folder.",
)
_EXPECT = click.option(
    "--expect", type=click.Choice(VERDICTS), default=CONFORMANT, show_default=True, help="The verdict that exits 0."
)


@click.command(
    epilog="""Examples:

    torchlens-conformance certify mypackage.sinks:SUBJECT --report-dir report

    torchlens-conformance certify mypackage.sinks:MySink --reader mypackage.sinks:read

Exit codes: 0 conformant, or the verdict of --expect; 1 with deviations or nonconformant; 2 incomplete or void; 3 wrong
usage or a fault of the kit."""
)
@click.argument("target", metavar="PKG.MOD:SUBJECT")
@click.option("--reader", metavar="PKG.MOD:READ", help="The reader, when TARGET is a sink class and not a Subject.")
@click.option("--check", "checks", multiple=True, metavar="CHECK", help="Run only this check; may be repeated.")
@_PROFILE
@_REPORT_DIR
@_EXPECT
def certify(
    target: str,
    reader: str | None,
    checks: tuple[str, ...],
    profile: str,
    report_dir: Path | None,
    expect: str,
) -> int:
    """Certify a sink: run the controls, then every check of the profile, and print the verdict."""
    report = _certified(target, reader, checks, profile, report_dir)
    _print_report(report)
    return 0 if report.verdict == expect else report.exit_code or 1


def _certified(
    target: str, reader: str | None, checks: tuple[str, ...], profile: str, report_dir: Path | None
) -> Report:
    from .certify import certify as run
    from .certify import require_checks
    from .conclude import unimportable
    from .finding_subjects import CannotImport, find_subject
    from .report import write_report

    chosen = get_profile(profile)
    require_checks(chosen, checks)
    try:
        subject = find_subject(target, reader)
    except CannotImport as error:
        report = unimportable(target, str(error), chosen)
    else:
        reference = {"reader": reader, "target": target}
        report = run(subject, profile=profile, checks=checks or None, reference=reference, progress=_say)
    if report_dir is not None:
        try:
            for path in write_report(report.document, report_dir).values():
                _say(f"wrote {path}")
        except OSError as error:
            raise click.ClickException(f"{report_dir} cannot be written: {error}") from error
    return report


def _print_report(report: Report) -> None:
    document = report.document
    for row in document["results"]:
        if row["outcome"] in (FAILED, COULD_NOT_RUN):
            _print_row(row, reproduction(document, row["check"]))
    counts = document["checks"]
    click.echo(
        f"{counts['executed']} of {counts['expected']} checks executed: {counts['passed']} passed, "
        f"{counts['failed']} failed, {counts['known_deviations']} known deviations, "
        f"{counts['could_not_run']} could not run, {counts['not_run']} not run; "
        f"{counts['not_declared']} not declared, {counts['not_applicable']} not applicable"
    )
    click.echo(f"profile {document['profile']['id']} ({document['profile']['digest']})")
    for accepted in document["profile"]["accepts"]:
        click.echo(f"  accepts {accepted}")
    click.echo(f"{report.subject['name']}: {report.verdict}. {report.why}")


def _print_row(row: Mapping[str, Any], again: str) -> None:
    known = f" (known {row['deviation']})" if row["deviation"] else ""
    level = "" if row["level"] == "must" else " (should)"
    click.echo(f"{row['outcome']}{known}{level}: {row['check']} [{', '.join(row['clauses'])}]")
    for finding in row["findings"][:3]:
        click.echo(f"    {finding['message']} [{finding['loss']}]")
    if row["findings_in_all"] > 3:
        click.echo(f"    and {row['findings_in_all'] - 3} more")
    if row["reason"] and not row["findings"]:
        click.echo(f"    {row['reason']}")
    click.echo(f"    again: {again}")


@click.command("list", epilog="Examples: torchlens-conformance list; torchlens-conformance list --engine")
@_PROFILE
@click.option("--engine", "engines", is_flag=True, help="List the laws of engines, not the checks of sinks.")
def list_checks(profile: str, engines: bool) -> int:
    """List every check of a profile, its clauses, and the planted defects that it kills."""
    from .explain import killers

    if engines:
        from .engine.defects import DEFECTS as ENGINE_DEFECTS
        from .engine.profile import engine_profile

        chosen, kills = engine_profile(), killers(ENGINE_DEFECTS)
    else:
        from .defects import DEFECTS

        chosen, kills = get_profile(profile), killers(DEFECTS)
    width = max((len(check.id) for check in chosen.checks), default=0)
    for check in chosen.checks:
        defects = ", ".join(kills.get(check.id, ())) or "none"
        click.echo(f"{check.id:<{width}}  {check.level:<6}  {', '.join(check.clauses)}; kills {defects}")
    click.echo(f"{len(chosen.checks)} {'laws' if engines else 'checks'}, profile {chosen.id}, {chosen.digest}")
    return 0


@click.command(epilog="Example: torchlens-conformance explain values.scalar")
@click.argument("check")
def explain(check: str) -> int:
    """Say what a check or a law asks, why, how it is made to fail, and what an author usually has to do."""
    from .explain import explanation

    click.echo(explanation(check))
    return 0


@click.command(epilog="Example: torchlens-conformance replay report/report.json values.scalar")
@click.argument("report", type=click.Path(dir_okay=False, path_type=Path))
@click.argument("check")
def replay(report: Path, check: str) -> int:
    """Run one check, or law, of a report again, and say whether it says the same.

    Exit 0 when the outcome is the one of the report, 1 when it is another, 2 when it gave no answer.
    """
    from .verify import load_report

    document = load_report(report)
    reference = document["subject"]["reference"]
    if reference is None:
        raise Refusal(
            "kit_subject_not_found",
            "The report does not say how its subject is found again.",
            remedy="Certify a Subject that is a module-level name, or use the certify command.",
            report=str(report),
        )
    again = _asked_again(document, check)
    then = next((row["outcome"] for row in document["results"] if row["check"] == check), "not run")
    now = next((row for row in again.document["results"] if row["check"] == check), None)
    if now is None:
        click.echo(f"{check}: {again.why}")
        return INCOMPLETE_CODE
    if now["findings"] or now["outcome"] == COULD_NOT_RUN:
        _print_row(now, f"torchlens-conformance replay {report} {check}")
    click.echo(f"{check}: {then} in the report, {now['outcome']} now")
    if now["outcome"] == COULD_NOT_RUN:
        return INCOMPLETE_CODE
    return 0 if now["outcome"] == then else 1


def _asked_again(document: Mapping[str, Any], check: str) -> Report:
    reference = document["subject"]["reference"]
    if kind_of(document) is ENGINE:
        from .engine.adapters import find_engine
        from .engine.examine import examine

        return examine(find_engine(reference["target"]), target=reference["target"], laws=[check])
    from .certify import require_checks

    require_checks(get_profile(document["profile"]["id"]), [check])
    return _certified(reference["target"], reference["reader"], (check,), document["profile"]["id"], None)


@click.command(epilog="Example: torchlens-conformance verify report/report.json")
@click.argument("report", type=click.Path(dir_okay=False, path_type=Path))
def verify(report: Path) -> int:
    """Verify a report: its digest, its schema, its counts, and that its verdict follows from its results.

    Exit 0 when it holds, whatever its verdict; 2 when it does not.
    """
    from .verify import load_report

    try:
        document = load_report(report)
    except Refusal as refusal:
        click.echo(str(refusal), err=True)
        return INCOMPLETE_CODE
    counts = document["checks"]
    click.echo(
        f"{report.name} is unaltered: {document['subject']['name']} is {document['verdict']}, "
        f"{counts['executed']} of {counts['expected']} {kind_of(document).unit}s executed, "
        f"profile {document['profile']['id']}."
    )
    return 0
