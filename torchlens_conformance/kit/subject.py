"""What is certified: a sink, how to open it on a place, and how to read that place back."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from ..protocol import CAPABILITY_METHODS, Point, Refusal


@dataclass(frozen=True, kw_only=True)
class Subject:
    """A sink under certification.

    Args:
        name: How the report calls it.
        open: ``open(place) -> sink``; the place is the path of an empty folder that exists.
        read: ``read(place)`` gives the points in stored order, or a reader's result (with ``points``, ``torn``,
            ``unplaced``). It is called after close, with nothing but the path, by default in a fresh process; it should
            be importable by module and name.
        distribution: The package that brings the sink, for the report; found from ``open`` when left out.
        version: Its version; looked up when left out.
        capabilities: Declared capability words; the sink's own when left out.
        undeclared: A reason for each capability word that is not declared; words without a reason are reported so.
        deviations: A TOML file of known deviations, or None.
        in_process_read: True for a sink without a store (MEM-1): ``read`` gets the sink's place in the process that
            wrote; the verdict is capped at with-deviations.

    Raises ``kit_subject_invalid``.
    """

    name: str
    open: Callable[[Path], Any]
    read: Callable[[Path], Any]
    distribution: str | None = None
    version: str | None = None
    capabilities: Iterable[str] | None = None
    undeclared: Mapping[str, str] = field(default_factory=dict)
    deviations: Path | None = None
    in_process_read: bool = False

    def __post_init__(self) -> None:
        problems = {}
        if not isinstance(self.name, str) or not self.name.strip():
            problems["name"] = "a text that is not empty"
        for part in ("open", "read"):
            if not callable(getattr(self, part)):
                problems[part] = "a callable that takes a path"
        words = set(self.undeclared) | set(self.capabilities or ())
        if not words <= CAPABILITY_METHODS.keys():
            problems["capabilities"] = f"words out of {', '.join(CAPABILITY_METHODS)}"
        if problems:
            raise Refusal(
                "kit_subject_invalid",
                "The subject is not described right: " + "; ".join(f"{k} must be {v}" for k, v in problems.items()),
                remedy="Give name=, open=lambda place: ..., read=... and only known capability words.",
                parts=sorted(problems),
            )
        if self.capabilities is not None:
            object.__setattr__(self, "capabilities", frozenset(self.capabilities))
        object.__setattr__(self, "undeclared", dict(self.undeclared))

    def identity(self) -> tuple[str | None, str | None]:
        """Return distribution and version, found by the module of ``open`` where they were left out."""
        distribution = self.distribution or str(getattr(self.open, "__module__", "") or "").split(".")[0] or None
        if distribution is None or self.version is not None:
            return distribution, self.version
        try:
            return distribution, version(distribution)
        except PackageNotFoundError:
            return distribution, None


ReadResultLike = Iterable[Point]
"""What a reader may return: points, or an object that iterates over points and may carry ``torn`` and ``unplaced``."""
