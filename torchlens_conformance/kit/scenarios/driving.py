"""Driving one sink in a child process, and the transcript that the parent makes of what the child told."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from ...protocol import CAPABILITY_METHODS, Point
from ..model import ACKNOWLEDGED, RAISED, REFUSED, Call, ReadBack, Transcript
from ..processes import OK, Channel, Limits, Outcome, run_child
from ..reading import SAME, read_here, read_place
from ..subject import Subject


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What a scenario works with.

    Args:
        subject: The sink under certification.
        folder: An empty folder of the scenario's own.
        size: ``small`` or ``full``.
        nonce: Letters and digits that stand in every tag.
        limits: What each child may take.
        fresh: Whether places are read in a fresh interpreter, where the reader can be imported.
        about: For the scenario ``plain``: the scenarios whose points it sends; all of them when None.
    """

    subject: Subject
    folder: Path
    size: str
    nonce: str
    limits: Limits = field(default_factory=Limits)
    fresh: bool = False
    about: frozenset[str] | None = None

    def place(self, name: str = "place") -> Path:
        """Return a new, empty folder."""
        path = self.folder / name
        path.mkdir(parents=True)
        return path

    def read(self, place: Path, *, fresh: bool | None = None) -> ReadBack:
        """Read a place in another process."""
        wanted = self.fresh if fresh is None else fresh
        return read_place(self.subject.read, place, limits=self.limits, fresh=wanted)


def describe_error(error: BaseException) -> dict[str, Any]:
    """Return outcome, code, fields, remedy and text of what a sink raised, as values of a :class:`Call`.

    An exception with a text ``code``, or with one in its ``fields`` (torchlens's spelling), counts as a refusal; it
    may still lack fields or remedy. Clause: PROT-9.
    """
    text = f"{type(error).__name__}: {_text(error)}"[:2000]
    try:
        given = getattr(error, "fields", None)
        fields = given if isinstance(given, Mapping) else {}
        code = getattr(error, "code", None) or fields.get("code") or _quiet(lambda: fields["code"])
        remedy = getattr(error, "remedy", None) or fields.get("remedy")
        if not isinstance(code, str) or not code or isinstance(error, SystemExit):
            return {"outcome": RAISED, "exception": text}
        plain = {str(key): repr(value)[:200] for key, value in fields.items()}
        if not isinstance(given, Mapping):
            plain["fields"] = "missing"
        return {
            "outcome": REFUSED,
            "code": code,
            "fields": plain,
            "remedy": remedy if isinstance(remedy, str) else None,
            "exception": text,
        }
    except Exception:
        return {"outcome": RAISED, "exception": text}


def _text(error: BaseException) -> str:
    return _quiet(lambda: str(error)) or "(no text)"


def _quiet(function: Callable[[], Any]) -> Any:
    try:
        return function()
    except Exception:
        return None


class Driver:
    """The child's side: calls the sink, never lets anything out, tells every call before the next one.

    Args:
        channel: Where to tell.
        setting: The scenario's setting.
        points: The points of the scenario; those of undeclared kinds are left out once a sink is open.

    Attributes:
        sent: The points that are sent to this sink.
    """

    def __init__(self, channel: Channel, setting: Setting, points: Sequence[Point] = ()) -> None:
        self.channel, self.setting, self.points = channel, setting, points
        self.sent: list[Point] = []
        self.words: frozenset[str] | None = None

    def open(self, place: Path, *, name: str = "open", note: str = "") -> Any:
        """Open a sink; return None when that failed. The first one settles which capabilities are driven."""
        sink = self.attempt(name, partial(self.setting.subject.open, place), note=note)
        if sink is not None and self.words is None:
            self.words = declared_words(self.setting.subject, sink)
            self.sent = chosen(self.points, self.words)
            self.channel.send("words", sorted(self.words))
        return sink

    def emit(self, sink: Any, index: int, *, note: str = "") -> bool:
        """Emit ``sent[index]``; return whether the call returned."""
        point = self.sent[index]
        call = call_of(point, sink)
        self.channel.send("call", replace(call, note=note), index)
        return call.outcome == ACKNOWLEDGED

    def emit_all(self, sink: Any, *, note: str = "") -> None:
        """Emit every point in order."""
        for index in range(len(self.sent)):
            self.emit(sink, index, note=note)

    def call(self, sink: Any, name: str, *, note: str = "") -> bool:
        """Call ``flush`` or ``close``; return whether it returned."""
        call, _ = called(name, lambda: getattr(sink, name)())
        self.channel.send("call", replace(call, note=note), None)
        return call.outcome == ACKNOWLEDGED

    def attempt(self, name: str, function: Callable[[], Any], *, note: str = "") -> Any:
        """Call ``function``, tell the call under ``name``, return its value or None."""
        call, value = called(name, function)
        self.channel.send("call", replace(call, note=note), None)
        return value

    def tell(self, **facts: Any) -> None:
        """Tell facts, as plain values."""
        self.channel.send("facts", facts)

    def read_back(self, place: Path) -> None:
        """Read in this very process, for a subject that has no store (MEM-1)."""
        if self.setting.subject.in_process_read:
            self.channel.send("read", read_here(self.setting.subject.read, place, how=SAME))


