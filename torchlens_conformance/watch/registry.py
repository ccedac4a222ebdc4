"""Open sessions by model, and open holders by sink (ATTACH-2, ATTACH-7)."""

from __future__ import annotations

from collections.abc import Iterable
from weakref import WeakKeyDictionary

from torch import nn

from ..protocol.refusals import Refusal

Key = tuple[str | None, str | None]
"""Namespace and name of a session."""

_sessions: WeakKeyDictionary[nn.Module, set[Key]] = WeakKeyDictionary()
_holders: dict[int, tuple[object, list[Key]]] = {}


def require_free(model: nn.Module, key: Key) -> None:
    """Refuse ``tracker_namespace_collision`` while a session with the same names is open. Clause: ATTACH-2.

    Args:
        model: The innermost module under all wrappers.
        key: Namespace and name.
    """
    if key in _sessions.get(model, ()):
        raise Refusal(
            "tracker_namespace_collision",
            "Another session is open on this model under the same names.",
            remedy="Close it first, or give this one another name= or namespace=.",
            namespace=key[0],
            name=key[1],
        )


def is_held(sink: object) -> bool:
    """Return whether an open session holds the sink."""
    return id(sink) in _holders


def shares_names(sink: object, key: Key) -> bool:
    """Return whether an open session, on whatever model, holds the sink under the same names."""
    return is_held(sink) and key in _holders[id(sink)][1]


class Registration:
    """The entry of one session; made at attach, undone once.

    Args:
        model: The innermost module under all wrappers.
        key: Namespace and name.
        sinks: The sinks that the session holds.
    """

    def __init__(self, model: nn.Module, key: Key, sinks: Iterable[object]) -> None:
        self._key = key
        self._sinks = list(sinks)
        self._sessions = _sessions.setdefault(model, set())
        self._open = True
        self._sessions.add(key)
        for sink in self._sinks:
            _holders.setdefault(id(sink), (sink, []))[1].append(key)

    def release(self) -> list[object]:
        """Undo the entry; return the sinks that other sessions still hold."""
        if self._open:
            self._open = False
            self._sessions.discard(self._key)
            for sink in self._sinks:
                keys = _holders[id(sink)][1]
                keys.remove(self._key)
                if not keys:
                    del _holders[id(sink)]
        return [sink for sink in self._sinks if is_held(sink)]
