"""Where clauses are cited: the ids in the documentation strings of Python files."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

NOT_CLAUSES = frozenset({"CRC", "GPT", "IEEE", "ISO", "PEP", "RFC", "SHA", "UTF"})
"""Names of standards and models that look like a family of clauses (UTF-8, say) and are none."""

_CITATION = re.compile(r"(?<![\w-])([A-Z]{2,})-(\d{1,3})(?:\.\.(?:\1-)?(\d{1,3}))?(?![\w-])")
_TEST_NAME = re.compile(r"[Tt]est")


def cited_clauses(root: Path, *, only_tests: bool = False) -> Mapping[str, tuple[str, ...]]:
    """Return the clause ids cited under ``root`` and where: id to places, both sorted.

    A citation is an id in a documentation string (of a module, class, function or constant): ``JSONL-2`` alone, in
    brackets or in a list, and ``JSONL-1..4`` for four ids. Ids that the catalogue lacks are returned as well, so that
    a caller can tell them; a range that runs backwards is returned as it is written. Files are parsed, never run.

    Args:
        root: A Python file, or a folder that is searched with everything below it except hidden folders.
        only_tests: Count only the strings of tests themselves (functions and classes named ``test...``, ``Test...``),
            not those of modules, fixtures and helpers, since only a test that runs can hold a clause.

    Returns:
        Places read ``path/from/root.py::Class::function``; the path alone stands for the module's own string.

    Raises ``reader_path_missing`` when there is nothing at ``root``, and ``SyntaxError`` for a file that is no Python.
    """
    found: dict[str, set[str]] = {}
    for path in _python_files(root):
        name = path.name if path == root else path.relative_to(root).as_posix()
        for owner, text in _documentation(path):
            if only_tests and not (owner and _TEST_NAME.match(owner[-1])):
                continue
            for clause_id in clause_ids_in(text):
                found.setdefault(clause_id, set()).add("::".join((name, *owner)))
    return MappingProxyType({key: tuple(sorted(found[key])) for key in sorted(found, key=_in_reading_order)})


def clause_ids_in(text: str) -> Iterator[str]:
    """Yield the clause ids in ``text`` in order, ranges spelled out, repeats included."""
    for match in _CITATION.finditer(text):
        family, first, last = match.groups()
        if family in NOT_CLAUSES:
            continue
        if last is None:
            yield f"{family}-{first}"
        elif int(last) < int(first):
            yield match.group()
        else:
            yield from (f"{family}-{number}" for number in range(int(first), int(last) + 1))


def _python_files(root: Path) -> list[Path]:
    if root.is_file():
        return [root]
    if not root.is_dir():
        from torchlens_conformance.protocol.refusals import Refusal

        raise Refusal(
            "reader_path_missing",
            "There is no folder or file to search for citations.",
            remedy="Give the folder of the tests or of a package.",
            path=str(root),
        )
    return sorted(
        path for path in root.rglob("*.py") if not any(part.startswith(".") for part in path.relative_to(root).parts)
    )


def _documentation(path: Path) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield (names of the enclosing classes and functions, text) of every documentation string in a file."""
    source = path.read_text(encoding="utf-8")
    if _CITATION.search(source) is not None:
        yield from _strings_of(ast.parse(source, filename=str(path)), ())


def _strings_of(node: ast.AST, owner: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Yield the strings that stand as statements, which covers those below constants and attributes too."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant) and isinstance(child.value.value, str):
            yield owner, child.value.value
        elif isinstance(child, (ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)):
            yield from _strings_of(child, (*owner, child.name))
        elif isinstance(child, ast.stmt):
            yield from _strings_of(child, owner)


def _in_reading_order(clause_id: str) -> tuple[str, int, str]:
    family, _, number = clause_id.partition("-")
    return family, int(number) if number.isdigit() else 0, number
