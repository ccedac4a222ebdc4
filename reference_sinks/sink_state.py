"""Whether a sink may still be used, and by which process (PROT-6, PROT-10, PROT-11)."""

from __future__ import annotations

import os

from torchlens_conformance.protocol import Refusal


class SinkState:
    """The life of one sink: open in the process that made it, until it is closed.

    Args:
        name: The sink's class name, for refusals.

    Attributes:
        closed: Whether :meth:`close` was called in this process.

    Clause: PROT-6, PROT-10, PROT-11.
    """

    __slots__ = ("_owner", "closed", "name")

    def __init__(self, name: str) -> None:
        self.name = name
        self.closed = False
        self._owner = os.getpid()

    @property
    def forked(self) -> bool:
        """Whether this process is a forked child of the one that made the sink."""
        return os.getpid() != self._owner

    def require_usable(self) -> None:
        """Refuse ``tracker_sink_closed`` after close and ``tracker_sink_forked`` in a forked child."""
        if self.closed:
            raise Refusal(
                "tracker_sink_closed",
                f"This {self.name} is closed.",
                remedy="Make a new sink; a closed one takes nothing more.",
                sink=self.name,
            )
        if self.forked:
            raise Refusal(
                "tracker_sink_forked",
                f"This {self.name} belongs to process {self._owner}.",
                remedy="Make a sink of its own in the child process, on another place.",
                sink=self.name,
                owner=self._owner,
            )

    def close(self) -> bool:
        """Mark the sink closed; return whether there is something left for this process to close."""
        first = not self.closed and not self.forked
        self.closed = True
        return first
