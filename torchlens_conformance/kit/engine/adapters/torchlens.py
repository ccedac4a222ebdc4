"""The adapter of the installed torchlens, by its public interface and documentation only.

Other spellings that the profile accepts stand in ``spellings``; the report names them. torchlens 2.36 writes
``nonfinite/<kind>`` for every stream: the sessions of the scenario about non-finite values watch gradients alone, so
that the spelling can be read as theirs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from ..adapter import Ask, CallbackAsk, Spellings
from ..observation import CloseFacts, SinkFacts

_SKIP = re.compile(r"^(?P<name>\w+):.*?\bstep (?P<step>\d+)")
_TOTAL = re.compile(r"^TOTAL .*bytes/step=(\d+)", re.MULTILINE)


class TorchlensSession:
    """One session of ``torchlens.trackers.watch``."""

    def __init__(self, session: Any) -> None:
        self.session = session

    def step(self, n: Any, *, scaler: Any = None, new_segment: bool = False) -> AbstractContextManager[Any]:
        """Return the scope of one step."""
        scope: AbstractContextManager[Any] = self.session.step(n, scaler=scaler, new_segment=new_segment)
        return scope

    def close(self) -> CloseFacts:
        """Close it and return what its report says."""
        return close_facts(self.session.close())

    def planned_bytes(self) -> int | None:
        """Return the bytes of a sampled step, from the text of the plan."""
        found = _TOTAL.search(self.session.plan_report())
        return None if found is None else int(found.group(1))


def close_facts(report: Any) -> CloseFacts:
    """Return what a close report of torchlens says."""
    return CloseFacts(
        sampled=len(report.sampled_steps),
        first=report.first_step,
        last=report.last_step,
        forced=report.final_sample_forced,
        sinks=tuple(
            SinkFacts(
                row["sink"],
                row["emitted_scalars"] + row["emitted_histograms"] + row["emitted_texts"],
                row["failed"],
                str(row["failure"] or ""),
            )
            for row in report.sink_rows
        ),
        skips=tuple(named_skip(text) for text in report.named_skips),
        text=report.format(),
        # It says that it is disabled in one line of the text, and by what.
        disabled_by=report.format().partition("DISABLED by ")[2].partition("\n")[0],
    )


def named_skip(text: str) -> tuple[str, int | None]:
    """Return name and step of a skip that torchlens tells as a sentence."""
    found = _SKIP.match(text)
    return (text.partition(":")[0], None) if found is None else (found["name"], int(found["step"]))


class TorchlensEngine:
    """The installed torchlens."""

    name = "torchlens watch"
    distribution: str | None = "torchlens"
    lacks: Mapping[str, str] = {
        "several-optimizers": "optimizer= takes one optimizer",
        "activation-grads": "it refuses the signal activation_grads",
        "operations": "it refuses grain='op' as not shipped in this build",
    }
    spellings = Spellings(
        codes={"history_step_regression": "watch_step_regression"},
        tags={f"nonfinite/{kind}/": f"nonfinite/gradients_{kind}/" for kind in ("nan", "posinf", "neginf")},
    )

    def attach(self, model: Any, sinks: Iterable[Any], ask: Ask) -> TorchlensSession:
        """Watch ``model``."""
        from importlib import import_module

        # By name: the installed torchlens is no dependency, so that type checkers need not have it.
        trk = import_module("torchlens.trackers")
        keywords = ask.keywords()
        if "inputs" in keywords:
            keywords["example_input"] = keywords.pop("inputs")
        return TorchlensSession(trk.watch(model, to=tuple(sinks), **keywords))

    def callback(self, framework: str, sinks: Iterable[Any], ask: CallbackAsk) -> TorchlensCallback:
        """Return a callback of a framework."""
        from importlib import import_module

        make = {"hf": "HFTrainerWatchCallback", "lightning": "LightningWatchCallback"}[framework]
        return TorchlensCallback(getattr(import_module("torchlens.trackers"), make)(to=tuple(sinks), **ask.keywords()))


class TorchlensCallback:
    """One callback of ``torchlens.trackers``; its documentation asks for nothing around the training."""

    def __init__(self, hook: Any) -> None:
        self.hook = hook

    def around(self) -> AbstractContextManager[Any]:
        """Return a context that does nothing."""
        return nullcontext()


TORCHLENS = TorchlensEngine()
"""The adapter."""
