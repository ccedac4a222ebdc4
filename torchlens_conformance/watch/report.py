"""The close report (CLOSE-1)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .skips import NamedSkip


@dataclass(frozen=True, slots=True)
class SinkReport:
    """What one sink took.

    Attributes:
        name: Its name in the ledger, ``JSONLSink#2`` for a second one of a class.
        scalars: Scalars that it took.
        histograms: Histograms that it took.
        texts: Texts that it took.
        data_points: Points among them that are data.
        failed: Why it failed, or None.
        failed_code: The refusal code of the failure, or None.
        relay_state: How far points are known to have come.
        relay_detail: The evidence for it.
        notes: What else there is to know.
    """

    name: str
    scalars: int
    histograms: int
    texts: int
    data_points: int
    failed: str | None
    failed_code: str | None
    relay_state: str
    relay_detail: str
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, object]:
        """The row as plain values."""
        return {
            "name": self.name,
            "scalars": self.scalars,
            "histograms": self.histograms,
            "texts": self.texts,
            "data_points": self.data_points,
            "failed": self.failed,
            "failed_code": self.failed_code,
            "relay_state": self.relay_state,
            "relay_detail": self.relay_detail,
            "notes": list(self.notes),
        }


@dataclass(frozen=True, slots=True)
class CloseReport:
    """What a session did. Experimental.

    Attributes:
        signals: The signals that were watched.
        matched_sites: Watched tensors and modules.
        steps_seen: Steps that opened.
        sampled_steps: Steps that produced data.
        first_step: The first step that opened, or None.
        last_step: The last one, or None.
        forced_final: Whether the last step was sampled at close.
        computed: Points computed, by kind: ``scalars``, ``histograms``, ``texts``, ``data_points``.
        sinks: One row a sink.
        missing_phases: (step, phase) pairs, as far as they were kept.
        named_skips: The named skips, as far as they were kept.
        skip_counts: How often each name occurred, kept or not.
        unscaled: How many sampled boundaries had gradients that were unscaled "yes", "no", "unknown".
        segments: Number of the last segment.
        run_id: The run of the manifest.
        disabled_by: What disabled the session, or None.
        notes: What else there is to know.

    Clause: CLOSE-1.
    """

    signals: tuple[str, ...]
    matched_sites: int
    steps_seen: int
    sampled_steps: int
    first_step: int | None
    last_step: int | None
    forced_final: bool
    computed: Mapping[str, int]
    sinks: tuple[SinkReport, ...]
    missing_phases: tuple[tuple[int, str], ...]
    named_skips: tuple[NamedSkip, ...]
    skip_counts: Mapping[str, int]
    unscaled: Mapping[str, int]
    segments: int
    run_id: str
    disabled_by: str | None
    notes: tuple[str, ...]

    def as_dict(self) -> dict[str, object]:
        """The report as standard JSON values."""
        return {
            "signals": list(self.signals),
            "matched_sites": self.matched_sites,
            "steps_seen": self.steps_seen,
            "sampled_steps": self.sampled_steps,
            "first_step": self.first_step,
            "last_step": self.last_step,
            "forced_final": self.forced_final,
            "computed": dict(self.computed),
            "sinks": [sink.as_dict() for sink in self.sinks],
            "missing_phases": [list(pair) for pair in self.missing_phases],
            "named_skips": [skip.as_dict() for skip in self.named_skips],
            "skip_counts": dict(self.skip_counts),
            "unscaled": dict(self.unscaled),
            "segments": self.segments,
            "run_id": self.run_id,
            "disabled_by": self.disabled_by,
            "notes": list(self.notes),
        }

    def format(self) -> str:
        """The report as text for people."""
        forced = ", the last one at close" if self.forced_final else ""
        lines = [
            f"watch closed: {', '.join(self.signals)} at {self.matched_sites} sites",
            f"  steps: {self.steps_seen} seen ({self.first_step} to {self.last_step}), "
            f"{self.sampled_steps} sampled{forced}",
            f"  computed: {', '.join(f'{count} {kind}' for kind, count in self.computed.items())}",
        ]
        if self.disabled_by:
            lines.append(f"  disabled by {self.disabled_by}")
        for sink in self.sinks:
            lines.append(
                f"  {sink.name}: {sink.scalars} scalars, {sink.histograms} histograms, {sink.texts} texts; "
                f"{sink.data_points} data points; {sink.relay_state} ({sink.relay_detail})"
            )
            if sink.failed is not None:
                lines.append(f"    FAILED {sink.failed}")
            lines += [f"    note: {note}" for note in sink.notes]
        if self.unscaled:
            told = ", ".join(f"{word} at {count}" for word, count in self.unscaled.items())
            lines.append(f"  gradients unscaled: {told} sampled boundaries")
        for step, phase in self.missing_phases:
            lines.append(f"  missing phase at step {step}: {phase}")
        for name, count in self.skip_counts.items():
            shown = [str(skip.step) for skip in self.named_skips if skip.name == name and skip.step is not None]
            steps = f" at steps {', '.join(dict.fromkeys(shown[:8]))}" if shown else ""
            lines.append(f"  skipped: {name} x{count}{steps}")
        lines += [f"  note: {note}" for note in self.notes]
        return "\n".join(lines)

    def __str__(self) -> str:
        return self.format()
