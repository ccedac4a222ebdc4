"""The scenario of scale: how many points a sink is sent, and what the report says of it."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from torchlens_conformance.kit.model import Transcript
from torchlens_conformance.kit.processes import Limits
from torchlens_conformance.kit.scenarios import Setting, scaling
from torchlens_conformance.kit.scenarios.scaling import FEWEST, SIZES, fitting, scale, shortened
from torchlens_conformance.kit.subject import Subject

SIZE = (3000, 2000)


class Slow:
    """A sink that takes scalars, keeps their number in a file, and may sleep at each."""

    def __init__(self, place: Path) -> None:
        self.place, self.count = place, 0

    def capabilities(self) -> frozenset[str]:
        """Return what it carries."""
        return frozenset({"scalar"})

    def emit_scalar(self, point: Any) -> None:
        """Count one point."""
        time.sleep(0.0005)
        self.count += 1

    def flush(self) -> None:
        """Write the number."""
        (self.place / "count").write_text(str(self.count))

    def close(self) -> None:
        """Do nothing."""


def test_the_largest_number_that_fits_is_taken() -> None:
    """200,000 points where they fit, else the next smaller number, never below 20,000 (PROT-10)."""
    sizes = SIZES["full"]
    assert sizes[0] == 200_000 and sizes[-1] == FEWEST == 20_000
    assert [fitting(sizes, pace, 12.0) for pace in (1e-6, 6e-5, 6.1e-5, 1.5e-4, 1.0)] == [
        200_000,
        200_000,
        100_000,
        50_000,
        20_000,
    ]


def test_fewer_points_are_told() -> None:
    """A scenario that was cut short says so in words, another says nothing (PROT-10)."""
    assert "50,000 points in place of 200,000" in shortened(
        Transcript("scale", "ok", facts={"points": 50_000, "wanted": 200_000})
    )
    assert shortened(Transcript("scale", "ok", facts={"points": 200_000, "wanted": 200_000})) == ""
    assert shortened(Transcript("scale", "timed out")) == ""


def test_a_slow_sink_is_sent_fewer(tmp_path: Path, monkeypatch: Any) -> None:
    """A sink that would not get through in time is measured over ten blocks of fewer points (PROT-10)."""
    monkeypatch.setitem(SIZES, "full", SIZE)
    monkeypatch.setattr(scaling, "_SAMPLE", 20)
    subject = Subject(name="slow", open=Slow, read=lambda place: [])
    setting = Setting(subject=subject, folder=tmp_path, size="full", nonce="nslow", limits=Limits(timeout=2.0))
    transcript = scale(setting)
    facts = transcript.facts
    assert transcript.ended == "ok"
    assert (facts["points"], facts["wanted"], len(facts["blocks"]), facts["refused"]) == (2000, 3000, 10, 0)
    assert facts["pace"] >= 0.0005
    assert (tmp_path / "place" / "count").read_text() == "2000"


@pytest.mark.parametrize(("flush", "pace"), [(0.0, 0.001), (4.0, 0.004)], ids=["at-once", "gathers"])
def test_the_pace_of_a_sink_that_gathers(flush: float, pace: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a sink gathers and pays for at the flush counts for its pace, else it is sent too many (PROT-10)."""
    clock = [0.0]

    def call(sink: object, method: str, *, note: str) -> None:
        assert method == "flush"
        clock[0] += flush

    monkeypatch.setattr(scaling, "time", SimpleNamespace(perf_counter=lambda: clock[0]))
    emitting = SimpleNamespace(timed=lambda points: 0.001 * points)
    measured = scaling._pace(SimpleNamespace(call=call), object(), emitting)  # type: ignore[arg-type]
    assert measured == pytest.approx(pace)
