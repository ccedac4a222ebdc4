"""What a check of sinks or a law of engines asks, in words: for the command line and for the docs."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

from ..protocol import Refusal


class Planted(Protocol):
    """A planted defect, of a sink or of an engine."""

    @property
    def id(self) -> str:
        """Its id."""

    @property
    def idea(self) -> str:
        """What it does wrong."""

    @property
    def killed_by(self) -> Sequence[str]:
        """The checks or laws that it was planted for."""


def killers(defects: Iterable[Planted]) -> dict[str, list[str]]:
    """Return, by the id of a check or a law, the planted defects that it must catch."""
    kills: dict[str, list[str]] = {}
    for defect in defects:
        for check in defect.killed_by:
            kills.setdefault(check, []).append(defect.id)
    return kills


def explanation(identity: str) -> str:
    """Return what a check or a law asks, its clauses with their rules, its scenarios, its defects, the usual remedy.

    Raises ``kit_check_unknown``.
    """
    from .checks import CHECKS
    from .defects import DEFECTS
    from .engine.defects import DEFECTS as ENGINE_DEFECTS
    from .engine.laws import LAWS

    for check in CHECKS:
        if check.id == identity:
            asked = f"Asked of sinks that declare {check.capability}." if check.capability is not None else ""
            return _explained(check, asked, DEFECTS)
    for law in LAWS:
        if law.id == identity:
            asked = f"Asked of engines that declare {', '.join(law.needs)}." if law.needs else "Asked of every engine."
            return _explained(law, asked, ENGINE_DEFECTS)
    raise Refusal(
        "kit_check_unknown",
        f"There is no check and no law {identity!r}.",
        remedy="See `torchlens-conformance list` for the checks of sinks, and `list --engine` for the laws of engines.",
        check=identity,
    )


class Asked(Protocol):
    """A check or a law."""

    @property
    def id(self) -> str:
        """Its id."""

    @property
    def clauses(self) -> Sequence[str]:
        """The clauses it stands for."""

    @property
    def question(self) -> str:
        """What it asks."""

    @property
    def scenarios(self) -> Sequence[str]:
        """Where it is observed."""

    @property
    def level(self) -> str:
        """``must`` or ``should``."""

    @property
    def remedy(self) -> str:
        """What an author usually has to do."""


def _explained(check: Asked, asked: str, defects: Sequence[Planted]) -> str:
    from ..spec import clause

    lines = [f"{check.id} ({check.level})", "", check.question, ""]
    lines += [f"{identity}: {clause(identity).rule}" for identity in check.clauses]
    lines += ["", f"Observed in: {', '.join(check.scenarios)}."]
    lines += [asked] if asked else []
    if check.remedy:
        lines += ["", f"What an author usually has to do: {check.remedy}"]
    caught = [f"  {defect.id}: {defect.idea}" for defect in defects if check.id in defect.killed_by]
    lines += ["", "It catches, among others:", *caught] if caught else []
    return "\n".join(lines)
