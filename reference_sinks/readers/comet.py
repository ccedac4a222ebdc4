"""Reading an offline experiment of Comet: its archive or its temporary folder, without comet_ml (COMET-1, FID-1)."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from torchlens_conformance.protocol import Point

from .comet_messages import MessagePlacer, lines, parse_message
from .comet_store import MESSAGES, READER, CometStore, find_store
from .damage import Damage
from .refusing import damage_refusal, empty_refusal, torn_text
from .result import ReadResult, Unplaced


def read_comet(path: str | os.PathLike[str], *, allow_torn: bool = False) -> ReadResult:
    """Read every message of an offline experiment, in the order in which Comet wrote them.

    Placed: metrics whose step is an integer and whose value is a number (integers as Python ints; Comet stores NaN and
    the infinities as the words ``NaN``, ``Infinity`` and ``-Infinity``, so a text of that spelling logged as a metric
    is read as the number); texts whose metadata has a ``tag``, as CometSink writes them; histograms of
    ``log_histogram_3d``, over the edges of Comet's grid. A metric that was logged inside a context of Comet
    (``experiment.train()``) has the name that Comet shows, ``train_loss``, and a note counts them. Metrics that Comet
    logs by itself, ``sys.cpu.percent.avg`` for example, are ordinary ones, but for ``process duration``, which is in
    ``unplaced``, as is everything else: metrics without a step, parameters, other files, outputs. Comet's own
    bookkeeping (``curr_step``, ``curr_epoch``) is passed over.

    Args:
        path: The archive that ``experiment.end()`` makes; the temporary folder of an experiment that never ended
            (``experiment.tmpdir``), also while it is written; or a folder with exactly one of both.
        allow_torn: Read what stands before a cut in the messages. Lines in their middle that are no message are passed
            over as well, since Comet itself leaves such lines: a number that it cannot write ends in the middle of a
            line, and the next message follows there (measured). Each is in ``unplaced``, and ``torn`` tells.

    ``closed`` is whether Comet wrote that the experiment ended. Notes tell what Comet wrote about an error of its own.

    Raises ``reader_path_missing``, ``reader_file_empty`` (no bytes, no messages, or the empty archive of an experiment
    that has not ended), ``reader_path_ambiguous``, ``reader_file_foreign``, ``reader_file_truncated`` (a cut archive,
    or messages) and ``reader_file_corrupt``, with ``offset`` and ``points_before``.

    Clause: COMET-1, FID-1, POINT-3.
    """
    place = find_store(Path(path))
    reading = _Reading(place, allow_torn)
    try:
        store = CometStore(place)
        try:
            return reading.result(store)
        finally:
            store.close()
    except Damage as damage:
        raise damage_refusal(damage, place, reader=READER, points_before=len(reading.points)) from None


class _Reading:
    """One pass over the messages of a store."""

    def __init__(self, place: Path, allow_torn: bool) -> None:
        self.place = place
        self.allow_torn = allow_torn
        self.points: list[Point] = []
        self.unplaced: list[Unplaced] = []
        self.torn: list[str] = []

    def result(self, store: CometStore) -> ReadResult:
        notes: Counter[str] = Counter()

        def content(name: str) -> bytes | None:
            return store.content(name) if store.holds(name) else None

        placer = MessagePlacer(content, self.points, self.unplaced, notes)
        self._place_all(store, placer)
        facts = store.facts()
        told = [f"{text}: {count}" for text, count in sorted(notes.items())]
        if facts is not None and facts.get("customer_error_reported"):
            told.append(f"Comet says: {facts.get('customer_error_message')}")
        return ReadResult(
            tuple(self.points),
            tuple(self.unplaced),
            torn="; ".join(self.torn) or None,
            closed=facts is not None,
            reader=READER,
            notes=tuple(told),
        )

    def _place_all(self, store: CometStore, placer: MessagePlacer) -> None:
        end = 0
        with store.reading(MESSAGES) as file:
            for offset, line in lines(file):
                end = offset + len(line)
                try:
                    message = parse_message(line, offset)
                except Damage as damage:
                    self._refuse_or_note(damage, line)
                else:
                    placer.place(message, f"{MESSAGES}@{offset}")
        if not end:
            raise empty_refusal(self.place, f"its {MESSAGES} has no bytes", reader=READER)

    def _refuse_or_note(self, damage: Damage, line: bytes) -> None:
        if not self.allow_torn:
            raise damage
        self.torn.append(torn_text(damage, Path(MESSAGES), size=damage.offset + len(line)))
        if damage.kind == "corrupt":
            content = {"line": line[:1000].decode("utf-8", "replace")}
            self.unplaced.append(Unplaced(f"{MESSAGES}@{damage.offset}", "a line that is no message", content))
