"""Scenarios of survival: sudden death, a full disk, a place that cannot be written."""

from __future__ import annotations

import contextlib
import os
import resource
import secrets
import signal
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ...protocol import (
    DEFAULT_DESCRIPTOR,
    EmbeddingPoint,
    EventPoint,
    HistogramPoint,
    ImagePoint,
    MetadataPoint,
    Point,
    ScalarPoint,
    TextPoint,
)
from ..corpus import FULL, moved, ordinary_points, scattered
from ..model import Transcript
from ..processes import KILLED
from .driving import Driver, Setting, drive

UNPRIVILEGED = 65534
"""The user and group that a privileged process becomes to meet a read-only place."""


def kill(setting: Setting) -> Transcript:
    """Kill the process (signal 9) between emits, after several numbers of points.

    A point is acknowledged once ``flush`` has returned: a sink may buffer until then. After the flush three more
    points are emitted, which may come back or not, then the parent kills.
    Facts: ``parts``, a transcript for each number of points. Clause: PROT-10.
    """
    counts = (1, 5, 12, 30) if setting.size == FULL else (1, 12)
    points = ordinary_points(setting.nonce)
    parts = {f"after {count}": _killed(setting, "kill", points, _at_most(count), late=3) for count in counts}
    return _joined("kill", parts)


def _at_most(count: int) -> Callable[[Sequence[Point]], int]:
    return lambda sent: min(count, len(sent))


def kill_inside(setting: Setting) -> Transcript:
    """Kill the process (signal 9) in the middle of emits of large points, after several delays.

    Some points are emitted and flushed before. A thread of the child kills its own process while the main thread emits
    one large point after another. Facts: ``parts``, a transcript for each delay. Clause: PROT-10.
    """
    delays = (0.0, 0.002, 0.005, 0.01, 0.02, 0.04) if setting.size == FULL else (0.001, 0.03)
    early = ordinary_points(setting.nonce)[:16]
    early_set = set(map(id, early))
    points = (*early, *large_points(setting.nonce))

    def flushed(sent: Sequence[Point]) -> int:
        return sum(id(point) in early_set for point in sent)

    parts = {
        f"after {1000 * delay:g} ms": _killed(setting, "kill-inside", points, flushed, delay=delay) for delay in delays
    }
    return _joined("kill-inside", parts)


def _killed(
    setting: Setting,
    scenario: str,
    points: Sequence[Point],
    count: Callable[[Sequence[Point]], int],
    *,
    late: int | None = None,
    delay: float | None = None,
) -> Transcript:
    """Emit as many points as ``count`` says, flush, emit ``late`` more (or all), and die: after these, or meanwhile."""
    place = setting.place("place-" + secrets.token_hex(4))

    def work(driver: Driver) -> None:
        sink = driver.open(place)
        if sink is None:
            return
        flushed = count(driver.sent)
        for index in range(flushed):
            driver.emit(sink, index)
        driver.call(sink, "flush")
        if delay is not None:
            driver.channel.send("kill me soon")
            threading.Thread(target=_die_after, args=(delay,), daemon=True).start()
        for index in range(flushed, len(driver.sent))[:late]:
            driver.emit(sink, index, note="after flush")
        if delay is None:
            driver.channel.send("kill me")
        while True:
            signal.pause()

    transcript = drive(scenario, setting, points, work, read=place, watch=_asks_for_death)
    ended = KILLED if transcript.ended == f"signal {int(signal.SIGKILL)}" else transcript.ended
    return replace(transcript, ended=ended)


def _asks_for_death(record: Any) -> bool:
    return bool(record[0] == "kill me")


def _die_after(delay: float) -> None:
    time.sleep(delay)
    os.kill(os.getpid(), signal.SIGKILL)


def large_points(nonce: str) -> list[Point]:
    """Return the points in whose emits the process is killed: histograms and texts of some kilobytes, scalars."""
    points: list[Point] = []
    edges = DEFAULT_DESCRIPTOR.edges
    for step in range(100, 130):
        counts = tuple((step * index) % 100_003 for index in range(len(edges) - 1))
        points.append(HistogramPoint(f"gradients/hist/{nonce}.large", step, counts, edges))
        points.append(TextPoint(f"torchlens/meta/{nonce}.large", step, f"{nonce} {step} " * 2000))
        points += [ScalarPoint(f"gradients/mean/{nonce}.{leaf}", step, step / (7.0 + leaf)) for leaf in range(10)]
    return points


def _joined(scenario: str, parts: dict[str, Transcript]) -> Transcript:
    first = next(iter(parts.values()))
    return Transcript(
        scenario,
        first.ended,
        tuple(call for part in parts.values() for call in part.calls),
        first.sent,
        facts={**first.facts, "parts": parts},
        output=first.output,
    )


