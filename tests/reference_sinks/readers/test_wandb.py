"""read_wandb over real offline runs, against a second decoder of its own, and over damaged files."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("wandb")

from reference_sinks.readers import ReadResult, read_wandb
from reference_sinks.readers.wandb import read_wandb_notices, wandb_run_has_ended
from reference_sinks.readers.wandb_records import NotARecord, parse_record
from torchlens_conformance.protocol import HistogramPoint, Refusal, ScalarPoint, TextPoint

from .wandb_logs import HEADER, framed, placed_by_second_reading, raw_records, row, run_file


def refused(path: Path, **arguments: Any) -> Refusal:
    """Return the refusal that reading raises."""
    with pytest.raises(Refusal) as caught:
        read_wandb(path, **arguments)
    return caught.value


def as_tuples(result: ReadResult) -> list[tuple[Any, ...]]:
    """Return the points in the form of the second reading."""
    rows: list[tuple[Any, ...]] = []
    for point in result:
        if isinstance(point, ScalarPoint):
            rows.append(("scalar", point.tag, point.step, float(point.value)))
        elif isinstance(point, TextPoint):
            rows.append(("text", point.tag, point.step, point.text))
        elif isinstance(point, HistogramPoint):
            rows.append(("histogram", point.tag, point.step, point.counts, point.edges))
    return rows


@pytest.mark.parametrize("name", ["stored_run", "relay_run", "killed_run"])
def test_agrees_point_by_point_with_a_second_decoder(name: str, request: pytest.FixtureRequest) -> None:
    """A hand-written decoder without wandb's messages reads the same points in the same order (FID-1)."""
    folder = request.getfixturevalue(name).folder
    result = read_wandb(folder, allow_torn=True)
    ours, theirs = as_tuples(result), placed_by_second_reading(run_file(folder))
    theirs = [
        (*row[:3], tuple(map(int, json.loads(row[3]))), tuple(map(float, json.loads(row[4]))))
        if row[0] == "histogram"
        else row
        for row in theirs
        if row[0] != "histogram" or all(float(count).is_integer() for count in json.loads(row[3]))
    ]
    assert len(ours) == len(theirs) > 0
    for mine, other in zip(ours, theirs):
        assert mine == other or (mine[:3] == other[:3] and math.isnan(mine[3]) and math.isnan(other[3]))


def test_a_finished_run_is_closed_and_says_what_was_inferred(stored_run: Any) -> None:
    """The exit record makes a run closed; nothing is torn; the reader names itself (WANDB-1)."""
    result = read_wandb(stored_run.folder)
    assert (result.closed, result.torn, result.reader, result.notes) == (True, None, "read_wandb", ())


def test_what_is_no_point_is_told(stored_run: Any) -> None:
    """Truth values, nulls, lists and nested mappings are unplaced with their content (FID-1)."""
    result = read_wandb(stored_run.folder)
    told = {str(item.content["tag"]): (item.reason, item.content["value"]) for item in result.unplaced}
    assert told == {
        "truth": ("a truth value", True),
        "null": ("a null", None),
        "list": ("a list", [1, 2]),
        "nested.a.b": ("a value inside a nested mapping", 1.5),
    }
    assert {item.content["step"] for item in result.unplaced} == {400}
    assert ScalarPoint("plain", 400, 1) in result.points


def test_wandbs_own_keys_are_no_points(stored_run: Any) -> None:
    """Time, runtime and step of a row are not taken for series (WANDB-1)."""
    assert not {"_step", "_timestamp", "_runtime", "_wandb"} & {
        getattr(point, "tag", "") for point in read_wandb(stored_run.folder)
    }


def test_the_relay_is_read_as_it_is(relay_run: Any) -> None:
    """Relayed rows carry a counter as step and global_step as a scalar; NaN and infinities are numbers (FID-1)."""
    result = read_wandb(relay_run.folder)
    rows = {point.step: point.value for point in result if isinstance(point, ScalarPoint) and point.tag == "s"}
    steps = {
        point.step: point.value for point in result if isinstance(point, ScalarPoint) and point.tag == "global_step"
    }
    assert [steps[step] for step in rows] == [100, 102, 104]
    first, second, third = rows.values()
    assert first == 0.5 and math.isnan(second) and third == -math.inf
    assert max(rows) < 100
    (histogram,) = [point for point in result if isinstance(point, HistogramPoint)]
    assert (histogram.tag, sum(histogram.counts), histogram.summary) == ("h", sum(range(63)), {})
    assert "TensorBoard folders that wandb's relay was told to follow: 1" in result.notes
    assert "event files that wandb keeps among the files of the run: 1" in result.notes


