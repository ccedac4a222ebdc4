"""Points as artifacts of a ClearML task: those of one step in one artifact, in the format of JSONLSink (CLEARML-1)."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from torchlens_conformance.protocol import HistogramPoint, Refusal, TextPoint

from .clearml_names import ARTIFACT_SUFFIX, artifact_name
from .jsonl_rows import FOOTER, HEADER, encode_histogram, encode_text

MOST_BYTES = 4 << 20
"""Bytes of rows that wait for their artifact; a step with more gets several."""

_LONGEST_PREVIEW = 4000
# Characters. ClearML writes all previews of a task anew with every artifact.


class PointArtifacts:
    """Collect the histograms and texts of a step and upload them as one artifact.

    An artifact a point would cost 8 ms and more with every one, since ClearML writes the list of all artifacts anew
    each time (measured with 2.1.12).

    Args:
        task: The live task.
        folder: The folder of its offline session; None for a task with a server.

    Not safe for use by two threads at a time; the sink holds a lock around it.
    """

    def __init__(self, task: Any, folder: Path | None) -> None:
        self._task = task
        self._folder = folder
        # Two sinks on one task, in one process or after a continuation, must not take the same names.
        self._token = f"{time.time_ns() // 1000:016d}-{os.getpid()}"
        self._number = 0
        self._rows: list[bytes] = []
        self._bytes = 0
        self._step = 0
        self._preview: list[str] = []

    @property
    def waiting(self) -> int:
        """How many points wait for their artifact."""
        return len(self._rows)

    def add(self, point: HistogramPoint | TextPoint) -> None:
        """Take a point; what waits of another step is uploaded first. Raises what :meth:`upload` raises."""
        if isinstance(point, HistogramPoint):
            row, shown = encode_histogram(point), f"{len(point.counts)} buckets, {sum(point.counts)} values"
        else:
            row, shown = encode_text(point), point.text
        if self._rows and (point.step != self._step or self._bytes + len(row) > MOST_BYTES):
            self.upload()
        self._step = point.step
        self._rows.append(row)
        self._bytes += len(row)
        if len(self._preview) < 100:
            self._preview.append(f"{point.tag}, step {point.step}: {shown}"[:_LONGEST_PREVIEW])

    def upload(self) -> None:
        """Upload what waits. Raises ``tracker_sink_write_failed``, and the points that waited are gone then."""
        if not self._rows:
            return
        content = b"".join((HEADER, *self._rows, FOOTER))
        name, points = artifact_name(self._token, self._number, self._step), len(self._rows)
        preview = "\n".join(self._preview)[:_LONGEST_PREVIEW]
        self._number += 1
        self._rows, self._bytes, self._preview = [], 0, []
        try:
            taken = self._task.upload_artifact(
                name,
                content,
                preview=_encodable(preview),
                serialization_function=_unchanged,
                extension_name=ARTIFACT_SUFFIX,
                delete_after_upload=True,
                # Offline it is a copy on this machine; through a network it would hold up the training.
                wait_on_upload=self._folder is not None,
            )
            why = "" if taken else "ClearML did not take the artifact"
            if taken and self._folder is not None:
                why = self._why_not_stored(name, len(content))
        except Exception as error:
            raise self._refusal(name, points, f"{type(error).__name__}: {error}") from error
        if why:
            raise self._refusal(name, points, why)

    def _why_not_stored(self, name: str, size: int) -> str:
        """Look at the file of an artifact: ClearML says that it took it, whatever became of the copy."""
        file = Path(str(self._task.artifacts[name].url))
        if self._folder not in file.parents:
            return f"it was stored at {file}, outside the session"
        stored = file.stat().st_size if file.is_file() else 0
        return "" if stored == size else f"{stored} of {size} bytes are there"

    def _refusal(self, name: str, points: int, why: str) -> Refusal:
        return Refusal(
            "tracker_sink_write_failed",
            f"ClearML did not store an artifact of {points} points: {why}.",
            remedy="Free space or mend the place, and start a new task.",
            artifact=name,
            points=points,
        )


def _unchanged(content: bytes) -> bytes:
    return content


def _encodable(text: str) -> str:
    # The preview is for eyes; the points themselves stand in the file. ClearML uploads it as UTF-8.
    return text.encode("utf-8", "replace").decode("utf-8")
