"""What a check asks, in words: for the command line and for the docs."""

from __future__ import annotations

from .checks import get_check


def killers() -> dict[str, list[str]]:
    """Return, by check id, the planted defects that it must catch."""
    from .defects import DEFECTS

    kills: dict[str, list[str]] = {}
    for defect in DEFECTS:
        for check in defect.killed_by:
            kills.setdefault(check, []).append(defect.id)
    return kills


def explanation(check_id: str) -> str:
    """Return what a check asks, its clauses with their rules, its scenarios, its defects and the usual remedy.

    Raises ``kit_check_unknown``.
    """
    from ..spec import clause
    from .defects import DEFECTS

    check = get_check(check_id)
    ideas = {defect.id: defect.idea for defect in DEFECTS}
    lines = [f"{check.id} ({check.level})", "", check.question, ""]
    lines += [f"{identity}: {clause(identity).rule}" for identity in check.clauses]
    lines += ["", f"Observed in: {', '.join(check.scenarios)}."]
    if check.capability is not None:
        lines.append(f"Asked of sinks that declare {check.capability}.")
    if check.remedy:
        lines += ["", f"What an author usually has to do: {check.remedy}"]
    caught = killers().get(check_id, [])
    if caught:
        lines += ["", "It catches, among others:"] + [f"  {identity}: {ideas[identity]}" for identity in caught]
    return "\n".join(lines)