def test_a_relayed_histogram_with_fractional_counts_is_kept_aside(relay_run: Any) -> None:
    """600 buckets come back as 512 with fractional counts: unplaced, with counts and edges to measure (FID-1)."""
    (item,) = read_wandb(relay_run.folder).unplaced
    assert (item.reason, item.content["tag"]) == ("a histogram whose counts are not integers", "wide")
    counts, edges = item.content["counts"], item.content["edges"]
    assert isinstance(counts, tuple) and isinstance(edges, tuple)
    assert (len(counts), len(edges)) == (512, 513) and sum(counts) == pytest.approx(600)


def test_notices_name_what_wandb_dropped(stored_run: Any, tmp_path: Path) -> None:
    """The log's warning about the ignored row is found; a folder without a log has none (FID-1)."""
    notices = read_wandb_notices(stored_run.folder)
    assert len([line for line in notices if "ignoring partial history record" in line and '"step": 5' in line]) == 1
    assert not [line for line in notices if "featurechecker" in line or "runupserter" in line]
    shutil.copy(run_file(stored_run.folder), tmp_path)
    assert read_wandb_notices(tmp_path) == ()


def test_notices_are_counted_and_capped(tmp_path: Path) -> None:
    """Equal notices are one line with a count; at most 50 lines; malformed lines are passed over (FID-1)."""
    (tmp_path / "run.wandb").write_bytes(HEADER)
    (tmp_path / "logs").mkdir()
    lines = [{"level": "WARN", "msg": "tensorboard: same", "time": str(number), "step": number} for number in range(3)]
    lines += [{"level": "ERROR", "msg": f"handler: number {number}"} for number in range(80)]
    lines += [{"level": "INFO", "msg": "handler: fine"}]
    (tmp_path / "logs" / "debug-internal.log").write_text("\n".join(map(json.dumps, lines)) + "\n{broken\n[]\n")
    notices = read_wandb_notices(tmp_path)
    assert notices[0] == 'WARN tensorboard: same {"step": 0} (3 times)'
    assert len(notices) == 50 and notices[-1] == "and 32 further kinds of notices"


def test_places_are_found_or_refused_by_name(stored_run: Any, tmp_path: Path) -> None:
    """A file, a run's folder and a folder with one run are read; none, several or an empty file refuse (WANDB-1)."""
    file = run_file(stored_run.folder)
    sizes = {len(read_wandb(place)) for place in (file, file.parent, file.parent.parent, file.parent.parent.parent)}
    assert len(sizes) == 1
    assert refused(tmp_path / "none").code == "reader_path_missing"
    assert refused(tmp_path).code == "reader_file_empty"
    for name in ("offline-run-1", "offline-run-2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run-1.wandb").write_bytes(b"")
    assert refused(tmp_path).code == "reader_path_ambiguous"
    assert refused(tmp_path / "offline-run-1").code == "reader_file_empty"


@pytest.mark.parametrize(
    ("content", "code"),
    [
        (b"hello, this is text", "reader_file_foreign"),
        (b":W&C\xe1\xbe\x00", "reader_file_foreign"),
        (b"x", "reader_file_foreign"),
        (b":W&B\xe1", "reader_file_truncated"),
        (b":W&B\xe1\xbe\x01", "reader_version_unsupported"),
    ],
)
def test_other_files_refuse_by_name(tmp_path: Path, content: bytes, code: str) -> None:
    """Foreign bytes, a cut header and a later version each have their own refusal (WANDB-1)."""
    file = tmp_path / "run.wandb"
    file.write_bytes(content)
    assert refused(file).code == code


def test_older_and_odd_rows_are_read_or_told(tmp_path: Path) -> None:
    """Plain keys, packed bins, a step among the items, malformed JSON and a row without step (WANDB-1)."""
    packed = '{"_type": "histogram", "packedBins": {"min": 0, "size": 0.5, "count": 2}, "values": [1, 2]}'
    file = tmp_path / "run.wandb"
    file.write_bytes(
        framed(
            row({"a": "1.5", "_step": "7"}, None),
            row({"h": '{"_type": "histogram", "bins": [0, 1], "values": [3]}'}, 8),
            row({"p": packed, "_step": "9"}, 9),
            row(
                {"bad": "{", "table": '{"_type": "table-file"}', "map": '{"k": 1}', "short": '{"_type": "histogram"}'},
                10,
            ),
            row({("t", "_type"): '"image-file"', ("t", "size"): "3"}, 11),
            row({"lost": "1"}, None),
            row({"minus": "-1"}, -4),
        )
    )
    result = read_wandb(file)
    assert result.points == (
        ScalarPoint("a", 7, 1.5),
        HistogramPoint("h", 8, (3,), (0.0, 1.0)),
        HistogramPoint("p", 9, (1, 2), (0.0, 0.5, 1.0)),
    )
    assert [item.reason for item in result.unplaced] == [
        "a value that is no JSON",
        "a value of type table-file",
        "a mapping",
        "a histogram that is not whole",
        "a value of type image-file",
        "a row without a step",
        "a value that no point can hold",
    ]
    assert result.unplaced[4].content["value"] == {"_type": "image-file", "size": 3}
    assert result.notes == ("histograms with packed edges: 1",) and result.closed is False


