"""Scenarios of sharing: two sinks, a second sink, forked and spawned processes, threads."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ...protocol import Point, ScalarPoint, TextPoint
from ..corpus import FULL, moved, ordinary_points
from ..model import ACKNOWLEDGED, Call, Transcript
from ..reading import environment, import_path
from .driving import Driver, Setting, call_of, called, chosen, drive

THREADS = 8
"""Threads of the threads scenario."""


def two_sinks(setting: Setting) -> Transcript:
    """Drive two sinks on two places in turn in one process; the first is closed halfway.

    Facts: ``parts`` with the transcripts of ``a`` and ``b``. Clause: PROT-10.
    """
    places = {"a": setting.place("a"), "b": setting.place("b")}

    def work(driver: Driver) -> None:
        sinks = {name: driver.open(place, note=name) for name, place in places.items()}
        if None in sinks.values():
            return
        for index in range(len(driver.sent)):
            if index == len(driver.sent) // 2:
                driver.call(sinks["a"], "flush", note="a")
                driver.call(sinks["a"], "close", note="a")
            name = "b" if index % 2 or index >= len(driver.sent) // 2 else "a"
            driver.emit(sinks[name], index, note=name)
        driver.call(sinks["b"], "flush", note="b")
        driver.call(sinks["b"], "close", note="b")
        if driver.setting.subject.in_process_read:
            from ..reading import read_here

            driver.tell(reads={name: read_here(driver.setting.subject.read, place) for name, place in places.items()})

    transcript = drive("two-sinks", setting, ordinary_points(setting.nonce), work)
    return _split(transcript, setting, places)


def _split(transcript: Transcript, setting: Setting, places: dict[str, Path]) -> Transcript:
    """Part a transcript by the notes of its calls; each part reads its own place."""
    reads = transcript.facts.get("reads", {})
    parts = {}
    for name, place in places.items():
        calls = tuple(call for call in transcript.calls if call.note == name)
        back = reads.get(name) or setting.read(place)
        parts[name] = replace(transcript, calls=calls, read=back, facts={"words": transcript.facts.get("words", ())})
    return replace(transcript, facts={**transcript.facts, "parts": parts})


def second_sink(setting: Setting) -> Transcript:
    """Open a second sink on a place that holds data, after the first one's close and while it is open.

    The second either is refused with a code, or both sinks' points are readable.
    Facts: ``parts`` with ``after close`` and ``while open``. Clause: PROT-10.
    """
    parts = {name: _second(setting, name) for name in ("after close", "while open")}
    first = next(iter(parts.values()))
    return replace(first, facts={**first.facts, "parts": parts})


def _second(setting: Setting, name: str) -> Transcript:
    place = setting.place(name.replace(" ", "-"))

    def work(driver: Driver) -> None:
        first = driver.open(place)
        if first is None:
            return
        half = len(driver.sent) // 2
        for index in range(half):
            driver.emit(first, index)
        driver.call(first, "flush")
        if name == "after close":
            driver.call(first, "close")
        second = driver.open(place, name="open second", note="second")
        if second is not None:
            for index in range(half, len(driver.sent)):
                driver.emit(second, index, note="second")
            driver.call(second, "flush", note="second")
            driver.call(second, "close", note="second")
        if name != "after close":
            driver.call(first, "close")
        driver.read_back(place)

    return drive("second-sink", setting, ordinary_points(setting.nonce), work, read=place)


def fork(setting: Setting) -> Transcript:
    """Fork while a sink is open; the forked child emits, flushes and closes; then the parent goes on.

    Half of the parent's points are unflushed at the fork: a buffer that both write out doubles them.
    Facts: ``child``, what each of the child's calls did; ``child_ended``. Clause: PROT-10.
    """
    place = setting.place()

    def work(driver: Driver) -> None:
        sink = driver.open(place)
        if sink is None:
            return
        half = len(driver.sent) // 2
        for index in range(half):
            driver.emit(sink, index)
        strange = chosen(foreign_points(setting.nonce), driver.words or frozenset())
        driver.tell(child_ended=_fork_and_emit(sink, strange, setting.limits.timeout / 3))
        for index in range(half, len(driver.sent)):
            driver.emit(sink, index)
        driver.call(sink, "flush")
        driver.call(sink, "close")
        driver.read_back(place)

    return drive("fork", setting, ordinary_points(setting.nonce), work, read=place)


def foreign_points(nonce: str) -> tuple[Point, ...]:
    """Return the points that a forked child emits; none of them belongs into the parent's store."""
    return (
        *(ScalarPoint(f"foreign/mean/{nonce}", step, step / 3.0) for step in range(20, 25)),
        *(TextPoint(f"foreign/{nonce}", step, f"{nonce} from the forked child") for step in range(20, 22)),
        *(point for point in ordinary_points(nonce + "x") if point.capability not in ("scalar", "text_manifest")),
    )


def _fork_and_emit(sink: Any, points: Sequence[Point], patience: float) -> str:
    pid = os.fork()
    if pid == 0:
        with contextlib.suppress(BaseException):
            for point in points:
                call_of(point, sink)
            called("flush", lambda: sink.flush())
            called("close", lambda: sink.close())
        os._exit(0)
    deadline = time.monotonic() + patience
    while time.monotonic() < deadline:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return "ok" if os.waitstatus_to_exitcode(status) == 0 else f"status {os.waitstatus_to_exitcode(status)}"
        time.sleep(0.001)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return "timed out"


