"""The plain trip: all points of the scenarios that are judged against it, on one quiet way there and back."""

from __future__ import annotations

from collections.abc import Callable, Iterable

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
    points = plain_points(setting.nonce, setting.size, about=setting.about)
    return drive("plain", setting, points, write_all_of(place), read=place)


def plain_points(nonce: str, size: str, *, about: frozenset[str] | None = None) -> tuple[Point, ...]:
    """Return the points, steps never falling; what has no step comes first.

    Args:
        nonce: Letters and digits that stand in every tag.
        size: ``small`` or ``full``.
        about: The scenarios whose points are wanted; all of them when None.
    """
    special: dict[str, Callable[[], Iterable[Point]]] = {
        "spawn": lambda: ordinary_points(nonce + "s"),
        "kill-inside": lambda: large_points(nonce),
        "full-disk": lambda: (*bulky_points(nonce, size), *room_points(nonce)),
        "threads": lambda: thread_points(nonce, thread_rounds(size)),
    }
    points = list(ordinary_points(nonce))
    for scenario, more in special.items():
        if about is None or scenario in about:
            points += more()
    return tuple(sorted(points, key=lambda point: getattr(point, "step", -1)))
