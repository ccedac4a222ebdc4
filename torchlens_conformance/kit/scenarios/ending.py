"""Scenarios of teardown: flush, close, close again, and what comes after."""

from __future__ import annotations

from ...protocol import GraphPoint, Point
from ..corpus import moved, ordinary_points
from ..model import Transcript
from .driving import Driver, Setting, drive

AFTER_CLOSE = "after close"
"""Note of calls that come after close."""


def teardown(setting: Setting) -> Transcript:
    """Flush an empty sink, emit, flush twice, emit more, close. Clause: PROT-6."""
    place = setting.place()

    def work(driver: Driver) -> None:
        sink = driver.open(place)
        if sink is None:
            return
        driver.call(sink, "flush", note="before the first point")
        half = len(driver.sent) // 2
        for index in range(len(driver.sent)):
            if index == half:
                driver.call(sink, "flush", note="first")
                driver.call(sink, "flush", note="again")
            driver.emit(sink, index, note="after flush" if index >= half else "")
        driver.call(sink, "close")
        driver.read_back(place)

    return drive("teardown", setting, ordinary_points(setting.nonce), work, read=place)


def close_twice(setting: Setting) -> Transcript:
    """Emit, flush, and close three times. Clause: PROT-6."""
    place = setting.place()

    def work(driver: Driver) -> None:
        sink = driver.open(place)
        if sink is None:
            return
        driver.emit_all(sink)
        driver.call(sink, "flush")
        driver.call(sink, "close", note="first")
        driver.call(sink, "close", note="again")
        driver.call(sink, "close", note="and again")
        driver.read_back(place)

    return drive("close-twice", setting, ordinary_points(setting.nonce), work, read=place)


def closed(setting: Setting) -> Transcript:
    """Emit the half of the points, close, and emit one point of every kind after that.

    Facts: ``before``, how many points were sent before close. Clause: PROT-6, PROT-11.
    """
    place = setting.place()
    early = ordinary_points(setting.nonce)
    late = late_points(setting.nonce)

    def work(driver: Driver) -> None:
        sink = driver.open(place)
        if sink is None:
            return
        before = sum(point in early_set for point in map(id, driver.sent))
        driver.tell(before=before)
        for index in range(len(driver.sent)):
            if index == before:
                driver.call(sink, "flush")
                driver.call(sink, "close")
            driver.emit(sink, index, note=AFTER_CLOSE if index >= before else "")
        driver.call(sink, "close", note=AFTER_CLOSE)
        driver.read_back(place)

    early_set = set(map(id, early))
    return drive("closed", setting, (*early, *late), work, read=place)


def late_points(nonce: str) -> tuple[Point, ...]:
    """Return one point of every kind, at a step after all ordinary ones."""
    first: dict[str, Point] = {}
    for point in ordinary_points(nonce):
        first.setdefault(point.capability, point)
    return tuple(
        GraphPoint({"nodes": [], "late": nonce})
        if isinstance(point, GraphPoint)
        else moved(point, tag=f"{point.tag}.late", step=50)
        for point in first.values()
    )
