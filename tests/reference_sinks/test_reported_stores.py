"""Reports 29, 36 and 37: what people met in event files and in JSONL files, each with its right value."""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from reference_sinks import JSONLSink
from reference_sinks.readers import read_jsonl, read_tensorboard
from torchlens_conformance.protocol import EventPoint, HistogramPoint, MetadataPoint, Refusal, ScalarPoint

_SCALARS, _HISTOGRAMS = 25_000, 600


def test_reading_events_back_is_no_sample(tmp_path: Path) -> None:
    """Report 29: all of 25,000 scalars and 600 histograms of one tag return, where a default loader samples (FID-1)."""
    pytest.importorskip("torch")
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    from reference_sinks import TensorBoardSink

    sink = TensorBoardSink(tmp_path)
    for step in range(_SCALARS):
        sink.emit_scalar(ScalarPoint("loss", step, 0.5 * step))
    for step in range(_HISTOGRAMS):
        sink.emit_histogram(HistogramPoint("weights", step, (step, 1), (0.0, 1.0, 2.0)))
    sink.close()
    result = read_tensorboard(tmp_path)
    assert [(p.step, p.value) for p in result if isinstance(p, ScalarPoint)] == [(n, 0.5 * n) for n in range(_SCALARS)]
    assert [p.counts for p in result if isinstance(p, HistogramPoint)] == [(n, 1) for n in range(_HISTOGRAMS)]
    assert result.reader == "read_tensorboard" and result.torn is None
    # What a kit with the default loader would blame the route for.
    sampled = EventAccumulator(str(tmp_path))
    sampled.Reload()
    assert len(sampled.Scalars("loss")) == 10_000


def test_numbers_that_json_lacks_are_standard_json(tmp_path: Path) -> None:
    """Report 36: a strict parser takes every line, floats keep their bits, and a string stays one (JSONL-3)."""
    floats = [math.nan, math.inf, -math.inf, -0.0, 1e308, 5e-324]
    path = tmp_path / "run.jsonl"
    sink = JSONLSink(path)
    for step, value in enumerate(floats):
        sink.emit_scalar(ScalarPoint("loss", step, value))
    sink.emit_event(EventPoint("events/it", 9, "said", {"value": math.nan, "text": "NaN", "deep": [{"x": -math.inf}]}))
    sink.emit_metadata(MetadataPoint("torchlens/meta/run", 9, {"value": math.inf, "text": "Infinity"}))
    sink.close()
    for line in path.read_text(encoding="utf-8").splitlines():
        json.loads(line, parse_constant=_no_constant)
    *scalars, event, metadata = read_jsonl(path)
    assert [_bits(point.value) for point in scalars] == [_bits(value) for value in floats]
    assert math.isnan(event.payload["value"]) and event.payload["text"] == "NaN"
    assert event.payload["deep"][0]["x"] == -math.inf
    assert (metadata.metadata["value"], metadata.metadata["text"]) == (math.inf, "Infinity")


def _no_constant(word: str) -> None:
    raise AssertionError(f"{word} is no JSON")


def _bits(value: float) -> bytes:
    return struct.pack("<d", value)


def _write(path: Path, steps: range, **how: Any) -> None:
    sink = JSONLSink(path, **how)
    for step in steps:
        sink.emit_scalar(ScalarPoint("loss", step, step / 3))
    sink.close()


def _steps(path: Path) -> list[int]:
    return [point.step for point in read_jsonl(path) if isinstance(point, ScalarPoint)]


def test_a_reader_beside_a_live_writer_sees_whole_rows(tmp_path: Path) -> None:
    """Report 37: whoever reads while a run writes sees every row so far, whole, and no footer (JSONL-2)."""
    path = tmp_path / "run.jsonl"
    sink = JSONLSink(path)
    for step in range(30):
        sink.emit_scalar(ScalarPoint("loss", step, step / 3))
        result = read_jsonl(path)
        assert len(result.points) == step + 1
        assert (result.torn, result.closed) == (None, False)
    sink.close()
    assert read_jsonl(path).closed is True


@pytest.mark.parametrize(
    "tail", [b'{"kind": "scal', b'{"kind": "scal\n\n', b"\x00\x00"], ids=["cut", "empty-line", "zeros"]
)
def test_a_torn_tail_blocks_neither_reading_nor_the_next_run(tmp_path: Path, tail: bytes) -> None:
    """Report 37: half a last line is named, and a resumed run cuts it off and goes on (JSONL-2, JSONL-4)."""
    path = tmp_path / "run.jsonl"
    _write(path, range(5))
    with path.open("ab") as file:
        file.write(tail)
    result = read_jsonl(path)
    assert len(result.points) == 5 and result.torn is not None
    _write(path, range(5, 8), resume=True)
    assert _steps(path) == list(range(8))
    assert (read_jsonl(path).torn, read_jsonl(path).closed) == (None, True)


@pytest.mark.parametrize("line", [b'{"kind": "scal', b"17", b'["scalar"]'], ids=["torn", "number", "list"])
def test_damage_in_the_middle_is_an_error(tmp_path: Path, line: bytes) -> None:
    """Report 37: a line that is no row and not the last one is refused by name, not passed over (JSONL-2)."""
    path = tmp_path / "run.jsonl"
    _write(path, range(3))
    rows = path.read_bytes().splitlines()
    path.write_bytes(b"\n".join([*rows[:2], line, *rows[2:], b""]))
    with pytest.raises(Refusal) as caught:
        read_jsonl(path)
    assert caught.value.code == "reader_file_corrupt"
    assert caught.value.fields["line"] == 3


def test_line_ends_of_another_system_are_read(tmp_path: Path) -> None:
    """Report 37: a file whose line ends became CRLF on the way gives the same points (JSONL-2)."""
    path = tmp_path / "run.jsonl"
    _write(path, range(4))
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert _steps(path) == [0, 1, 2, 3] and read_jsonl(path).torn is None


_OTHER_RANK = """
import json, sys
from reference_sinks import JSONLSink
from torchlens_conformance.protocol import Refusal
told = []
for how in ({}, {"resume": True}, {"overwrite": True}):
    try:
        JSONLSink(sys.argv[1], **how)
    except Refusal as refusal:
        told.append(refusal.code)
print(json.dumps(told))
"""


def test_every_rank_writing_one_file_is_refused(tmp_path: Path, program: Callable[..., Any]) -> None:
    """Report 37: of several processes on one path one writes, the others are told (JSONL-2)."""
    path = tmp_path / "run.jsonl"
    sink = JSONLSink(path)
    sink.emit_scalar(ScalarPoint("loss", 0, 0.5))
    told = program(_OTHER_RANK, str(path)).printed
    sink.emit_scalar(ScalarPoint("loss", 1, 0.25))
    sink.close()
    assert told == ["tracker_sink_path_locked"] * 3
    assert _steps(path) == [0, 1]
