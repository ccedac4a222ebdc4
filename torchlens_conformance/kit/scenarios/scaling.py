"""The scenario of scale: many points, memory and cost block by block."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ...protocol import Point, ScalarPoint, TextPoint
from ..corpus import FULL
from ..growth import BLOCKS, growth, held_bytes
from ..model import Transcript
from ..processes import Channel, run_child
from ..reading import read_here
from .driving import Driver, Setting, drive

ROUNDS = 3
"""Rounds of ten blocks that are sent at most: another one follows while memory kept growing over the last."""

ROUNDS_SHARE = 0.8
"""The part of the child's whole time that a further round must end in at the pace of those before."""

FEWEST = 20_000
"""Points that every sink is sent, however slow it is; in small size all sinks are (PROT-10)."""

SIZES = {FULL: (200_000, 100_000, 50_000, FEWEST)}
"""Numbers of points by size, the wanted one first: a slow sink is sent the largest that fits into the time."""

SHARE = 0.6
"""The part of one process's time that the points may take, at the pace of the first of them; all get three times it."""

_SAMPLES, _SAMPLE = 5, 200


def scale(setting: Setting) -> Transcript:
    """Send 200,000 scalars (20,000 in small) in ten blocks, each ending with a flush; as many again if memory grew.

    An allocator goes on taking memory for a while though nothing is kept, and then stops; a sink that keeps points
    never does. So one whose process grew is sent the same number again, and once more, and is judged by the last ten
    blocks.
    A sink without ``scalar`` gets texts. A sink so slow that they would not fit into the time gets fewer, and
    :func:`shortened` tells; whether memory and cost stay flat shows all the same. The points are counted in the reading
    process and not handed over.
    Facts: ``points``, sent in all, and ``wanted``, the number for one round; ``pace``, seconds a point at first;
    ``blocks``: for each block the seconds of the clock, the processor seconds of the process, and the bytes of memory
    after its flush; ``refused``: how many emits did not return, and the first of them; ``came_back`` and ``wrong``:
    counted by the reader's process. Clause: PROT-10.
    """
    place = setting.place()
    sizes = SIZES.get(setting.size, (FEWEST,))
    patient = replace(setting, limits=replace(setting.limits, timeout=3 * setting.limits.timeout))

    def work(driver: Driver) -> None:
        sink = driver.open(place)
        if sink is None:
            return
        kind = _kind(driver)
        emitting = _Emitting(getattr(sink, _METHODS[kind], None), setting.nonce, kind)
        blocks: list[tuple[float, float, int]] = []
        begin = time.perf_counter()
        total, pace = 0, 0.0
        while not blocks or another(blocks, emitting.sent, time.perf_counter() - begin, patient.limits.timeout):
            for _ in range(BLOCKS):
                clock, processor = time.perf_counter(), time.process_time()
                if not blocks:
                    pace = _pace(driver, sink, emitting)
                    total = fitting(sizes, pace, SHARE * setting.limits.timeout)
                emitting.timed((len(blocks) + 1) * total // BLOCKS - emitting.sent)
                driver.call(sink, "flush", note=f"block {len(blocks)}")
                spent = (time.perf_counter() - clock, time.process_time() - processor)
                blocks.append((*spent, held_bytes()))
                driver.tell(blocks=tuple(blocks), points=emitting.sent, wanted=sizes[0], pace=pace, kind=kind)
                driver.tell(refused=emitting.refused, first=emitting.first)
        driver.call(sink, "close")
        if setting.subject.in_process_read:
            driver.tell(**_count(setting, place, kind, emitting.sent))

    transcript = drive("scale", patient, (), work)
    kind = transcript.facts.get("kind")
    if kind is None or "came_back" in transcript.facts:
        return transcript
    total = transcript.facts["points"]
    outcome = run_child(partial(_count_and_tell, setting, place, kind, total), limits=patient.limits)
    counted: dict[str, Any] = next((record[1] for record in outcome.records if record[0] == "counted"), {})
    counted = counted or {"read_error": f"the reading process ended early: {outcome.ended}"}
    return replace(transcript, facts={**transcript.facts, **counted})


def another(blocks: Sequence[tuple[float, float, int]], points: int, spent: float, time_limit: float) -> bool:
    """Say whether one more round is sent: memory grew over the last one, and there is time.

    Args:
        blocks: Seconds of the clock, processor seconds and bytes of memory for each block so far.
        points: Sent so far.
        spent: Seconds so far.
        time_limit: Seconds that the child has in all.
    """
    rounds = len(blocks) // BLOCKS
    if rounds >= ROUNDS or spent * (rounds + 1) / rounds > ROUNDS_SHARE * time_limit:
        return False
    return growth([block[2] for block in blocks], points).keeps_on


def _pace(driver: Driver, sink: Any, emitting: _Emitting) -> float:
    """Return the seconds a point of the first samples; a sink that gathers points shows its cost at the flush."""
    samples = [emitting.timed(_SAMPLE) for _ in range(_SAMPLES)]
    start = time.perf_counter()
    driver.call(sink, "flush", note="pace")
    return max(min(samples) / _SAMPLE, (time.perf_counter() - start) / (_SAMPLES * _SAMPLE))


def fitting(sizes: tuple[int, ...], pace: float, budget: float) -> int:
    """Return the first of the numbers of points that fits into the budget, in seconds, at a pace; else the last."""
    return next((points for points in sizes if points * pace <= budget), sizes[-1])


def shortened(transcript: Transcript) -> str:
    """Say for the report that a slow sink was sent fewer points than the clause names; nothing when it was not."""
    points, wanted = transcript.facts.get("points"), transcript.facts.get("wanted")
    if not points or not wanted or points >= wanted:
        return ""
    return f"measured over {points:,} points in place of {wanted:,}, which this sink is too slow for in the given time"


class _Emitting:
    """Emits the points one after another and counts those that are not taken.

    Args:
        emit: The sink's method.
        nonce: Of the run.
        kind: ``scalar`` or ``text_manifest``.
    """

    def __init__(self, emit: Callable[[Point], object] | None, nonce: str, kind: str) -> None:
        self.emit, self.nonce, self.kind = emit, nonce, kind
        self.sent = self.refused = 0
        self.first: str | None = None

    def timed(self, count: int) -> float:
        """Emit the next points and return the seconds that it took."""
        start = time.perf_counter()
        for point in scale_points(self.nonce, self.kind, self.sent, count):
            try:
                self.emit(point)  # type: ignore[misc]
            except BaseException as error:
                self.refused += 1
                self.first = self.first or f"{type(error).__name__}: {error}"[:500]
        self.sent += count
        return time.perf_counter() - start


_METHODS = {"scalar": "emit_scalar", "text_manifest": "emit_text"}


def _kind(driver: Driver) -> str:
    words = driver.words or frozenset()
    return "text_manifest" if "scalar" not in words and "text_manifest" in words else "scalar"


def scale_points(nonce: str, kind: str, start: int, count: int) -> Iterator[Point]:
    """Yield ``count`` points; each has a tag object of its own, so that a sink which keeps them is seen to grow."""
    make: Any = ScalarPoint if kind == "scalar" else TextPoint
    for index in range(start, start + count):
        yield make(_tag(nonce, index % _SERIES), index // _SERIES, _body(nonce, kind, index))


_SERIES = 50


def _tag(nonce: str, series: int) -> str:
    return f"gradients/mean/{nonce}.transformer.layers.{series}.attention.weight"


def _body(nonce: str, kind: str, index: int) -> float | str:
    return (index + 0.5) / 3.0 if kind == "scalar" else f"{nonce} {index}"


def _count_and_tell(setting: Setting, place: Path, kind: str, total: int, channel: Channel) -> None:
    channel.send("counted", _count(setting, place, kind, total))


def _count(setting: Setting, place: Path, kind: str, total: int) -> dict[str, Any]:
    back = read_here(setting.subject.read, place)
    if back.points is None:
        return {"read_error": back.error}
    # By arithmetic and not against a list of points: the reader's process must not grow by what was sent.
    known = {_tag(setting.nonce, index): index for index in range(_SERIES)}
    field = "value" if kind == "scalar" else "text"
    left, wrong, first = set(range(total)), 0, None
    for point in back.points:
        index = getattr(point, "step", 0) * _SERIES + known.get(getattr(point, "tag", ""), -(2**40))
        if index in left and getattr(point, field, None) == _body(setting.nonce, kind, index):
            left.discard(index)
        else:
            wrong += 1
            first = first or repr(point)[:300]
    return {"came_back": len(back.points), "lost": len(left), "wrong": wrong, "first_wrong": first}
