"""read_wandb over cut, flipped and hand-made logs."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("wandb")

from reference_sinks.readers import read_wandb
from torchlens_conformance.protocol import Refusal, ScalarPoint, TextPoint

from .wandb_logs import BLOCK, framed, row, run_file


def refused(path: Path, **arguments: Any) -> Refusal:
    """Return the refusal that reading raises."""
    with pytest.raises(Refusal) as caught:
        read_wandb(path, **arguments)
    return caught.value


def whole_records(data: bytes) -> list[tuple[int, int]]:
    """Return start and end of every record of a log."""
    found, start, at = [], None, 7
    while at + 7 <= len(data):
        if BLOCK - at % BLOCK < 7:
            at += BLOCK - at % BLOCK
            continue
        size, kind = struct.unpack_from("<HB", data, at + 4)
        start = at if start is None else start
        at += 7 + size
        if kind in (1, 4):
            found.append((start, at))
            start = None
    return found


def test_a_cut_file_reads_up_to_its_last_whole_record(relay_run: Any, tmp_path: Path) -> None:
    """A cut at many bytes names its offset and loses no row before it; without allow_torn it refuses (FID-1)."""
    file = run_file(relay_run.folder)
    data, whole = file.read_bytes(), read_wandb(file).points
    records = whole_records(data)
    ends = [7, *(end for _, end in records)]
    cut = tmp_path / "run.wandb"
    sizes = sorted({*range(7, len(data), 61), *ends, *(end - 1 for end in ends[1:]), BLOCK - 1, BLOCK, BLOCK + 1})
    lengths = []
    for size in (size for size in sizes if size < len(data)):
        cut.write_bytes(data[:size])
        result = read_wandb(cut, allow_torn=True)
        lengths.append(len(result))
        assert [repr(point) for point in result] == [repr(point) for point in whole[: len(result)]]
        assert result.closed is False
        if size in ends:
            assert result.torn is None
        else:
            before = max(end for end in ends if end <= size)
            refusal = refused(cut)
            assert refusal.code == "reader_file_truncated"
            assert refusal.fields["points_before"] == len(result)
            assert before <= refusal.fields["offset"] < before + 7 + 7  # type: ignore[operator]
            assert result.torn is not None and f"byte {refusal.fields['offset']};" in result.torn
    assert lengths == sorted(lengths) and lengths[0] == 0 and lengths[-1] == len(whole)


def test_every_flipped_byte_is_found(relay_run: Any, tmp_path: Path) -> None:
    """No flipped byte gives a silently different result: the damage is named at its place (FID-1)."""
    data = run_file(relay_run.folder).read_bytes()
    flipped = tmp_path / "run.wandb"
    for position in range(0, len(data), 97):
        flipped.write_bytes(data[:position] + bytes([data[position] ^ 0x10]) + data[position + 1 :])
        code = refused(flipped).code
        # A length that grows past the end of the file cannot be told from a cut.
        assert code in ("reader_file_corrupt", "reader_file_truncated") or position < 7, position


@pytest.mark.parametrize("room", range(9))
def test_records_around_a_block_border_are_read(tmp_path: Path, room: int) -> None:
    """Whatever room a record leaves in its block, the next one is found; padding that is not zero is damage (FID-1)."""
    overhead = len(row({"t": '""'}, 1))
    # Two bytes more for each length that needs a second byte, found by trying.
    text = next(
        "x" * size
        for size in range(BLOCK - 40 - overhead, BLOCK)
        if BLOCK - len(framed(row({"t": json.dumps("x" * size)}, 1))) == room
    )
    rows = [row({"t": json.dumps(text)}, 1), row({"a": "1.5"}, 2), row({"t": json.dumps("y" * 3 * BLOCK)}, 3)]
    data = framed(*rows)
    file = tmp_path / "run.wandb"
    file.write_bytes(data)
    assert read_wandb(file).points == (
        TextPoint("t", 1, text),
        ScalarPoint("a", 2, 1.5),
        TextPoint("t", 3, "y" * 3 * BLOCK),
    )
    if 0 < room < 7:
        file.write_bytes(data[: BLOCK - 1] + b"\1" + data[BLOCK:])
        refusal = refused(file)
        assert (refusal.code, refusal.fields["points_before"]) == ("reader_file_corrupt", 1)
