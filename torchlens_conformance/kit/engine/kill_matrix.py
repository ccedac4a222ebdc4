"""The engine kit's kill matrix: which law catches which planted defect, measured, committed and compared.

``python -m torchlens_conformance.kit.engine.kill_matrix`` measures it and writes the data file and its section of
``docs/engine-kit.md``; ``--check`` writes nothing and says what differs.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from ..model import FAILED
from .asking import ask
from .defects import DEFECTS, get_defect
from .laws import LAWS

DATA_FILE = Path(__file__).with_name("kill_matrix.json")
"""The matrix as data; it ships with the package."""

PAGE_FILE = Path(__file__).parents[3] / "docs" / "engine-kit.md"
"""The page of the docs; only a checkout of the project has it."""

COMMAND = "python -m torchlens_conformance.kit.engine.kill_matrix"
"""What makes both."""

START, END = "<!-- kill matrix: begin -->", "<!-- kill matrix: end -->"
"""The borders of the generated section."""


def measure(defects: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Return the ids of the laws that each defect fails, in the order of the laws."""
    return {name: killers(name) for name in defects}


def killers(defect: str) -> tuple[str, ...]:
    """Return the ids of the laws that one defect fails, out of those that it can fail."""
    from .scenarios.guest import short_runs

    planted = get_defect(defect)
    laws = [law for law in LAWS if not planted.scope or law.id.startswith(planted.scope)]
    with short_runs():
        return tuple(result.check for result in ask(planted.engine, laws) if result.outcome == FAILED)


def problems(matrix: Mapping[str, Sequence[str]]) -> list[str]:
    """Return what is wrong: a defect that its laws do not catch, a law that catches no defect."""
    found = []
    for defect in DEFECTS:
        missed = [law for law in defect.killed_by if law not in matrix.get(defect.id, ())]
        if missed:
            found.append(f"{defect.id}: not caught by {', '.join(missed)}, which is named for it")
    caught = {law for laws in matrix.values() for law in laws}
    return found + [f"{law.id}: no defect is caught by it" for law in LAWS if law.id not in caught]


def differences(committed: Mapping[str, Sequence[str]], measured: Mapping[str, Sequence[str]]) -> list[str]:
    """Return where two matrices differ, a sentence a defect."""
    found = []
    for defect in measured:
        old, new = set(committed.get(defect, ())), set(measured[defect])
        told = [f"{sign} {law}" for sign, laws in (("+", new - old), ("-", old - new)) for law in sorted(laws)]
        found += [f"{defect}: {', '.join(told)}"] if told else []
    return found


def as_data(matrix: Mapping[str, Sequence[str]]) -> str:
    """Return the matrix as the text of the data file."""
    document = {
        "defects": [{"id": defect.id, "idea": defect.idea, "caught_by": list(matrix[defect.id])} for defect in DEFECTS],
        "laws": [law.id for law in LAWS],
    }
    return json.dumps(document, indent=1) + "\n"


def from_data(text: str) -> dict[str, tuple[str, ...]]:
    """Return the matrix in the text of a data file."""
    return {defect["id"]: tuple(defect["caught_by"]) for defect in json.loads(text)["defects"]}


def as_section(matrix: Mapping[str, Sequence[str]]) -> str:
    """Return the generated section of the page, with its borders."""
    lines = [
        START,
        "",
        f"{len(DEFECTS)} planted defects, each the plain engine with one thing wrong, against {len(LAWS)} laws.",
        f"Measured by `{COMMAND}`, where watched and unwatched runs take 8 steps;",
        "a law in bold is one that the defect was planted for. Defects `op-...` and `callback-...` are asked the laws",
        "about operations and callbacks, which alone drive what is wrong in them; the others are asked all others.",
        "",
        "| Defect | What it does wrong | Caught by |",
        "|---|---|---|",
    ]
    for defect in DEFECTS:
        caught = sorted(matrix[defect.id], key=lambda law: law not in defect.killed_by)
        shown = ", ".join(f"**`{law}`**" if law in defect.killed_by else f"`{law}`" for law in caught)
        lines.append(f"| `{defect.id}` | {defect.idea} | {shown} |")
    lines += ["", "| Law | Clauses | What it asks | Defects that it catches |", "|---|---|---|---|"]
    for law in LAWS:
        caught = [defect for defect in matrix if law.id in matrix[defect]]
        lines.append(f"| `{law.id}` | {', '.join(law.clauses)} | {law.question} | {len(caught)} |")
    return "\n".join([*lines, "", END])


def with_section(page: str, section: str) -> str:
    """Return the page with its generated section replaced."""
    before, _, rest = page.partition(START)
    _, _, after = rest.partition(END)
    return before + section + after


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure the matrix; write or compare the files; return 1 when something is wrong, else 0."""
    parser = argparse.ArgumentParser(prog=COMMAND, description="Measure which law catches which planted defect.")
    parser.add_argument("--check", action="store_true", help="write nothing, compare with the files")
    parser.add_argument("defects", nargs="*", help="measure these defects only, and show what catches them")
    options = parser.parse_args(arguments)
    if options.defects:
        for defect, caught in measure(options.defects).items():
            print(f"{defect}: {', '.join(caught) or 'nothing'}")
        return 0
    matrix = measure(defect.id for defect in DEFECTS)
    wrong = problems(matrix)
    texts = {DATA_FILE: as_data(matrix)}
    if PAGE_FILE.exists():
        texts[PAGE_FILE] = with_section(PAGE_FILE.read_text(encoding="utf-8"), as_section(matrix))
    if options.check and DATA_FILE.exists():
        wrong += differences(from_data(DATA_FILE.read_text(encoding="utf-8")), matrix)
    for path, text in texts.items():
        if not options.check:
            path.write_text(text, encoding="utf-8")
        elif not path.exists() or path.read_text(encoding="utf-8") != text:
            wrong.append(f"{path.name} differs from what was measured; run `{COMMAND}` and look at the change")
    print("\n".join(wrong) or "The kill matrix is as it must be.")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