def called(name: str, function: Callable[[], Any]) -> tuple[Call, Any]:
    """Call ``function``; return the call and its value, None when it raised."""
    start = time.perf_counter()
    try:
        value = function()
    except BaseException as error:
        return Call(name, seconds=time.perf_counter() - start, **describe_error(error)), None
    return Call(name, ACKNOWLEDGED, seconds=time.perf_counter() - start), value


def call_of(point: Point, sink: Any) -> Call:
    """Emit ``point`` into ``sink``; return the call, without the point."""
    name = CAPABILITY_METHODS[point.capability]
    return called(name, lambda: getattr(sink, name)(point))[0]


def declared_words(subject: Subject, sink: Any) -> frozenset[str]:
    """Return the capability words that are driven: the subject's own, or those of the sink that are known."""
    if subject.capabilities is not None:
        return frozenset(subject.capabilities)
    _, words = called("capabilities", lambda: frozenset(sink.capabilities()))
    return frozenset(words or ()) & CAPABILITY_METHODS.keys()


def chosen(points: Sequence[Point], words: frozenset[str]) -> list[Point]:
    """Return the points whose capability is among ``words``."""
    return [point for point in points if point.capability in words]


def drive(
    scenario: str,
    setting: Setting,
    points: Sequence[Point],
    work: Callable[[Driver], None],
    *,
    read: Path | None = None,
    watch: Callable[[Any], bool] | None = None,
    facts: Mapping[str, Any] | None = None,
) -> Transcript:
    """Run ``work`` with a driver in a child, then read ``read``, and return the transcript.

    Args:
        scenario: Its id.
        setting: Its setting.
        points: The points that a sink with all capabilities would get.
        work: What the child does.
        read: The place to read afterwards, in another process; None for no reading.
        watch: Sees every record as it comes and says whether to kill the child.
        facts: Further facts for the transcript.
    """
    outcome = run_child(lambda channel: work(Driver(channel, setting, points)), limits=setting.limits, watch=watch)
    transcript = transcript_of(scenario, points, outcome)
    if read is not None and transcript.read is None and not setting.subject.in_process_read:
        transcript = replace(transcript, read=setting.read(read))
    elif read is not None and transcript.read is None:
        error = "the sink has no store, and its process ended before it could be read"
        transcript = replace(transcript, read=ReadBack(None, error, how=SAME))
    base = {"nonce": setting.nonce, "size": setting.size, "printed": outcome.printed}
    return replace(transcript, facts={**base, **transcript.facts, **(facts or {})})


def transcript_of(scenario: str, points: Sequence[Point], outcome: Outcome) -> Transcript:
    """Return the transcript of what a driver's process told."""
    calls: list[Call] = []
    facts: dict[str, Any] = {}
    sent: list[Point] = []
    read: ReadBack | None = None
    for record in outcome.records:
        match record:
            case ("call", call, index):
                calls.append(call if index is None else replace(call, point=sent[index]))
            case ("words", words):
                facts["words"] = tuple(words)
                sent = chosen(points, frozenset(words))
            case ("facts", told):
                facts.update(told)
            case ("read", found):
                read = found
    ended = outcome.ended
    return Transcript(scenario, ended, tuple(calls), tuple(sent), read, facts, outcome.output)


__all__ = ["OK", "Driver", "Setting", "call_of", "called", "describe_error", "drive", "transcript_of"]
