"""The scenario of scale: how many points a sink is sent, and what the report says of it."""

from __future__ import annotations

import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from torchlens_conformance.kit.defects import get_defect
from torchlens_conformance.kit.growth import Growth, growth
from torchlens_conformance.kit.model import Transcript
from torchlens_conformance.kit.processes import Limits
from torchlens_conformance.kit.scenarios import Setting, scaling
from torchlens_conformance.kit.scenarios.scaling import FEWEST, ROUNDS, SIZES, another, fitting, scale, shortened
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
    # Seconds for points that take half a millisecond each: 3000 do not fit into 1.2.
    monkeypatch.setattr(scaling, "SHARE", 0.06)
    subject = Subject(name="slow", open=Slow, read=lambda place: [])
    setting = Setting(subject=subject, folder=tmp_path, size="full", nonce="nslow", limits=Limits(timeout=20.0))
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


MEGABYTE = 1 << 20


@pytest.mark.parametrize(
    ("grows", "rounds"),
    [
        pytest.param(lambda block: min(block, 12) * 2 * MEGABYTE, 2, id="settles"),
        pytest.param(lambda block: block * 2 * MEGABYTE, ROUNDS, id="keeps"),
        pytest.param(lambda block: 0, 1, id="flat"),
    ],
)
def test_a_process_that_grew_is_asked_again(
    grows: Any, rounds: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An allocator that takes memory for a while is no sink that keeps points; one that never stops is (PROT-10)."""
    monkeypatch.setattr(scaling, "FEWEST", 2000)
    monkeypatch.setattr(scaling, "_SAMPLE", 20)
    monkeypatch.setattr(scaling, "held_bytes", _resident(grows))
    subject = Subject(name="quick", open=Quick, read=lambda place: [])
    facts = scale(Setting(subject=subject, folder=tmp_path, size="small", nonce="n", limits=Limits(timeout=60.0))).facts
    assert (len(facts["blocks"]), facts["points"]) == (10 * rounds, 2000 * rounds)
    assert (tmp_path / "place" / "count").read_text() == str(2000 * rounds)
    grown = growth([block[2] for block in facts["blocks"]], facts["points"])
    assert grown.points == 1200
    assert grown.keeps_on == (rounds == ROUNDS)


class Quick(Slow):
    """A sink that takes scalars as fast as it can."""

    def emit_scalar(self, point: Any) -> None:
        """Count one point."""
        self.count += 1


def _resident(grows: Any) -> Any:
    blocks = iter(range(1000))
    return lambda: 100 * MEGABYTE + grows(next(blocks))


def test_another_round_needs_time() -> None:
    """A process that grew is not sent more points than fit into its time, nor more than three rounds (PROT-10)."""
    grown: list[tuple[float, float, int]] = [(0.1, 0.1, (100 + 2 * block) * MEGABYTE) for block in range(30)]
    assert another(grown[:10], 2000, spent=10.0, time_limit=30.0)
    assert not another(grown[:10], 2000, spent=13.0, time_limit=30.0)
    assert another(grown[:20], 4000, spent=15.0, time_limit=30.0)
    assert not another(grown[:20], 4000, spent=17.0, time_limit=30.0)
    assert not another(grown, 6000, spent=1.0, time_limit=30.0)


def test_growth_is_that_of_the_last_ten_blocks() -> None:
    """Three blocks speak for each end of the last ten, the first of which warms up (PROT-10)."""
    memory = [0] * 10 + [50, 1, 2, 3, 0, 0, 0, 21, 99, 22]
    assert growth(memory, 20_000) == Growth(bytes=20, points=6000)
    assert not Growth(bytes=2 * MEGABYTE + 48 * 6000, points=6000).keeps_on
    assert Growth(bytes=2 * MEGABYTE + 48 * 6000 + 1, points=6000).keeps_on


def test_free_memory_of_the_parent_hides_no_growth(tmp_path: Path) -> None:
    """A sink that keeps points is seen to, also where the forked process has free memory to keep them in (PROT-10)."""
    # Beside the pages that are kept, small pieces that hold the allocator back from giving the others away by itself.
    pages = [bytearray(4096) + bytes(200) for _ in range(50_000)]
    last = bytearray(4300)
    del pages
    setting = Setting(subject=get_defect("grows-without-bound").subject, folder=tmp_path, size="small", nonce="n")
    facts = scale(setting).facts
    assert growth([block[2] for block in facts["blocks"]], facts["points"]).bytes > 12_000 * 4096
    assert len(last) == 4300
