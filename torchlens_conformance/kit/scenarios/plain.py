"""The plain trip: all points of the scenarios that are judged against it, on one quiet way there and back."""

from __future__ import annotations

from ...protocol import Point
from ..corpus import ordinary_points
from ..model import Transcript
from .driving import Setting, drive
from .sharing import thread_points, thread_rounds
from .surviving import bulky_points, large_points, room_points
from .writing import write_all_of


def plain(setting: Setting) -> Transcript:
    """Send the points of teardown, survival and sharing in the order of their steps, flush, close and read.

    Clause: PROT-1.
    """
    place = setting.place()
    return drive("plain", setting, plain_points(setting.nonce, setting.size), write_all_of(place), read=place)


def plain_points(nonce: str, size: str) -> tuple[Point, ...]:
    """Return the points, steps never falling; what has no step comes first."""
    points = (
        *ordinary_points(nonce),
        *ordinary_points(nonce + "s"),
        *large_points(nonce),
        *bulky_points(nonce),
        *room_points(nonce),
        *thread_points(nonce, thread_rounds(size)),
    )
    return tuple(sorted(points, key=lambda point: getattr(point, "step", -1)))