def spawn(setting: Setting) -> Transcript:
    """Start a new interpreter while a sink is open; it opens a sink of its own on another place.

    Where ``open`` cannot be imported, the process is forked in place of being started anew.
    Facts: ``parts`` with ``parent`` and ``spawned``; ``how``; ``child_said``. Clause: PROT-10.
    """
    places = {"parent": setting.place("parent"), "spawned": setting.place("spawned")}
    path = import_path(setting.subject.open)

    def work(driver: Driver) -> None:
        sink = driver.open(places["parent"], note="parent")
        if sink is None:
            return
        half = len(driver.sent) // 2
        words = ",".join(sorted(driver.words or ()))
        for index in range(len(driver.sent)):
            if index == half:
                said = _start(setting, path, places["spawned"], words)
                driver.tell(child_said=said, how="fresh process" if path else "forked process")
            driver.emit(sink, index, note="parent")
        driver.call(sink, "flush", note="parent")
        driver.call(sink, "close", note="parent")

    transcript = drive("spawn", setting, ordinary_points(setting.nonce), work)
    transcript = _split(transcript, setting, places)
    spawned = _spawned_part(transcript, setting)
    return replace(transcript, facts={**transcript.facts, "parts": {**transcript.facts["parts"], "spawned": spawned}})


def _spawned_part(transcript: Transcript, setting: Setting) -> Transcript:
    part: Transcript = transcript.facts["parts"]["spawned"]
    points = chosen(ordinary_points(setting.nonce + "s"), frozenset(transcript.facts.get("words", ())))
    calls = tuple(Call("emit", ACKNOWLEDGED, point) for point in points)
    return replace(part, calls=(Call("open", ACKNOWLEDGED), *calls), sent=tuple(points))


def _start(setting: Setting, path: tuple[str, str] | None, place: Path, words: str) -> str:
    """Let another process write a place; return what it said, nothing when all went well."""
    nonce = setting.nonce + "s"
    if path is None:
        pid = os.fork()
        if pid == 0:
            said = _quietly(partial(write_all, setting.subject.open, place, nonce, words))
            sys.stderr.write(said)
            sys.stderr.flush()
            os._exit(1 if said else 0)
        _, status = os.waitpid(pid, 0)
        return "" if status == 0 else f"the forked process ended with status {status}"
    program = (
        "import sys; from torchlens_conformance.kit.scenarios.sharing import spawned_main; spawned_main(sys.argv[1:])"
    )
    arguments = [sys.executable, "-c", program, *path, str(place), nonce, words]
    try:
        done = subprocess.run(
            arguments, env=environment(), capture_output=True, text=True, timeout=setting.limits.timeout * 0.8
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"{type(error).__name__}: {error}"[:500]
    return "" if done.returncode == 0 else f"exit code {done.returncode}: {(done.stderr or done.stdout)[-800:]}"


def _quietly(function: Any) -> str:
    try:
        return str(function())
    except BaseException as error:
        return f"{type(error).__name__}: {error}"


def spawned_main(arguments: list[str]) -> None:
    """Be the spawned process: module and name of ``open``, place, nonce, capability words."""
    module, name, place, nonce, words = arguments
    function: Any = __import__(module, fromlist=["_"])
    for part in name.split("."):
        function = getattr(function, part)
    said = write_all(function, Path(place), nonce, words)
    sys.exit(said or 0)


def write_all(function: Any, place: Path, nonce: str, words: str) -> str:
    """Write the ordinary points to a place; return what went wrong, or nothing."""
    sink = function(place)
    for point in chosen(ordinary_points(nonce), frozenset(words.split(","))):
        call = call_of(point, sink)
        if call.outcome != ACKNOWLEDGED:
            return f"{call.name}: {call.code or call.exception}"
    sink.flush()
    sink.close()
    return ""


def threads(setting: Setting) -> Transcript:
    """Let eight threads emit into one sink at once, each with tags of its own. Clause: PROT-10."""
    place = setting.place()

    def work(driver: Driver) -> None:
        sink = driver.open(place)
        if sink is None:
            return
        told: list[list[tuple[int, Call]]] = [[] for _ in range(THREADS)]
        owners = [_owner(point) for point in driver.sent]
        barrier = threading.Barrier(THREADS)

        def emit(number: int) -> None:
            mine = [index for index, owner in enumerate(owners) if owner == number]
            barrier.wait()
            for index in mine:
                told[number].append((index, call_of(driver.sent[index], sink)))

        sys.setswitchinterval(1e-5)
        running = [threading.Thread(target=emit, args=(number,), daemon=True) for number in range(THREADS)]
        for thread in running:
            thread.start()
        for thread in running:
            thread.join()
        sys.setswitchinterval(0.005)
        for index, call in sorted((pair for pairs in told for pair in pairs), key=lambda pair: pair[0]):
            driver.channel.send("call", call, index)
        driver.call(sink, "flush")
        driver.call(sink, "close")
        driver.read_back(place)

    return drive("threads", setting, thread_points(setting.nonce, thread_rounds(setting.size)), work, read=place)


def thread_rounds(size: str) -> int:
    """Return how many scalars each thread emits."""
    return 150 if size == FULL else 30


def _owner(point: Point) -> int:
    return int(getattr(point, "tag", "0").rsplit("thread", 1)[-1] or 0)


def thread_points(nonce: str, rounds: int) -> list[Point]:
    """Return the points of the threads scenario, ``rounds`` scalars for each thread."""
    points: list[Point] = []
    kinds = {type(point): point for point in reversed(ordinary_points(nonce)) if hasattr(point, "tag")}
    for step in range(rounds):
        for number in range(THREADS):
            points.append(ScalarPoint(f"gradients/mean/{nonce}.thread{number}", step, (step * THREADS + number) / 3.0))
            if step % 10 == 0:
                points += [
                    moved(point, tag=f"{getattr(point, 'tag', '')}.thread{number}", step=step)
                    for kind, point in kinds.items()
                    if kind is not ScalarPoint
                ]
    return points