def test_no_package_of_wandb_is_needed(stored_run: Any, program: Callable[..., Any]) -> None:
    """A run is read where wandb is not installed; a missing path refuses as ever (WANDB-1, PROT-9)."""
    finished = program(
        """
import json, sys
sys.modules["wandb"] = None
from reference_sinks.readers import read_wandb
from torchlens_conformance.protocol import Refusal
told = [len(read_wandb(sys.argv[1]).points)]
try:
    read_wandb("none")
except Refusal as refusal:
    told.append(refusal.code)
print(json.dumps(told))
""",
        str(stored_run.folder),
    )
    assert finished.printed == [len(read_wandb(stored_run.folder).points), "reader_path_missing"]


@pytest.mark.parametrize("name", ["stored_run", "relay_run"])
def test_records_parse_as_wandbs_own_messages_do(name: str, request: pytest.FixtureRequest) -> None:
    """Every record of a run says the same to this package and to the messages of the installed wandb (WANDB-1)."""
    from wandb.proto.wandb_internal_pb2 import Record

    data = run_file(request.getfixturevalue(name).folder).read_bytes()
    kinds = set()
    for payload in raw_records(data):
        ours, theirs = parse_record(payload), Record()
        theirs.ParseFromString(payload)
        kind = theirs.WhichOneof("record_type")
        kinds.add(kind)
        assert (ours.history is not None, ours.is_exit, ours.follows_tensorboard) == (
            kind == "history",
            kind == "exit",
            kind == "tbrecord",
        )
        assert ours.files == tuple(item.path for item in theirs.files.files)
        if ours.history is not None:
            row = theirs.history
            assert ours.history.step == (row.step.num if row.HasField("step") else None)
            assert ours.history.items == tuple(
                (tuple(item.nested_key) or (item.key,), item.value_json) for item in row.item
            )
    assert {"history", "exit"} <= kinds


@pytest.mark.parametrize(
    "payload",
    [
        b"\x12",
        b"\x12\x05ab",
        b"\x0b",
        b"\x00",
        b"\xff" * 11,
        b"\x10\x01",
        row({"a": "1"}, 1)[:-3],
        b"\x12\x04\n\x02\n\xff",
    ],
)
def test_what_is_no_record_is_told(payload: bytes) -> None:
    """A cut, a group, a field without number, a long number, a number for a message: none is a record (FID-1)."""
    with pytest.raises(NotARecord):
        parse_record(payload)


def test_negative_steps_are_read_as_such() -> None:
    """A negative number of protobuf is its two's complement (WANDB-1)."""
    history = parse_record(row({"a": "1"}, -5)).history
    assert history is not None and history.step == -5


def test_the_end_of_a_run_is_seen_from_its_last_blocks(stored_run: Any, killed_run: Any, tmp_path: Path) -> None:
    """A finished run has ended, a killed one has not, nor one that lacks its last byte (WANDB-1)."""
    assert wandb_run_has_ended(stored_run.folder)
    assert not wandb_run_has_ended(killed_run.folder)
    whole = run_file(stored_run.folder).read_bytes()
    cut = tmp_path / "run-cut.wandb"
    cut.write_bytes(whole[:-1])
    assert len(whole) > 3 * 32 * 1024 and not wandb_run_has_ended(cut)
    # A record that begins in front of the last two blocks, and one right at the start.
    exit_record = b"\x92\x01\x00"
    for payloads, ended in (((b"\x22" + b"\xa0\x8d\x06" + bytes(100_000), exit_record), True), ((exit_record,), True)):
        cut.write_bytes(framed(*payloads))
        assert wandb_run_has_ended(cut) is ended
    cut.write_bytes(HEADER)
    assert not wandb_run_has_ended(cut)
