"""Whether the scalars that were reported stand in the file of ClearML's offline session (CLEARML-1, PROT-10)."""

from __future__ import annotations

import json
import time
from collections import Counter
from pathlib import Path
from typing import TypeAlias

from torchlens_conformance.protocol import Refusal

METRICS = "metrics.jsonl"
"""The file of an offline session to which every scalar goes."""

_PATIENCE_WITH_A_THREAD, _PATIENCE_WITH_A_PROCESS = 1.0, 15.0
# Seconds after a flush in which nothing more arrives. A reporter that is a thread has written by then; one that is a
# process writes every five seconds, and flush may return before that.

Reported: TypeAlias = tuple[str, str, int, float]
"""Title, series, iteration and value of a scalar."""


class SessionLog:
    """Reported scalars that were not seen in the session's file yet.

    ClearML's reporter dies of the first write that fails: it says so in a traceback on the screen, ``flush`` returns
    as ever, and nothing that is reported afterwards is written (measured with 2.1.12). So the file is read along.

    Args:
        folder: The folder of the offline session.
        own_process: Whether the reporter is a process of its own.

    Not safe for use by two threads at a time; the sink holds a lock around it. Clause: CLEARML-1, PROT-10.
    """

    def __init__(self, folder: Path, *, own_process: bool) -> None:
        self._path = folder / METRICS
        self._patience = _PATIENCE_WITH_A_PROCESS if own_process else _PATIENCE_WITH_A_THREAD
        self._read = self._size()
        self._waiting: Counter[Reported] = Counter()

    @property
    def waiting(self) -> int:
        """How many scalars were reported and not seen yet, as far as equal ones count once."""
        return len(self._waiting)

    def expect(self, scalar: Reported) -> None:
        """Note a scalar that is about to be reported."""
        self._waiting[scalar] += 1

    def look(self) -> None:
        """Cross off what stands in the file by now."""
        if self._size() <= self._read:
            return
        with self._path.open("rb") as stream:
            stream.seek(self._read)
            for line in stream:
                # A line that is still being written is read again the next time.
                if not line.endswith(b"\n"):
                    return
                self._read += len(line)
                self._cross_off(line)

    def require_written(self) -> None:
        """Refuse ``tracker_sink_write_failed`` unless everything stands in the file; called after ClearML's flush."""
        self.look()
        left, deadline, pause = len(self._waiting), time.monotonic() + self._patience, 0.001
        while self._waiting and time.monotonic() < deadline:
            time.sleep(pause)
            pause = min(2 * pause, 0.1)
            self.look()
            if len(self._waiting) < left:
                left, deadline = len(self._waiting), time.monotonic() + self._patience
        if not self._waiting:
            return
        title, series, step, value = next(iter(self._waiting))
        raise Refusal(
            "tracker_sink_write_failed",
            f"{sum(self._waiting.values())} scalars did not reach ClearML's file, and what is reported from here on "
            "will not either.",
            remedy="Free space or mend the place, and start a new task.",
            path=str(self._path),
            first=f"{title}/{series} at step {step}: {value!r}",
        )

    def _cross_off(self, line: bytes) -> None:
        try:
            events = json.loads(line)
        except ValueError:
            # Damage that another writer went on behind; what is missing will be missed.
            return
        for event in events:
            scalar = (event.get("metric"), event.get("variant"), event.get("iter"), event.get("value"))
            left = self._waiting.get(scalar, 0)
            if left > 1:
                self._waiting[scalar] = left - 1
            elif left:
                del self._waiting[scalar]

    def _size(self) -> int:
        try:
            return self._path.stat().st_size
        except OSError:
            return 0
