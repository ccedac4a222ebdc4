"""read_jsonl over whole, cut, damaged, foreign and older files."""

from __future__ import annotations

import json
import math
import os
from pathlib import Path
from typing import Any

import pytest

from reference_sinks import JSONLSink
from reference_sinks.readers import ReadResult, read_jsonl
from reference_sinks.readers.jsonl_rows import RowScan
from torchlens_conformance.protocol import (
    DEFAULT_DESCRIPTOR,
    HistogramPoint,
    Refusal,
    ScalarPoint,
    TextPoint,
)

from ..jsonl_points import ONE_OF_EACH, emit, same

HEADER = b'{"format":"torchlens.trackers.jsonl.v1","version":1,"nonfinite":"$float"}\n'
ROW = b'{"kind":"scalar","tag":"a","step":1,"value":0.5}\n'
FOOTER = b'{"kind":"closed"}\n'

# Written by torchlens 2.36.1.
TORCHLENS = b"""\
{"format": "torchlens.trackers.jsonl.v1", "version": 1}
{"kind": "scalar", "step": 3, "tag": "a/b", "value": 0.5}
{"kind": "scalar", "step": 3, "tag": "a/\\u00e9", "value": NaN}
{"kind": "scalar", "step": 4, "tag": "a/b", "value": -Infinity}
{"counts": [1, 2], "edges": [0.0, 1.0, 2.0], "kind": "histogram", "step": 3, "summary": {"max": Infinity, "num": 3}, "tag": "h"}
{"kind": "text", "step": 0, "tag": "t", "text": "hello\\n"}
{"kind": "closed"}
"""  # noqa: E501


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return the path of a file that a sink wrote one of everything to."""
    sink = JSONLSink(tmp_path / "points.jsonl")
    emit(sink, ONE_OF_EACH)
    sink.close()
    return sink.path


def read(path: Path, content: bytes) -> ReadResult:
    """Write ``content`` and read it."""
    path.write_bytes(content)
    return read_jsonl(path)


def refused(path: Path, content: bytes) -> Refusal:
    """Write ``content`` and return the refusal that reading it raises."""
    path.write_bytes(content)
    with pytest.raises(Refusal) as caught:
        read_jsonl(path)
    return caught.value


def test_a_whole_file_is_read(path: Path) -> None:
    """Every point comes back in order, nothing is unplaced, and the footer is seen (JSONL-1)."""
    result = read_jsonl(path)
    assert same(result, ONE_OF_EACH)
    assert (result.unplaced, result.torn, result.closed, result.notes) == ((), None, True, ())
    assert result.reader == "read_jsonl"


def test_a_file_cut_at_every_byte_reads_up_to_the_cut(path: Path) -> None:
    """At whatever byte a file is cut, all whole rows are read and the torn one is named (JSONL-2)."""
    whole = path.read_bytes()
    header = whole.index(b"\n") + 1
    for size in range(len(whole) - 1, -1, -1):
        os.truncate(path, size)
        start = whole.rfind(b"\n", 0, size) + 1
        rows = whole[:size].count(b"\n")
        if size < header:
            with pytest.raises(Refusal) as caught:
                read_jsonl(path)
            assert caught.value.code == ("reader_file_truncated" if size else "reader_file_empty")
            continue
        result = read_jsonl(path)
        assert same(result, ONE_OF_EACH[: rows - 1])
        assert result.closed is False and not result.unplaced
        torn = f"points.jsonl: row {rows + 1} is cut at byte {start}; {size - start} bytes behind it were not read"
        assert result.torn == (torn if start < size else None)


def test_a_growing_file_is_read_up_to_the_first_unfinished_row() -> None:
    """What appears behind a half written row while it is read is left to the next reading (JSONL-2)."""
    scan = RowScan([HEADER, ROW, ROW[:9], ROW[9:], ROW])
    assert [row.number for row in scan] == [1, 2]
    assert scan.torn is not None and scan.end == len(HEADER + ROW)


def test_a_row_without_newline_is_torn(path: Path) -> None:
    """A last line that looks complete but has no newline was never acknowledged, so it is torn (JSONL-2)."""
    result = read(path, HEADER + ROW + ROW[:-1])
    assert (len(result), result.torn is not None) == (1, True)
    assert read(path, HEADER + ROW + FOOTER[:-1]).closed is False


@pytest.mark.parametrize(
    "tail", [b"x", b"x\n", b"x\n\n \n\n", b"[1]\n", b"\xff\n", b"\0" * 99, b"[" * 99999 + b"\n", b"1" * 9999]
)
def test_a_damaged_last_row_is_torn(path: Path, tail: bytes) -> None:
    """Whatever is wrong with the last row, also with empty lines behind it, the rows before are read (JSONL-2)."""
    for before in (HEADER + ROW, HEADER + ROW + FOOTER):
        result = read(path, before + tail)
        assert (len(result), result.closed) == (1, False)
        row = before.count(b"\n") + 1
        assert result.torn is not None and f"row {row}" in result.torn and f"at byte {len(before)};" in result.torn


@pytest.mark.parametrize(
    ("content", "line", "offset"),
    [
        (HEADER + ROW + b"x\n" + ROW, 3, len(HEADER + ROW)),
        (HEADER + b'{"kind":"sca' + ROW + ROW, 2, len(HEADER)),
        (HEADER + b"[1]\n" + FOOTER, 2, len(HEADER)),
        (HEADER + b'{"a":"\xff"}\n' + b"\n\n" + b"x", 2, len(HEADER)),
        (HEADER + ROW + FOOTER + ROW, 4, len(HEADER + ROW + FOOTER)),
        (HEADER + ROW + FOOTER + FOOTER, 4, len(HEADER + ROW + FOOTER)),
        (HEADER + ROW + b'{"format":"torchlens.trackers.jsonl.v1"}\n' + ROW, 3, len(HEADER + ROW)),
        (HEADER + b'{"kind":"scalar","tag":"a","step":1,"value":NaN}\n' + ROW, 2, len(HEADER)),
    ],
)
def test_damage_before_the_end_is_refused(path: Path, content: bytes, line: int, offset: int) -> None:
    """A damaged row with rows behind it, and a row behind a footer, refuse with line and offset (JSONL-2)."""
    refusal = refused(path, content)
    assert refusal.code == "reader_file_corrupt"
    assert (refusal.fields["line"], refusal.fields["offset"]) == (line, offset)
    assert refusal.fields["points_before"] == content[:offset].count(ROW)
    assert f"row {line}" in str(refusal)


@pytest.mark.parametrize(
    "content",
    [
        b"x",
        b"hello\nworld\n",
        b"{}\n",
        b"[1]\n",
        b"1\n",
        ROW,
        FOOTER,
        b"\0" * 50,
        b"\x1f\x8b\x08\n",
        b"\xef\xbb\xbf" + HEADER,
        b'{"format":"torchlens.trackers.jsonl"}\n',
        b'{"format":"csv","version":1}\n',
        b'{"format":1,"version":1}\n',
        b'{"format":"torchlens.trackers.jsonl.v1","version":true}\n',
        b'{"format":"torchlens.trackers.jsonl.v1"}\n',
    ],
)
def test_foreign_files_are_refused(path: Path, content: bytes) -> None:
    """A first row that is no header of this format means another kind of file (JSONL-1)."""
    refusal = refused(path, content)
    assert (refusal.code, refusal.fields["path"]) == ("reader_file_foreign", str(path))


@pytest.mark.parametrize("content", [b"", b"\n", b" \r\n\n"])
def test_empty_files_are_refused(path: Path, content: bytes) -> None:
    """A file without any row is empty, not foreign (JSONL-1)."""
    assert refused(path, content).code == "reader_file_empty"


def test_a_missing_path_and_a_folder_are_refused(tmp_path: Path) -> None:
    """Nothing at the path, and a folder there, have names of their own (JSONL-1)."""
    for place, code in ((tmp_path / "nothing", "reader_path_missing"), (tmp_path, "reader_file_foreign")):
        with pytest.raises(Refusal) as caught:
            read_jsonl(place)
        assert caught.value.code == code


@pytest.mark.parametrize(
    "header",
    [
        b'{"format":"torchlens.trackers.jsonl.v1","version":2}\n',
        b'{"format":"torchlens.trackers.jsonl.v2","version":1}\n',
        b'{"format":"torchlens.trackers.jsonl.v1","version":1,"nonfinite":"hex"}\n',
    ],
)
@pytest.mark.parametrize("before", [b"", HEADER + ROW])
def test_later_versions_are_refused(path: Path, header: bytes, before: bytes) -> None:
    """A header that says another version or another encoding is refused, in later segments too (JSONL-1)."""
    refusal = refused(path, before + header + ROW)
    assert refusal.code == "reader_version_unsupported"
    assert refusal.fields["line"] == before.count(b"\n") + 1


def test_files_of_torchlens_are_read(path: Path) -> None:
    """Bare NaN and Infinity tokens become the floats they mean where the header names no encoding (JSONL-1)."""
    result = read(path, TORCHLENS)
    assert same(
        result,
        [
            ScalarPoint("a/b", 3, 0.5),
            ScalarPoint("a/\u00e9", 3, math.nan),
            ScalarPoint("a/b", 4, -math.inf),
            HistogramPoint("h", 3, (1, 2), (0.0, 1.0, 2.0), {"max": math.inf, "num": 3}),
            TextPoint("t", 0, "hello\n"),
        ],
    )
    assert (result.closed, result.torn) == (True, None)
    assert len(result.notes) == 1 and "torchlens 2.36" in result.notes[0]


def test_a_file_of_torchlens_can_be_continued(path: Path) -> None:
    """Each segment is read by its own header: bare tokens before, standard JSON behind (JSONL-3, JSONL-4)."""
    path.write_bytes(TORCHLENS)
    sink = JSONLSink(path, resume=True)
    assert sink.last_step() == 4
    emit(sink, ONE_OF_EACH)
    sink.close()
    result = read_jsonl(path)
    assert same(result.points[5:], ONE_OF_EACH)
    assert result.closed is True


def test_an_unfinished_segment_is_noted(path: Path) -> None:
    """A segment without footer before another one is named; closed speaks of the last segment (JSONL-4)."""
    result = read(path, HEADER + ROW + HEADER + ROW + FOOTER)
    assert (len(result), result.closed) == (2, True)
    assert result.notes[0] == "segment 1 starts in row 1, before point 0; it was left open"
    assert read(path, HEADER + ROW + FOOTER + HEADER + ROW).closed is False


def test_unknown_rows_are_unplaced(path: Path) -> None:
    """A row of an unknown kind is kept with its place and content, and reading goes on (JSONL-1)."""
    unknown: list[dict[str, Any]] = [{"kind": "video", "tag": "v"}, {"tag": "x"}, {"kind": ["list"]}, {"format": "csv"}]
    lines = [json.dumps(row).encode() + b"\n" for row in unknown]
    result = read(path, HEADER + b"".join(lines) + ROW)
    assert [found.content for found in result.unplaced] == unknown
    assert result.unplaced[0].reason == "a row of the unknown kind 'video'"
    assert result.unplaced[0].where == f"row 2 at byte {len(HEADER)}"
    assert len(result) == 1 and result.torn is None


@pytest.mark.parametrize(
    "row",
    [
        {"kind": "scalar", "tag": "a", "step": 1},
        {"kind": "scalar", "tag": "a", "step": -1, "value": 1.0},
        {"kind": "scalar", "tag": "a", "step": 1.0, "value": 1.0},
        {"kind": "scalar", "tag": "a", "step": 1, "value": "1"},
        {"kind": "scalar", "tag": "a", "step": 1, "value": {"$float": []}},
        {"kind": "histogram", "tag": "h", "step": 1, "counts": [0.5], "edges": [0.0, 1.0], "summary": {}},
        {"kind": "histogram", "tag": "h", "step": 1, "counts": [1], "edges": [[], 1.0], "summary": {}},
        {"kind": "histogram", "tag": "h", "step": 1, "counts": [1], "edges": None, "summary": {}},
        {"kind": "image", "tag": "i", "step": 1, "data": {"$bytes": "?"}, "shape": [1], "dtype": "uint8"},
        {"kind": "event", "tag": "e", "step": 1, "event_kind": "k", "payload": []},
    ],
)
def test_rows_that_make_no_point_are_unplaced(path: Path, row: dict[str, Any]) -> None:
    """A row of a known kind with a value that no point holds is kept with the reason, never repaired (POINT-2)."""
    result = read(path, HEADER + json.dumps(row).encode() + b"\n" + ROW)
    (found,) = result.unplaced
    assert found.reason == f"a {row['kind']} row that makes no point"
    assert isinstance(found.content, dict) and found.content["row"] == row and found.content["error"]
    assert len(result) == 1


def test_empty_lines_and_carriage_returns_are_passed_over(path: Path) -> None:
    """A file that an editor touched is read, and the notes say what was passed over (JSONL-1)."""
    result = read(path, b"\n" + HEADER + b"\n  \n" + ROW + FOOTER + b"\n")
    assert (len(result), result.closed, result.notes) == (1, True, ("empty lines were passed over: 4",))
    result = read(path, (HEADER + ROW + FOOTER).replace(b"\n", b"\r\n"))
    assert (len(result), result.closed) == (1, True)
    assert result.notes == ("lines end with a carriage return and a newline",)


def test_histograms_over_a_known_grid_share_its_edges(path: Path) -> None:
    """Points over the default grid hold the grid's own tuple, so that many of them stay small (PROT-10)."""
    sink = JSONLSink(path, overwrite=True)
    sink.emit_histogram(HistogramPoint("h", 1, (1,) * 513, DEFAULT_DESCRIPTOR.edges))
    sink.close()
    (point,) = read_jsonl(path)
    assert isinstance(point, HistogramPoint) and point.edges is DEFAULT_DESCRIPTOR.edges
