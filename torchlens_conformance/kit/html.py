"""The report as one page for people: self-contained, light and dark, nothing loaded from anywhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

from .html_declared import declared_table
from .html_parts import TONE, table
from .model import COULD_NOT_RUN, FAILED
from .report_kinds import ENGINE, kind_of, reproduction
from .verdict import WIREDNESS

_STYLE = Path(__file__).parent / "schemas" / "report.css"

_MEANING = {
    "conformant": "Everything that the profile asks of this {subject} was run and held.",
    "with-deviations": "The {subject} works, with limits that are named below.",
    "nonconformant": "Something that {one} must do does not hold.",
    "incomplete": "This is no certificate: not everything was answered.",
    "void": "The kit failed its own controls; this run says nothing about the {subject}.",
}

_SHOWN = 2
# Findings of one check that stand open; the others unfold.


def report_page(document: Mapping[str, Any]) -> str:
    """Return the page of a report document. Everything from the subject is escaped; there is no script."""
    name = document["subject"]["name"]
    parts = [
        _header(document),
        _counts(document),
        _failures(document),
        declared_table(document),
        _all_checks(document),
        _controls(document),
        _about(document),
    ]
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(name)}: {document['verdict']}</title>\n"
        f"<style>\n{_STYLE.read_text(encoding='utf-8')}</style>\n</head>\n<body>\n<main>\n"
        + "\n".join(part for part in parts if part)
        + "\n</main>\n</body>\n</html>\n"
    )


def _header(document: Mapping[str, Any]) -> str:
    subject = document["subject"]
    origin = " ".join(part for part in (subject["distribution"], subject["version"]) if part)
    verdict = document["verdict"]
    accepted = document["profile"]["accepts"]
    kind = kind_of(document)
    lines = [
        '<header class="verdict ' + TONE[verdict] + '">',
        f'<p class="eyebrow">{kind.title}, profile {escape(document["profile"]["id"])}</p>',
        f"<h1>{escape(subject['name'])}</h1>",
        f'<p class="origin">{escape(origin)}</p>' if origin else "",
        f'<p class="word">{escape(verdict)}</p>',
        f"<p>{_MEANING[verdict].format(subject=kind.subject, one=kind.one)}</p>",
        f'<p class="why">{escape(document["why"])}</p>',
    ]
    if accepted:
        lines.append(f'<p class="accepts">This profile accepts {escape("; ".join(accepted))}.</p>')
    return "\n".join(line for line in lines if line) + "\n</header>"


def _counts(document: Mapping[str, Any]) -> str:
    counts = document["checks"]
    shown = [
        (counts["passed"], "passed", "good"),
        (counts["failed"], "failed", "bad"),
        (counts["known_deviations"], "known deviations", "warn"),
        (counts["could_not_run"], "could not run", "warn"),
        (counts["not_run"], "not run", "warn"),
        (counts["not_declared"], "not declared", "none"),
        (counts["not_applicable"], "not applicable", "none"),
    ]
    units = f"{kind_of(document).unit}s executed"
    tiles = f'<li class="all"><b>{counts["executed"]} of {counts["expected"]}</b><span>{units}</span></li>' + (
        "".join(
            f'<li class="{tone if number else "zero"}"><b>{number}</b><span>{label}</span></li>'
            for number, label, tone in shown
        )
    )
    return f'<section aria-label="Counts"><ul class="counts">{tiles}</ul></section>'


def _failures(document: Mapping[str, Any]) -> str:
    failed = [row for row in document["results"] if row["outcome"] == FAILED]
    stuck = [row for row in document["results"] if row["outcome"] == COULD_NOT_RUN]
    unexcused = [row for row in failed if not row["deviation"]]
    known = [row for row in failed if row["deviation"]]
    problems = document["deviations"]["problems"] if "deviations" in document else []
    listed = "".join(f"<li>{escape(problem)}</li>" for problem in problems)
    wrong = (
        f'<section>\n<h2>The list of known deviations is wrong</h2>\n<ul class="card warn">{listed}</ul>\n</section>'
    )
    parts = [
        _unwired(document),
        wrong if problems else "",
        _cards("What failed", document, unexcused),
        _cards("Known deviations", document, known),
        _stuck(document, stuck),
    ]
    return "\n".join(part for part in parts if part)


def _unwired(document: Mapping[str, Any]) -> str:
    seen = [row["seen"] for row in document["controls"] if row["control"] == WIREDNESS and not row["ok"]]
    if not seen:
        return ""
    told = f"Values were altered in the sink's own stream, and its reader must report them. {_sentence(seen[0])}"
    title = "<h2>The reader does not show what was written</h2>"
    return f'<section>\n{title}\n<div class="card bad"><p>{escape(told.rstrip("."))}.</p></div>\n</section>'


def _cards(title: str, document: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    if not rows:
        return ""
    cards = "\n".join(_card(document, row) for row in rows)
    return f"<section>\n<h2>{title} <small>{len(rows)}</small></h2>\n{cards}\n</section>"


def _card(document: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    known = row["deviation"]
    tone = "warn" if known or row["level"] == "should" else "bad"
    findings = row["findings"]
    level = "" if row["level"] == "must" else '<span class="level">should</span> '
    lines = [
        f'<article class="card {tone}" id="{escape(row["check"])}">',
        f"<h3><code>{escape(row['check'])}</code> {level}<small>{escape(', '.join(row['clauses']))}</small></h3>",
    ]
    if known:
        lines.append(f'<p class="known">{escape(_sentence(known))}</p>')
    lines += [_finding(finding) for finding in findings[:_SHOWN]]
    rest = findings[_SHOWN:]
    if rest:
        more = row["findings_in_all"] - _SHOWN
        word = "finding" if more == 1 else "findings"
        lines.append(f"<details><summary>{more} more {word}</summary>{''.join(map(_finding, rest))}</details>")
    lines.append(_again(document, row))
    return "\n".join(lines) + "\n</article>"


def _again(document: Mapping[str, Any], row: Mapping[str, Any]) -> str:
    return f'<p class="again"><code>{escape(reproduction(document, row["check"]))}</code></p>'


def _stuck(document: Mapping[str, Any], rows: Sequence[Mapping[str, Any]]) -> str:
    """Return the checks that could not run, grouped by their reason: it is usually the same for many."""
    if not rows:
        return ""
    groups: dict[str, list[str]] = {}
    for row in rows:
        groups.setdefault(row["reason"], []).append(row["check"])
    cards = [
        f'<article class="card warn">\n<p>{escape(_sentence(reason))}</p>\n<p class="names">'
        + " ".join(f"<code>{escape(check)}</code>" for check in checks)
        + f'</p>\n<p class="again"><code>{escape(reproduction(document, checks[0]))}</code></p>\n</article>'
        for reason, checks in groups.items()
    ]
    return f"<section>\n<h2>Could not run <small>{len(rows)}</small></h2>\n" + "\n".join(cards) + "\n</section>"


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]


def _finding(finding: Mapping[str, Any]) -> str:
    message = f'<p>{escape(finding["message"])} <span class="loss">{escape(finding["loss"])}</span></p>'
    pairs = [("expected", finding["expected"]), ("seen", finding["seen"]), ("where", finding["where"])]
    # What the sentence says already is not said again.
    shown = "".join(
        f"<dt>{key}</dt><dd><code>{escape(value)}</code></dd>"
        for key, value in pairs
        if value and value not in finding["message"]
    )
    return f'<div class="finding">{message}{f"<dl>{shown}</dl>" if shown else ""}</div>'


def _all_checks(document: Mapping[str, Any]) -> str:
    rows = []
    for row in document["results"]:
        state, tone = row["outcome"], TONE[row["outcome"]]
        if row["outcome"] == FAILED and (row["deviation"] or row["level"] == "should"):
            state, tone = ("known deviation" if row["deviation"] else "failed (should)"), "warn"
        reason = f" <small>{escape(row['reason'])}</small>" if row["reason"] else ""
        rows.append(
            f"<tr><td><code>{escape(row['check'])}</code></td><td>{escape(', '.join(row['clauses']))}</td>"
            f'<td><span class="dot {tone}"></span>{state}{reason}</td></tr>'
        )
    unit = kind_of(document).unit
    return table(f"Every {unit}", (unit, "clauses", "outcome"), rows)


def _controls(document: Mapping[str, Any]) -> str:
    controls = document["controls"]
    held = sum(control["ok"] for control in controls)
    rows = [
        f"<tr><td><code>{escape(control['control'])}</code></td><td>{escape(control['expected'])}</td>"
        f'<td><span class="dot {"good" if control["ok"] else "bad"}"></span>{escape(control["seen"])}</td></tr>'
        for control in controls
    ]
    shown = table("", ("control", "had to", "did"), rows)
    kind = kind_of(document)
    wired = (
        f" The {WIREDNESS} alters one value in the sink's own stream and demands that its reader reports it."
        if kind is not ENGINE
        else ""
    )
    intro = (
        f"<p>Before it looks at {kind.one}, the kit proves itself: {kind.subject}s without fault must pass, and "
        f"{kind.subject}s with one planted fault each must fail by the {kind.unit}s named for it.{wired}</p>"
    )
    return (
        f"<section>\n<h2>Controls</h2>\n{intro}\n<details{'' if held == len(controls) else ' open'}>"
        f"<summary>{held} of {len(controls)} held</summary>\n{shown}\n</details>\n</section>"
    )


def _about(document: Mapping[str, Any]) -> str:
    environment, subject = document["environment"], document["subject"]
    versions = environment.get("versions", {})
    pairs = [
        *((("read back in", subject["read"]),) if "read" in subject else ()),
        *((name, version) for name, version in versions.items() if version),
        ("kit", f"torchlens-conformance {environment['kit']}"),
        ("profile digest", document["profile"]["digest"]),
        ("Python", environment["python"]),
        ("platform", environment["platform"]),
        ("host", environment["host"]),
        ("date", environment["date"]),
        ("took", f"{environment['milliseconds'] / 1000:.1f} s"),
        ("report digest", document["digest"]),
    ]
    shown = "".join(f"<dt>{key}</dt><dd><code>{escape(str(value))}</code></dd>" for key, value in pairs)
    return (
        f'<footer>\n<h2>About this report</h2>\n<dl class="about">{shown}</dl>\n<p>The digest shows that '
        "<code>report.json</code> is unaltered, not who made it. Ask it: "
        "<code>torchlens-conformance verify report.json</code></p>\n</footer>"
    )
