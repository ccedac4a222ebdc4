"""Whether Comet's writer has put points on the disk: its file is read as it grows (COMET-1, PROT-10).

An offline experiment hands every message to a thread, which writes it later or not at all; ``experiment.flush()``
returns at once (measured with 3.54.2 and 3.58.8: True, with 1,410 of 2,000 points not written yet).
"""

from __future__ import annotations

import os
import time
import zipfile
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from torchlens_conformance.protocol import Refusal, ScalarPoint, TextPoint
from torchlens_conformance.protocol.compare import same_value

from .readers.comet_messages import TEXT, parse_message, stored_file, stored_metric
from .readers.comet_store import MESSAGES
from .readers.damage import Damage

WINDOW = 256
"""Points that may be on their way to the disk at once; one more waits until half of them have arrived."""

PATIENCE = 60.0
"""Seconds that the next point may take to the disk; it takes a fraction of a millisecond."""

_PAUSE, _LONGEST_PAUSE, _QUICK_LOOKS = 1e-5, 0.01, 200
_GRACE = 0.25
# Seconds for a point once Comet's writer has told of an error and has nothing left to write.
_CHUNK = 1 << 16
_LONGEST = 400

_Point: TypeAlias = ScalarPoint | TextPoint


class CometWriter:
    """The file that an offline experiment's writer thread adds to, and the points that are on their way there.

    It is no more safe for threads than a list: its caller holds a lock. What it raises it raises again at every later
    call.

    Args:
        experiment: A live ``OfflineExperiment``.

    Raises ``tracker_sink_settings_invalid`` when there is no such file. Clause: COMET-1, PROT-10.
    """

    def __init__(self, experiment: Any) -> None:
        self._experiment = experiment
        self._path = os.path.join(str(experiment.tmpdir), MESSAGES)
        try:
            self._file = os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            message = f"The offline experiment writes no {MESSAGES} that could be read: {error.strerror}."
            remedy = "Use a version of Comet that this sink was certified with."
            fields = {"setting": "experiment", "value": self._path}
            raise Refusal("tracker_sink_settings_invalid", message, remedy=remedy, **fields) from error
        self._read = os.fstat(self._file).st_size
        self._arrived = self._read
        self._tail = b""
        self._waiting: deque[tuple[int | None, _Point]] = deque()
        self._error = self._told()
        self._instead: str | None = None
        self._lost = 0
        self._failure: Refusal | None = None

    @property
    def unseen(self) -> int:
        """How many points have not been seen in the file: those on their way, and those lost."""
        return len(self._waiting) + self._lost

    def close(self) -> None:
        """Let go of the file."""
        os.close(self._file)

    def write(self, point: _Point, log: Callable[[], object]) -> None:
        """Call ``log``, which hands ``point`` to Comet, and look what has arrived; wait when too much has not.

        Raises what :meth:`settle` raises, and ``tracker_sink_write_failed`` when Comet took nothing.
        """
        before = self._sent()
        log()
        last = self._sent()
        if before is not None and before == last:
            raise self._failed(point, "Comet took nothing, and says why in its log only")
        self._waiting.append((last, point))
        self._look()
        if len(self._waiting) > WINDOW:
            self.settle(WINDOW // 2)

    def settle(self, most: int = 0) -> None:
        """Wait until no more than ``most`` points are on their way.

        Raises ``tracker_sink_write_failed`` when a point does not come or comes changed, and ``tracker_sink_closed``
        when the experiment was ended before it came; both with ``lost``, how many points may be missing.
        """
        self.require_written()
        left, started, looks, pause = -1, 0.0, 0, _PAUSE
        while True:
            dead = not self._experiment.streamer.is_alive()
            self._look()
            if len(self._waiting) <= most:
                return
            if len(self._waiting) != left:
                left, started, looks, pause = len(self._waiting), time.monotonic(), 0, _PAUSE
            self._require_hope(dead, time.monotonic() - started)
            time.sleep(pause)
            looks += 1
            if looks > _QUICK_LOOKS:
                pause = min(2 * pause, _LONGEST_PAUSE)

    def require_written(self) -> None:
        """Raise again what an earlier call raised."""
        if self._failure is not None:
            raise Refusal(
                self._failure.code,
                self._failure.message,
                remedy=self._failure.remedy,
                **dict(self._failure.fields),
            )

    def _look(self) -> None:
        """Take the points that have arrived off the list of those on their way."""
        outstanding = len(self._waiting)
        self._read_on()
        if outstanding and getattr(self._experiment.streamer, "closed", False):
            self._require_packed(outstanding)
        if not self._waiting:
            # An error that Comet told of meanwhile was another message's.
            self._error = self._told()

    def _read_on(self) -> None:
        for end, message in self._new_messages():
            self._match(message, end)

    def _match(self, message: Mapping[str, Any], end: int) -> None:
        """Take the first point off the list when this is its message; messages come in the order they were sent.

        Args:
            message: The message.
            end: Where it ends in the file.
        """
        if not self._waiting:
            return
        last, point = self._waiting[0]
        if self._stands(message, point):
            self._waiting.popleft()
            self._instead, self._arrived = None, end
            return
        self._instead = self._instead or _resembling(message, point)
        if last is not None and message["payload"].get("message_id", 0) >= last:
            raise self._failed(point, self._instead or "Comet wrote later messages and not this one")

    def _new_messages(self) -> Iterator[tuple[int, dict[str, Any]]]:
        """Yield end and content of the messages written since the last look; a line that is none is passed over."""
        while chunk := os.pread(self._file, _CHUNK, self._read):
            end = self._read - len(self._tail)
            self._read += len(chunk)
            *whole, self._tail = (self._tail + chunk).split(b"\n")
            for line in whole:
                end += len(line) + 1
                try:
                    yield end, parse_message(line + b"\n", 0)
                except Damage:
                    continue

    def _stands(self, message: Mapping[str, Any], point: _Point) -> bool:
        """Whether a message holds a point unchanged."""
        if isinstance(point, ScalarPoint):
            metric = stored_metric(message["payload"])
            return metric is not None and metric[:2] == (point.tag, point.step) and same_value(metric[2], point.value)
        file = stored_file(message["payload"])
        return file is not None and file[:3] == (TEXT, point.tag, point.step) and self._holds(file[3], point.text)

    def _holds(self, name: str, text: str) -> bool:
        """Whether a file of the experiment holds a text."""
        try:
            with open(os.path.join(str(self._experiment.tmpdir), name), "rb") as file:
                return file.read() == text.encode("utf-8")
        except OSError:
            # Comet takes its folder away when it has packed the archive.
            return bool(self._experiment.ended)

    def _require_packed(self, outstanding: int) -> None:
        """Refuse unless everything stands in the archive of an experiment whose writer is closed.

        ``experiment.end()`` waits for the writer and then packs the archive; another experiment packs it at once.

        Args:
            outstanding: How many points were on their way before the last look.
        """
        deadline = time.monotonic() + PATIENCE
        while not self._experiment.ended and time.monotonic() < deadline:
            time.sleep(_LONGEST_PAUSE)
        self._read_on()
        if not self._waiting and self._arrived <= self._packed_bytes():
            return
        message = (
            f"The experiment was ended with {outstanding} points of this sink on their way; its archive may lack them."
        )
        remedy = "Flush or close the sink before the experiment ends, and before another one starts."
        self._lose(
            Refusal("tracker_sink_closed", message, remedy=remedy, lost=outstanding, reason="replaced"), outstanding
        )
        self.require_written()

    def _packed_bytes(self) -> int:
        """Return how much of the file is in the archive; nothing where there is none."""
        experiment = self._experiment
        try:
            # Comet makes the name up at the first call, and gives the same ever after.
            path = os.path.join(experiment.offline_directory, experiment._get_offline_archive_file_name())
            with zipfile.ZipFile(path) as archive:
                return archive.getinfo(MESSAGES).file_size
        except (OSError, zipfile.BadZipFile, KeyError, AttributeError):
            return 0

    def _require_hope(self, dead: bool, waited: float) -> None:
        """Refuse when the first point on its way will not come.

        Args:
            dead: Whether the writer had ended before the last look.
            waited: Seconds since the last point arrived.
        """
        _, point = self._waiting[0]
        if dead:
            raise self._failed(point, self._instead or "its writer has ended")
        # The error may be another message's, and this point still on its way.
        if self._told() is not self._error and self._is_idle() and waited > _GRACE:
            raise self._failed(point, self._instead or "it told of an error")
        if waited > PATIENCE:
            raise self._failed(point, f"it did not come within {PATIENCE:g} seconds")

    def _failed(self, point: _Point, why: str) -> Refusal:
        """Note that a point was not written, and return the refusal."""
        lost = max(1, len(self._waiting))
        fields = {"tag": point.tag, "step": point.step, "lost": lost, "path": self._path}
        remedy = "Free space where the experiment's temporary folder lies, and start a new experiment."
        message = f"Comet did not write a point: {why}."
        said = str(self._told())[:_LONGEST]
        refusal = Refusal("tracker_sink_write_failed", message, remedy=remedy, said=said, **fields)
        self._lose(refusal, lost)
        return refusal

    def _lose(self, refusal: Refusal, lost: int) -> None:
        self._failure, self._lost = refusal, lost
        self._waiting.clear()

    def _sent(self) -> int | None:
        """The number of the last message that was handed to the writer; None where Comet does not count them."""
        count = getattr(self._experiment.streamer, "_counter", None)
        return count if isinstance(count, int) else None

    def _told(self) -> object:
        """The text of the last error that Comet noted for its own server; every error makes a new one."""
        return getattr(self._experiment, "customer_error_message", None)

    def _is_idle(self) -> bool:
        queue = getattr(self._experiment.streamer, "messages", None)
        return queue is None or bool(queue.empty())


def _resembling(message: Mapping[str, Any], point: _Point) -> str | None:
    """Say what a message of a point's tag holds in its place; None for a message of another tag."""
    if isinstance(point, ScalarPoint):
        metric = stored_metric(message["payload"])
        if metric is not None and metric[0] == point.tag:
            return f"it stands there with step {metric[1]!r} and value {metric[2]!r}"
        return None
    file = stored_file(message["payload"])
    if file is not None and file[1] == point.tag:
        return f"it stands there with step {file[2]!r}, or its file holds another text"
    return None
