"""The kill matrix: which check catches which planted defect, measured, committed, and compared by CI (PROT-10).

``python -m torchlens_conformance.kit.kill_matrix`` measures it and writes the data file and the page of the docs;
``--check`` writes nothing and says what differs from the files.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from .checking import run_checks
from .checks import CHECKS
from .defects import DEFECTS, get_defect
from .model import FAILED

DATA_FILE = Path(__file__).with_name("kill_matrix.json")
"""The matrix as data; it ships with the package."""

PAGE_FILE = Path(__file__).parents[2] / "docs" / "kill-matrix.md"
"""The page of the docs; only a checkout of the project has it."""

COMMAND = "python -m torchlens_conformance.kit.kill_matrix"
"""What makes both files."""

_SHORT, _LONG = 4.0, 60.0
# Seconds for each process of a defect that hangs, which uses all of them, and for those of the others.


def measure(defects: Iterable[str], *, jobs: int = 2) -> dict[str, tuple[str, ...]]:
    """Return the ids of the checks that each defect fails, in the order of the checks.

    Args:
        defects: Ids of defects.
        jobs: How many are run side by side.
    """
    names = tuple(defects)
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        return dict(zip(names, pool.map(killers, names)))


def killers(defect: str) -> tuple[str, ...]:
    """Return the ids of the checks that one defect fails; a check that could not be asked has not caught it."""
    planted = get_defect(defect)
    outcome = run_checks(planted.subject, timeout=_SHORT if planted.hangs else _LONG)
    return tuple(result.check for result in outcome.results if result.outcome == FAILED)


def problems(matrix: Mapping[str, Sequence[str]]) -> list[str]:
    """Return what is wrong with a matrix: defects that other checks catch than those named, checks without a defect.

    Args:
        matrix: Ids of failed checks by defect.
    """
    found = []
    for defect in DEFECTS:
        caught, named = set(matrix.get(defect.id, ())), {*defect.killed_by, *defect.also}
        if caught - named:
            found.append(f"{defect.id}: caught by {', '.join(sorted(caught - named))}, which is not named for it")
        if named - caught:
            found.append(f"{defect.id}: not caught by {', '.join(sorted(named - caught))}, which is named for it")
    killed = {check for caught in matrix.values() for check in caught}
    return found + [f"{check.id}: no defect is caught by it" for check in CHECKS if check.id not in killed]


def as_data(matrix: Mapping[str, Sequence[str]]) -> str:
    """Return the matrix as the text of the data file."""
    document = {
        "checks": [check.id for check in CHECKS],
        "defects": [{"id": defect.id, "idea": defect.idea, "caught_by": list(matrix[defect.id])} for defect in DEFECTS],
    }
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def from_data(text: str) -> dict[str, tuple[str, ...]]:
    """Return the matrix in the text of a data file."""
    return {defect["id"]: tuple(defect["caught_by"]) for defect in json.loads(text)["defects"]}


def as_page(matrix: Mapping[str, Sequence[str]]) -> str:
    """Return the matrix as the text of the page of the docs."""
    checks = [check.id for check in CHECKS]
    numbers = {check: number for number, check in enumerate(checks, start=1)}
    killed = {check: [defect for defect in matrix if check in matrix[defect]] for check in checks}
    lines = [
        "# Kill matrix",
        "",
        f"Measured by `{COMMAND}`; CI fails when a run gives another one, when a check catches no defect, or when a",
        "defect is not caught by exactly the checks named for it.",
        "",
        f"{len(matrix)} planted defects, each a sink or a reader that is right but for one thing, against "
        f"{len(checks)} checks.",
        "",
        "## Defects",
        "",
        "The first check of each row is the one that the defect was planted for; the others fail as a consequence.",
        "",
        "| Defect | What it does wrong | Caught by |",
        "|---|---|---|",
    ]
    for defect in DEFECTS:
        caught = ", ".join(f"`{check}`" for check in _named_first(matrix[defect.id], defect.killed_by))
        lines.append(f"| `{defect.id}` | {defect.idea} | {caught} |")
    lines += ["", "## Checks", "", "| No. | Check | Defects that it catches |", "|---|---|---|"]
    for check in checks:
        lines.append(f"| {numbers[check]} | `{check}` | {', '.join(killed[check]) or 'none'} |")
    lines += ["", "## All at a glance", "", "Columns are the checks by number.", "", "```text"]
    width = max(map(len, matrix), default=0)
    for digit in (0, 1):
        lines.append(" " * width + "  " + " ".join(f"{numbers[check]:02d}"[digit] for check in checks))
    for name, catching in matrix.items():
        marks = " ".join("x" if check in catching else "." for check in checks)
        lines.append(f"{name:<{width}}  {marks}")
    return "\n".join([*lines, "```", ""])


def _named_first(caught: Sequence[str], named: Sequence[str]) -> list[str]:
    return sorted(caught, key=lambda check: named.index(check) if check in named else len(named))


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the matrix; write or compare the files; return 1 when something is wrong, else 0."""
    parser = argparse.ArgumentParser(prog=COMMAND, description="Measure which check catches which planted defect.")
    parser.add_argument("--check", action="store_true", help="write nothing, compare with the files")
    parser.add_argument("--jobs", type=int, default=2, help="defects run side by side (default 2)")
    parser.add_argument("defects", nargs="*", help="measure these defects only, and show what catches them")
    options = parser.parse_args(arguments)
    if options.defects:
        for defect, caught in measure(options.defects, jobs=options.jobs).items():
            print(f"{defect}: {', '.join(caught) or 'nothing'}")
        return 0
    matrix = measure([defect.id for defect in DEFECTS], jobs=options.jobs)
    wrong = problems(matrix)
    for path, text in ((DATA_FILE, as_data(matrix)), (PAGE_FILE, as_page(matrix))):
        if options.check:
            if not path.exists() or path.read_text(encoding="utf-8") != text:
                wrong.append(f"{path.name} differs from what was measured; run `{COMMAND}` and look at the change")
        else:
            path.write_text(text, encoding="utf-8")
    print("\n".join(wrong) or "The kill matrix is as it must be.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
