"""Children end in words, whatever they do."""

from __future__ import annotations

import os
import signal
import sys

import pytest

from torchlens_conformance.kit.processes import KILLED, Channel, Limits, run_child

QUICK = Limits(timeout=60.0)


def _says(channel: Channel) -> None:
    channel.send("one", 1)
    print("a line")
    sys.stderr.write("another\n")


def test_a_child_tells_and_ends() -> None:
    """Records come in order, what was printed is kept, and the end is ok (PROT-10)."""
    outcome = run_child(_says, limits=QUICK)
    assert (outcome.ended, outcome.records) == ("ok", [("one", 1), ("done",)])
    assert "a line" in outcome.output and "another" in outcome.output


def _hangs(channel: Channel) -> None:
    channel.send("before")
    while True:
        signal.pause()


def _leaves(channel: Channel) -> None:
    os._exit(0)


def _floods(channel: Channel) -> None:
    while True:
        os.write(1, b"x" * 65536)


def _eats(channel: Channel) -> None:
    kept = []
    while True:
        kept.append(bytearray(os.urandom(1 << 20)))


def _raises(channel: Channel) -> None:
    raise SystemError("no way")


def _meddles(channel: Channel) -> None:
    os.write(channel.descriptor, b"\x04\x00\x00\x00junk")


@pytest.mark.parametrize(
    ("work", "limits", "ended"),
    [
        (_hangs, Limits(timeout=0.2), "timed out"),
        (_leaves, QUICK, "exit code 0"),
        (_raises, QUICK, "exit code 1"),
        (_meddles, QUICK, "told what cannot be read (UnpicklingError)"),
        (_floods, Limits(timeout=20.0, output=1 << 20), "printed more than 1 MB"),
        (_eats, Limits(timeout=20.0, memory=64 << 20), "took more than 64 MB of memory"),
        (lambda channel: os.kill(os.getpid(), signal.SIGSEGV), QUICK, "signal 11"),
    ],
)
def test_bad_ends_have_words(work: object, limits: Limits, ended: str) -> None:
    """A child that hangs, leaves, raises, floods, eats memory or crashes is named by how it ended (PROT-10)."""
    assert run_child(work, limits=limits).ended == ended  # type: ignore[arg-type]


def test_the_watcher_kills_at_a_record() -> None:
    """A record may ask for the child's death; what was told before is kept (PROT-10)."""
    outcome = run_child(_hangs, limits=QUICK, watch=lambda record: record[0] == "before")
    assert outcome.ended == KILLED
    assert outcome.records == [("before",)]


def _leaves_a_child(channel: Channel) -> None:
    pid = os.fork()
    if pid == 0:
        while True:
            signal.pause()
    channel.send("grandchild", pid)


def test_nothing_is_left_behind() -> None:
    """A process that the child started ends with it (PROT-10)."""
    outcome = run_child(_leaves_a_child, limits=QUICK)
    pid = outcome.records[0][1]
    for _ in range(10_000):
        try:
            with open(f"/proc/{pid}/stat", encoding="ascii") as stat:
                if stat.read().rsplit(")", 1)[1].split()[0] in "ZX":
                    return
        except (FileNotFoundError, ProcessLookupError):
            return
    pytest.fail("the grandchild lives on")


def test_large_records_pass() -> None:
    """A record larger than a pipe holds comes through whole (PROT-10)."""
    content = b"x" * (3 << 20)
    assert run_child(lambda channel: channel.send("large", content), limits=QUICK).records[0] == ("large", content)
