"""JSONLSink: one standard JSON object a line, every bit of every point kept (JSONL-1..4)."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path
from typing import NoReturn
from weakref import WeakSet

from torchlens_conformance.protocol import (
    CAPABILITY_METHODS,
    EmbeddingPoint,
    EventPoint,
    GraphPoint,
    HistogramPoint,
    ImagePoint,
    MetadataPoint,
    Refusal,
    ScalarPoint,
    TextPoint,
)

from .jsonl_rows import FOOTER, HEADER, encode_histogram, encode_point, encode_scalar, encode_text
from .sink_state import SinkState
from .whole_row_file import WholeRowFile


class JSONLSink:
    """Write points to a file of JSON lines; all eight capabilities, nothing rounded, nothing renamed.

    The file starts with a header row, has one row a point, and ends with the row ``{"kind": "closed"}`` once the sink
    was closed; :func:`~reference_sinks.readers.read_jsonl` reads it. Folders above the path are made when missing. The
    file is ASCII and strict JSON: NaN and the infinities stand there as ``{"$float": "NaN"}``.

    What survives:

    - A row is with the operating system when its ``emit_*`` returns: killing the process loses nothing. After
      ``flush()`` or ``close()`` it is on the disk (``fsync``): a power cut loses nothing either. Flush seldom, since
      it waits for the disk.
    - A row that the place does not take whole (full disk, size limit) is cut off again and refused; the rows before it
      are intact, and later rows are taken once there is room.
    - Threads may share the sink. A forked child may not: it is refused, and its ``close()`` does nothing.

    The path is locked against other writers, in this process and in others. An existing file is never touched unless
    asked for. A device or a pipe works as path too, without lock, cut and ``fsync``.

    Args:
        path: The file.
        resume: Continue an existing file in a new segment; a torn row at its end is cut off. A file of another kind,
            or one that is damaged before its end, is refused and left as it is.
        overwrite: Drop what the file holds, of whatever kind it is, and start again.

    Raises ``tracker_sink_path_exists``, ``tracker_sink_path_locked``, ``tracker_sink_write_failed`` (fields ``path``,
    ``errno`` as a name, ``row`` counted from 1, 0 when the file cannot be opened) and
    ``tracker_sink_settings_invalid``; with ``resume`` also ``reader_file_empty``, ``reader_file_foreign``,
    ``reader_file_truncated``, ``reader_file_corrupt`` and ``reader_version_unsupported``. Every ``emit_*`` raises
    ``tracker_sink_closed``, ``tracker_sink_forked``, ``tracker_sink_write_failed``, ``point_field_invalid`` for an
    object that is no point, and ``tracker_value_unsupported`` for an integer of more digits than Python converts.

    Clause: JSONL-1, JSONL-2, JSONL-3, JSONL-4, PROT-1, PROT-6, PROT-10, PROT-11.
    """

    __slots__ = ("__weakref__", "_file", "_last_step", "_lock", "_open", "_state")

    def __init__(self, path: str | os.PathLike[str], *, resume: bool = False, overwrite: bool = False) -> None:
        self._open = False
        self._state = SinkState(type(self).__name__)
        # Reentrant, since a signal handler or a finalizer may emit in the middle of an emit.
        self._lock = threading.RLock()
        self._last_step = -1
        if resume and overwrite:
            raise Refusal(
                "tracker_sink_settings_invalid",
                "A file is either continued or started again.",
                remedy="Give resume=True or overwrite=True, not both.",
                setting="resume, overwrite",
            )
        self._file = WholeRowFile(Path(path))
        try:
            if self._file.size:
                self._make_room(resume=resume, overwrite=overwrite)
            self._file.append(HEADER)
        except BaseException:
            self._file.release()
            raise
        self._open = True
        _open_sinks.add(self)

    @property
    def path(self) -> Path:
        """The file, as it was given."""
        return self._file.path

    def capabilities(self) -> frozenset[str]:
        """Return all capability words. Clause: PROT-2."""
        return frozenset(CAPABILITY_METHODS)

    def emit_scalar(self, point: ScalarPoint) -> None:
        """Write one scalar. Clause: JSONL-1."""
        self._append(encode_scalar(point), point.step)

    def emit_histogram(self, point: HistogramPoint) -> None:
        """Write one histogram with counts, edges and summary. Clause: JSONL-1."""
        self._append(encode_histogram(point), point.step)

    def emit_text(self, point: TextPoint) -> None:
        """Write one text. Clause: JSONL-1."""
        self._append(encode_text(point), point.step)

    def emit_image(self, point: ImagePoint) -> None:
        """Write one image, its bytes as base64. Clause: JSONL-1."""
        self._append(encode_point(point), point.step)

    def emit_graph(self, point: GraphPoint) -> None:
        """Write one graph; it has neither tag nor step. Clause: JSONL-1."""
        self._append(encode_point(point), -1)

    def emit_embedding(self, point: EmbeddingPoint) -> None:
        """Write one table of vectors, its bytes as base64. Clause: JSONL-1."""
        self._append(encode_point(point), point.step)

    def emit_event(self, point: EventPoint) -> None:
        """Write one structured event. Clause: JSONL-1."""
        self._append(encode_point(point), point.step)

    def emit_metadata(self, point: MetadataPoint) -> None:
        """Write one mapping of facts about the run. Clause: JSONL-1."""
        self._append(encode_point(point), point.step)

    def flush(self) -> None:
        """Block until the disk holds everything emitted so far (``fsync``).

        Raises ``tracker_sink_closed``, ``tracker_sink_forked`` and ``tracker_sink_write_failed``. Clause: PROT-6.
        """
        with self._lock:
            if not self._open:
                self._state.require_usable()
            self._file.sync()

    def close(self) -> None:
        """Write the footer, wait for the disk, give up the lock; again, or in a forked child, do nothing.

        Lock and descriptor are given up in any case. Raises ``tracker_sink_write_failed`` when the footer cannot be
        written: the file then reads as not closed. Clause: JSONL-1, PROT-6.
        """
        with self._lock:
            if not self._state.close() or not self._open:
                return
            self._open = False
            _open_sinks.discard(self)
            try:
                self._file.append(FOOTER)
                self._file.sync()
            finally:
                self._file.release()

    def last_step(self) -> int | None:
        """Return the largest step in the file, resumed segments included, or None. Clause: PROT-11."""
        return None if self._last_step < 0 else self._last_step

    def __reduce__(self) -> NoReturn:
        """Refuse to be pickled or copied: two sinks would hold one lock."""
        raise TypeError(f"a {type(self).__name__} cannot be pickled or copied; make one from its path where it is used")

    def __del__(self) -> None:
        # Without a footer: nobody said that the run was complete.
        if getattr(self, "_open", False) and not self._state.forked:
            self._file.release()

    def _append(self, row: bytes, step: int) -> None:
        # Not "with": for a scalar that would take a tenth of the time that is left beside the write itself.
        lock = self._lock
        lock.acquire()
        try:
            # Asked under the lock: another thread's close() gives the descriptor's number free for other files.
            if not self._open:
                self._state.require_usable()
            self._file.append(row)
            if step > self._last_step:
                self._last_step = step
        finally:
            lock.release()

    def _make_room(self, *, resume: bool, overwrite: bool) -> None:
        """Prepare a file that already holds data, or refuse."""
        if overwrite:
            self._file.cut(0)
        elif resume:
            from .readers.jsonl import survey

            found = survey(self._file.path, self._file.descriptor)
            self._file.rows, self._last_step = found.rows, found.last_step
            if found.whole_bytes < self._file.size:
                self._file.cut(found.whole_bytes)
        else:
            raise Refusal(
                "tracker_sink_path_exists",
                f"{self._file.path} already holds data.",
                remedy="Give resume=True to continue it, overwrite=True to start again, or another path.",
                path=str(self._file.path),
                bytes=self._file.size,
            )

    def _leave_to_parent(self) -> None:
        # The lock may have been held by a thread that does not exist in the child.
        self._lock = threading.RLock()
        self._open = False
        self._file.abandon()


_open_sinks: WeakSet[JSONLSink] = WeakSet()


def _leave_all_to_parent() -> None:
    # A child that kept the descriptor would hold the parent's lock after the parent's death.
    for sink in list(_open_sinks):
        with contextlib.suppress(OSError):
            sink._leave_to_parent()
    _open_sinks.clear()


os.register_at_fork(after_in_child=_leave_all_to_parent)
