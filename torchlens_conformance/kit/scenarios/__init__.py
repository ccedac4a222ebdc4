"""Scenarios: each drives a subject through one situation in child processes and returns a transcript."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from ..model import Transcript
from .driving import Setting
from .ending import close_twice, closed, teardown
from .plain import plain
from .scaling import scale
from .sharing import fork, second_sink, spawn, threads, two_sinks
from .surviving import full_disk, kill, kill_inside, read_only
from .touching import aliasing, surface
from .writing import changes, close_only, fresh, order, round_trip, tags

SCENARIOS: Mapping[str, Callable[[Setting], Transcript]] = MappingProxyType(
    {
        "surface": surface,
        "round-trip": round_trip,
        "order": order,
        "tags": tags,
        "aliasing": aliasing,
        "teardown": teardown,
        "close-twice": close_twice,
        "closed": closed,
        "close-only": close_only,
        "kill": kill,
        "kill-inside": kill_inside,
        "full-disk": full_disk,
        "read-only": read_only,
        "two-sinks": two_sinks,
        "second-sink": second_sink,
        "fork": fork,
        "spawn": spawn,
        "threads": threads,
        "fresh": fresh,
        "changes": changes,
        "plain": plain,
        "scale": scale,
    }
)
"""Every scenario by id, in the order they are run."""

__all__ = ["SCENARIOS", "Setting"]
