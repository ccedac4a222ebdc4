"""The loader of the catalogue, and the ways to pick clauses out of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from types import MappingProxyType
from typing import TYPE_CHECKING

from .model import Clause

if TYPE_CHECKING:
    from typing import Any, NoReturn

_VERSION = 1


@cache
def clauses() -> tuple[Clause, ...]:
    """Return every clause: families in the order of the specification, numbers ascending within a family.

    The file is read once. Raises ``ValueError`` when the shipped data are malformed, which is a bug of ours.
    """
    # Imported here because these two are most of what importing the package would cost.
    import json
    from pathlib import Path

    return parse_catalogue(json.loads(Path(__file__).with_name("clauses.json").read_text(encoding="utf-8")))


def parse_catalogue(document: Mapping[str, Any]) -> tuple[Clause, ...]:
    """Return the clauses in ``document``, checked one by one and as a whole.

    Args:
        document: ``version`` (1) and ``clauses``, a list of mappings with exactly the fields of :class:`Clause`.

    Raises ``ValueError`` for another version, a missing, unknown or malformed field, a family that is not in one
    piece, or numbers of a family that do not count up from 0 or 1 without a gap (so no id can occur twice).
    """
    if document.get("version") != _VERSION:
        raise ValueError(f"the catalogue has version {document.get('version')!r}, not {_VERSION}")
    found = tuple(_clause_from(entry) for entry in document["clauses"])
    last: dict[str, Clause] = {}
    previous: Clause | None = None
    for entry in found:
        before = last.get(entry.family)
        if before is not None and before is not previous:
            raise ValueError(f"clause {entry.id}: family {entry.family} is not in one piece")
        allowed = (0, 1) if before is None else (before.number + 1,)
        if entry.number not in allowed:
            raise ValueError(f"clause {entry.id}: number {entry.number} where {' or '.join(map(str, allowed))} is due")
        last[entry.family] = previous = entry
    return found


def _clause_from(entry: Mapping[str, Any]) -> Clause:
    wanted = Clause.__dataclass_fields__.keys()
    if entry.keys() != wanted:
        raise ValueError(f"clause {entry.get('id')!r}: fields differ by {sorted(entry.keys() ^ wanted)}")
    if not isinstance(entry["binds"], list):
        raise ValueError(f"clause {entry['id']!r}: binds is not a list")
    return Clause(**{**entry, "binds": tuple(entry["binds"])})


@cache
def _by_id() -> Mapping[str, Clause]:
    return MappingProxyType({entry.id: entry for entry in clauses()})


@cache
def families() -> Mapping[str, tuple[Clause, ...]]:
    """Return the clauses of every family, under the family's name, in catalogue order."""
    grouped: dict[str, list[Clause]] = {}
    for entry in clauses():
        grouped.setdefault(entry.family, []).append(entry)
    return MappingProxyType({family: tuple(members) for family, members in grouped.items()})


def clause(clause_id: str) -> Clause:
    """Return the clause with this id; capitals or not.

    Raises ``spec_clause_unknown``, with the nearest ids and families in ``fields["near"]``. Clause: PROT-9.
    """
    found = _by_id().get(clause_id.strip().upper())
    return _refuse_unknown(clause_id) if found is None else found


def select_clauses(selectors: Iterable[str]) -> tuple[Clause, ...]:
    """Return the clauses that ``selectors`` name, each once, in catalogue order.

    Args:
        selectors: Ids (``JSONL-2``) and families (``JSONL``), capitals or not.

    Raises ``spec_clause_unknown`` for the first one that is neither. Clause: PROT-9.
    """
    chosen: set[str] = set()
    for selector in selectors:
        members = families().get(selector.strip().upper()) or (clause(selector),)
        chosen.update(member.id for member in members)
    return tuple(entry for entry in clauses() if entry.id in chosen)


def _refuse_unknown(asked: str) -> NoReturn:
    # Imported here because only a refusal needs the protocol: printing clauses stays independent of it.
    from difflib import get_close_matches

    from torchlens_conformance.protocol.refusals import Refusal

    text = asked.strip().upper()
    members = families().get(text.partition("-")[0], ())
    near = get_close_matches(text, [*_by_id(), *families()], n=5)
    # A known family with a number that it lacks: its own clauses are the likely ones.
    near = [member.id for member in members] or near
    shown = f"Did you mean {', '.join(near)}?" if near else f"The families are {', '.join(families())}."
    raise Refusal("spec_clause_unknown", f"There is no clause {asked!r}.", remedy=shown, clause=asked, near=tuple(near))
