"""What wandb's service tells its own log about rows that it could not write, and nobody else (WANDB-1, PROT-10)."""

from __future__ import annotations

import os
from typing import Any

from torchlens_conformance.protocol import Refusal

NOT_WRITTEN = b"failed to save record"
"""What a line of the log says when a record was not written (measured with 0.30.0)."""

_LONGEST = 400


class ServiceLog:
    """The log of the service behind a run, ``logs/debug-internal.log`` beside the run's file, read as it grows.

    Args:
        run: The run. One without such a log (another version, a run of mode ``shared``) never says anything.

    Clause: WANDB-1, PROT-10.
    """

    def __init__(self, run: Any) -> None:
        self._path: str | None = getattr(getattr(run, "settings", None), "log_internal", None)
        self._read = 0
        self._failure: str | None = None

    def require_written(self, *, look: bool = False) -> None:
        """Refuse ``tracker_sink_write_failed`` once the log tells of a record that was not written.

        Args:
            look: Whether to look into the log again; without it only what an earlier look found counts.
        """
        if look and self._failure is None and self._path is not None:
            self._look(self._path)
        if self._failure is not None:
            raise Refusal(
                "tracker_sink_write_failed",
                "wandb could not write its file, and drops every row from here on.",
                remedy="Free space, and start a new run on a folder that can be written.",
                path=self._path,
                said=self._failure,
            )

    def _look(self, path: str) -> None:
        try:
            if os.stat(path).st_size <= self._read:
                return
            with open(path, "rb") as log:
                log.seek(self._read)
                new = log.read()
        except OSError:
            return
        # A line that is still being written is read again the next time.
        whole = new.rfind(b"\n") + 1
        found = new.find(NOT_WRITTEN)
        if found >= 0:
            line = new[new.rfind(b"\n", 0, found) + 1 :].split(b"\n", 1)[0]
            self._failure = line[:_LONGEST].decode("utf-8", "replace")
        self._read += whole
