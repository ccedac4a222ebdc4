"""The adapter of this project's engine, by its public face."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from ..adapter import Ask, CallbackAsk, Spellings
from ..observation import CloseFacts, SinkFacts


class OurSession:
    """One session of ``torchlens_conformance.trackers.watch``."""

    def __init__(self, session: Any) -> None:
        self.session = session

    def step(self, n: Any, *, scaler: Any = None, new_segment: bool = False) -> AbstractContextManager[Any]:
        """Return the scope of one step."""
        scope: AbstractContextManager[Any] = self.session.step(n, scaler=scaler, new_segment=new_segment)
        return scope

    def close(self) -> CloseFacts:
        """Close it and return what its report says."""
        report = self.session.close()
        return CloseFacts(
            sampled=report.sampled_steps,
            first=report.first_step,
            last=report.last_step,
            forced=report.forced_final,
            sinks=tuple(
                SinkFacts(row.name, row.scalars + row.histograms + row.texts, row.failed is not None, row.failed or "")
                for row in report.sinks
            ),
            skips=tuple((skip.name, skip.step) for skip in report.named_skips),
            text=report.format(),
            disabled_by=report.disabled_by or "",
        )

    def planned_bytes(self) -> int | None:
        """Return the bytes of a sampled step."""
        planned = self.session.plan_report().bytes_per_step
        return int(planned)


class OurEngine:
    """The engine of this project."""

    name = "torchlens-conformance watch"
    distribution: str | None = "torchlens-conformance"
    lacks: Mapping[str, str] = {}
    spellings = Spellings()

    def attach(self, model: Any, sinks: Iterable[Any], ask: Ask) -> OurSession:
        """Watch ``model``."""
        import torchlens_conformance.trackers as trk

        keywords = ask.keywords()
        functions = [trk.func(name) for name in keywords.pop("functions", ())]
        if functions:
            keywords["select"] = (*keywords.get("select", ()), *functions)
        if ask.facets is not None:
            keywords["facets"] = {
                trk.func(n): trk.split_heads(heads, dim=dim) for n, (heads, dim) in ask.facets.items()
            }
        return OurSession(trk.watch(model, to=tuple(sinks), **keywords))

    def callback(self, framework: str, sinks: Iterable[Any], ask: CallbackAsk) -> OurCallback:
        """Return a callback of a framework."""
        import torchlens_conformance.trackers as trk

        make = {"hf": "HFTrainerWatchCallback", "lightning": "LightningWatchCallback"}[framework]
        return OurCallback(getattr(trk, make)(to=tuple(sinks), print_fn=_quiet, **ask.keywords()))


class OurCallback:
    """One callback of ``torchlens_conformance.trackers``."""

    def __init__(self, hook: Any) -> None:
        self.hook = hook

    def around(self) -> AbstractContextManager[Any]:
        """Return the callback itself: the docs ask for it around ``train()``."""
        hook: AbstractContextManager[Any] = self.hook
        return hook


def _quiet(line: str) -> None:
    """Print nothing."""


OURS = OurEngine()
"""The adapter."""