def full_disk(setting: Setting) -> Transcript:
    """Let the system refuse writes in the middle: ``RLIMIT_FSIZE`` stands in for a full disk.

    An honest stand-in: a real full disk needs a file system of its own and rights that a certification does not have.
    The limit makes a write past a size fail with ``EFBIG`` where a full disk says ``ENOSPC``; ``SIGXFSZ`` is ignored,
    so that the write fails and the process lives. A sink that maps files into memory does not meet it, nor does one
    that lets a process write which was running before (wandb's service). After three
    refusals and a flush the limit is lifted, and some more points are emitted.
    Facts: ``limit``, bytes that a file may have. Clause: PROT-10.
    """
    place = setting.place()
    early, later = ordinary_points(setting.nonce)[:16], room_points(setting.nonce)
    early_set, later_set = set(map(id, early)), set(map(id, later))

    def work(driver: Driver) -> None:
        sink = driver.open(place)
        if sink is None:
            return
        flushed = sum(id(point) in early_set for point in driver.sent)
        more = len(driver.sent) - sum(id(point) in later_set for point in driver.sent)
        for index in range(flushed):
            driver.emit(sink, index)
        driver.call(sink, "flush")
        driver.tell(limit=_fill_disk(place))
        refused = 0
        for index in range(flushed, more):
            refused += not driver.emit(sink, index, note="full disk")
            if refused == 3:
                break
        driver.call(sink, "flush", note="full disk")
        _give_room()
        # The sink may go on or stay refusing; what it takes from here on must be there, beside all that was.
        for index in range(more, len(driver.sent)):
            driver.emit(sink, index, note="room again")
        driver.call(sink, "flush", note="room again")
        driver.call(sink, "close", note="room again")
        driver.read_back(place)

    return drive("full-disk", setting, (*early, *bulky_points(setting.nonce, setting.size), *later), work, read=place)


def _fill_disk(place: Path) -> int:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    sizes = [path.stat().st_size for path in place.rglob("*") if path.is_file()]
    limit = max(sizes, default=0) + 150_000
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, hard))
    return limit


def _give_room() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (hard, hard))


def room_points(nonce: str) -> tuple[Point, ...]:
    """Return the points that are emitted once the disk has room again: small ones, then more than had room before."""
    ordinary = [point for point in ordinary_points(nonce)[:24] if hasattr(point, "tag")]
    small = [moved(point, tag=f"{point.tag}.room", step=200 + index) for index, point in enumerate(ordinary)]
    return (*small, *_bulky_round(nonce, 300))


def bulky_points(nonce: str, size: str) -> list[Point]:
    """Return points that fill a disk, more rounds of them in full size.

    The sinks of small size are those of the controls, which carry every kind: few rounds fill their disk.
    """
    return [point for step in range(60, 72 if size == FULL else 64) for point in _bulky_round(nonce, step)]


def _bulky_round(nonce: str, step: int) -> list[Point]:
    """Return points that no compressor makes small, some 40 kB of each kind."""
    raw = scattered(f"{nonce} {step}", 40_000)
    text = raw[:20_000].hex()
    numbers = memoryview(raw[:8192]).cast("I")
    edges = tuple(index / 3.0 for index in range(len(numbers) + 1))
    scalars = [ScalarPoint(f"gradients/{text[i : i + 100]}/{nonce}", step, i / 3.0) for i in range(0, 20_000, 200)]
    return [
        *scalars,
        TextPoint(f"torchlens/meta/{nonce}.bulk", step, text),
        HistogramPoint(f"gradients/hist/{nonce}.bulk", step, tuple(numbers), edges),
        ImagePoint(f"images/{nonce}.bulk", step, raw, (100, 100, 4), "uint8"),
        EmbeddingPoint(f"embeddings/{nonce}.bulk", step, raw, (100, 400), "uint8"),
        EventPoint(f"events/{nonce}.bulk", step, "bulk", {"text": text}),
        MetadataPoint(f"torchlens/meta/{nonce}.bulk-facts", step, {"text": text}),
    ]


def read_only(setting: Setting) -> Transcript:
    """Open a sink on a folder that nobody may write to.

    A privileged process could write all the same, so it becomes the user 65534 first; before that a sink is opened on
    another place, so that everything that the subject imports is there. Facts: ``writable``, whether the place could
    be written to nevertheless. Clause: PROT-10.
    """
    place, warm = setting.place(), setting.place("warm")

    def work(driver: Driver) -> None:
        _import_everything(driver, warm)
        place.chmod(0o555)
        if os.geteuid() == 0:
            _become_unprivileged()
        driver.tell(writable=os.access(place, os.W_OK))
        sink = driver.open(place)
        if sink is None:
            return
        for index in range(min(20, len(driver.sent))):
            driver.emit(sink, index)
        driver.call(sink, "flush")
        driver.call(sink, "close")
        driver.read_back(place)

    try:
        return drive("read-only", setting, ordinary_points(setting.nonce), work, read=place)
    finally:
        with contextlib.suppress(OSError):
            place.chmod(0o755)


def _import_everything(driver: Driver, place: Path) -> None:
    with contextlib.suppress(Exception):
        sink = driver.setting.subject.open(place)
        from .driving import chosen, declared_words

        words = declared_words(driver.setting.subject, sink)
        driver.channel.send("words", sorted(words))
        points: Sequence[Point] = chosen(driver.points, words)
        for point in points[:20]:
            from .driving import call_of

            call_of(point, sink)
        sink.close()


def _become_unprivileged() -> None:
    steps: tuple[Callable[[], None], ...] = (
        lambda: os.setgroups([]),
        lambda: os.setgid(UNPRIVILEGED),
        lambda: os.setuid(UNPRIVILEGED),
    )
    for step in steps:
        with contextlib.suppress(OSError):
            step()
