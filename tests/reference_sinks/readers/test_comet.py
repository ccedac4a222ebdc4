"""read_comet over a real offline experiment, and over stores made by hand: damaged, odd, and in the wrong place."""

from __future__ import annotations

import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any
from zipfile import ZIP_STORED, ZipFile

import pytest

from reference_sinks.readers import ReadResult, read_comet
from torchlens_conformance.protocol import HistogramPoint, Refusal, ScalarPoint, TextPoint

from ..comet_experiments import PROGRAM
from ..conftest import run_program

Message = Mapping[str, Any]


def metric(name: object, value: object, step: object, **more: object) -> Message:
    """Return a metric's message in Comet's form."""
    stored = {"epoch": None, "metricName": name, "metricValue": value, "step": step}
    return {"payload": {"local_timestamp": 1, "message_id": 2, "metric": stored, **more}, "type": "metric_msg"}


def upload(kind: str, name: str, step: object, **metadata: object) -> Message:
    """Return the message of an uploaded file in Comet's form."""
    parameters = {"context": None, "fileName": "h/weights", "step": step, "type": kind}
    payload = {"additional_params": parameters, "file_path": name, "metadata": metadata, "upload_type": kind}
    return {"payload": payload, "type": "file_upload"}


def lines(messages: Iterable[Message]) -> bytes:
    """Return messages as the bytes of ``messages.json``."""
    return b"".join(json.dumps(message).encode() + b"\n" for message in messages)


def folder(place: Path, messages: Iterable[Message] | bytes, **files: bytes) -> Path:
    """Make the temporary folder of an experiment."""
    place.mkdir(parents=True, exist_ok=True)
    content = messages if isinstance(messages, bytes) else lines(messages)
    for name, data in {"messages.json": content, **files}.items():
        (place / name).write_bytes(data)
    return place


def archive(path: Path, **files: bytes) -> Path:
    """Make an archive; the file ``messages`` is ``messages.json``."""
    with ZipFile(path, "w", ZIP_STORED) as made:
        for name, data in files.items():
            made.writestr({"messages": "messages.json", "facts": "experiment.json"}.get(name, name), data)
    return path


def refused(path: Path, **arguments: Any) -> Refusal:
    """Return the refusal that reading raises."""
    with pytest.raises(Refusal) as caught:
        read_comet(path, **arguments)
    return caught.value


THREE = lines([metric("a", 0.5, 1), metric("a", "NaN", 2), metric("b", 3, 3)])


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where a real experiment stored one of everything."""
    if find_spec("comet_ml") is None:
        pytest.skip("comet_ml is not installed")
    home = tmp_path_factory.mktemp("real")
    run_program(PROGRAM, "stored", home=home)
    return home


@pytest.fixture(scope="module")
def real(place: Path) -> ReadResult:
    """Return what the reader finds there."""
    return read_comet(place)


def test_an_ended_experiment_is_closed(real: ReadResult) -> None:
    """The archive says that its experiment ended, nothing is torn, and the reader names itself (COMET-1)."""
    assert (real.closed, real.torn, real.reader) == (True, None, "read_comet")
    assert real.notes == (
        "histograms on Comet's own grid, its edges computed from four stored numbers: 1",
        "metrics of a context, whose name Comet puts before theirs: 1",
    )


def test_what_is_no_point_is_told(real: ReadResult) -> None:
    """Metrics of no number or step, parameters, files and Comet's own metric are unplaced, verbatim (FID-1)."""
    reasons = Counter(item.reason for item in real.unplaced)
    assert reasons == {
        "a metric whose value is no number": 1,
        "a metric whose step is no integer": 1,
        "a text without a tag": 1,
        "a message of type parameter_msg": 1,
        "a message of type log_other": 1,
        "a histogram with counts beyond its last edges": 1,
        "a metric that Comet itself adds": 1,
    }
    words = next(item for item in real.unplaced if item.reason == "a metric whose value is no number")
    assert words.where.startswith("messages.json@") and words.content["metric"]["metricValue"] == "hello"  # type: ignore[index]


def test_histograms_of_comet_are_read_over_its_grid(real: ReadResult) -> None:
    """Counts stand between edges computed as Comet does it; counts beyond the last edges are told (FID-1)."""
    (inside,) = (point for point in real if isinstance(point, HistogramPoint))
    counted = [(inside.edges[i], inside.edges[i + 1], count) for i, count in enumerate(inside.counts) if count]
    assert [count for *_, count in counted] == [2, 1] and (inside.tag, inside.step) == ("h/inside", 6)
    assert counted[0][0] < 0.5 <= counted[0][1] and counted[1][0] < 2.0 <= counted[1][1]
    (outside,) = (item.content for item in real.unplaced if "counts" in item.content)
    assert outside["edges"] == (-8.0, -4.0, -2.0, -1.0, 0.0, 1.0, 2.0, 4.0, 8.0)
    assert (outside["outside"], outside["counts"]) == ((3, 3), (0,) * 8)


def test_reading_needs_no_comet(place: Path) -> None:
    """The reader imports neither comet_ml nor numpy (FID-1)."""
    code = (
        "import json, sys\n"
        "from reference_sinks.readers import read_comet\n"
        "read = len(read_comet('.'))\n"
        "print(json.dumps([read > 0, sorted({'comet_ml', 'numpy'} & set(sys.modules))]))\n"
    )
    assert run_program(code, home=place).printed == [True, []]


def test_an_archive_and_its_folder_read_alike(tmp_path: Path, place: Path, real: ReadResult) -> None:
    """The unpacked archive gives the same points, and without Comet's last file the experiment is open (COMET-1)."""
    (packed,) = place.glob("*.zip")
    unpacked = tmp_path / "unpacked"
    with ZipFile(packed) as opened:
        opened.extractall(unpacked)
    assert list(map(repr, read_comet(unpacked))) == list(map(repr, real)) == list(map(repr, read_comet(packed)))
    (unpacked / "experiment.json").unlink()
    assert read_comet(unpacked).closed is False


def test_values_have_their_types(tmp_path: Path) -> None:
    """Words for non-finite numbers are floats, integers stay so at any size, truth values are no numbers (FID-1)."""
    values = [0.1, -0.0, 3, 3.0, 10**30, "NaN", "Infinity", "-Infinity", True, None, [1]]
    result = read_comet(folder(tmp_path, [metric("v", value, step) for step, value in enumerate(values)]))
    got = [point.value for point in result if isinstance(point, ScalarPoint)]
    assert got[:5] == values[:5] and [type(value) for value in got[:5]] == [float, float, int, float, int]
    assert math.copysign(1, got[1]) == -1.0 and math.isnan(got[5]) and got[6:] == [math.inf, -math.inf]
    assert [item.reason for item in result.unplaced] == ["a metric whose value is no number"] * 3


def test_odd_messages_are_unplaced(tmp_path: Path) -> None:
    """Messages that make no point keep their content, whatever is wrong with them (FID-1)."""
    histogram = {"offset": 0, "start": 1, "stop": 4, "step": 2, "index_values": [[99, 1]]}
    messages = [
        metric("a", 1, -1),
        metric("a", 1, None),
        metric(None, 1, 1),
        {"type": "metric_msg", "payload": {}},
        {"type": "file_upload", "payload": {}},
        upload("text-sample", "gone", 1, tag="t"),
        upload("text-sample", "../outside", 1, tag="t"),
        upload("text-sample", "bytes", 1, tag="t"),
        upload("text-sample", "bytes", 1),
        upload("histogram3d", "histogram", 1),
        upload("histogram3d", "bytes", 1),
        upload("image", "bytes", 1),
        {"type": "anything", "payload": {"key": 1}},
    ]
    (tmp_path / "outside").write_bytes(b"secret")
    store = folder(tmp_path / "store", messages, bytes=b"\xff", histogram=json.dumps(histogram).encode())
    result = read_comet(store)
    assert list(result) == []
    assert [item.reason for item in result.unplaced] == [
        "a value that no point can hold",
        "a metric whose step is no integer",
        "a metric without a name",
        "a metric without a name",
        "an uploaded file without a name",
        "an uploaded file that is not in the store",
        "an uploaded file that is not in the store",
        "a text that is no UTF-8",
        "a text without a tag",
        "a histogram that is not whole",
        "a histogram that is not whole",
        "an uploaded file of type image",
        "a message of type anything",
    ]


@pytest.mark.parametrize(
    "number", [{"step": 1.0}, {"start": 0}, {"stop": 1e-3}, {"step": 1 + 1e-12}, {"start": "x"}, {}]
)
def test_a_grid_that_no_histogram_has_is_not_computed(tmp_path: Path, number: dict[str, Any]) -> None:
    """Numbers that make no grid, or one of more edges than memory, leave the histogram unplaced (FID-1)."""
    asset = {"offset": 0, "start": 1e-2, "stop": 4, "step": 2, "index_values": [], **number}
    if not number:
        del asset["stop"]
    store = folder(tmp_path, [upload("histogram3d", "h", 1)], h=json.dumps(asset).encode())
    assert [item.reason for item in read_comet(store).unplaced] == ["a histogram that is not whole"]


def test_names_that_comet_cut_are_counted(tmp_path: Path) -> None:
    """A name that ends as Comet's cut ones do is noted (FID-1)."""
    result = read_comet(folder(tmp_path, [metric("x" * 88 + " [truncated]", 1, 1)]))
    assert result.notes == ("names that Comet cut at 100 characters: 1",)
    given = folder(tmp_path / "given", [metric("train/a [truncated]", 1, 1), metric("x" * 89 + " [truncated]", 1, 1)])
    assert read_comet(given).notes == ()


def test_a_cut_file_gives_its_whole_messages(tmp_path: Path) -> None:
    """Cut at any byte, the messages before the cut are read and the torn tail is named (FID-1)."""
    ends = [index + 1 for index, byte in enumerate(THREE) if byte == 0x0A]
    for size in range(1, len(THREE)):
        store = folder(tmp_path, THREE[:size])
        whole = sum(end <= size for end in ends)
        if size in ends:
            assert len(read_comet(store)) == whole
            continue
        result = read_comet(store, allow_torn=True)
        offset = ends[whole - 1] if whole else 0
        assert len(result) == whole and f"at byte {offset}; {size - offset} bytes" in str(result.torn)
        refusal = refused(store)
        assert refusal.code == "reader_file_truncated"
        assert (refusal.fields["offset"], refusal.fields["points_before"]) == (offset, whole)


@pytest.mark.parametrize(
    "line", [b'{"payload":{"metric":{"payload":{}}\n', b"[1]\n", b"\n", b'{"type":"metric_msg"}\n']
)
def test_a_damaged_line_in_the_middle_is_an_error(tmp_path: Path, line: bytes) -> None:
    """Such a line refuses; with allow_torn it is passed over, told in torn and kept in unplaced (FID-1)."""
    store = folder(tmp_path, line.join(THREE.splitlines(keepends=True)))
    refusal = refused(store)
    assert refusal.code == "reader_file_corrupt" and refusal.fields["points_before"] == 1
    result = read_comet(store, allow_torn=True)
    assert len(result) == 3 and str(result.torn).count("is no message") == 2
    assert [item.content["line"] for item in result.unplaced] == [line.decode()] * 2


def test_the_wrong_place_is_named(tmp_path: Path) -> None:
    """Nothing there, no bytes, another file, a zip of another kind and a folder without a store refuse (PROT-9)."""
    (tmp_path / "empty").write_bytes(b"")
    (tmp_path / "text").write_bytes(b"hello")
    (tmp_path / "folder").mkdir()
    other = archive(tmp_path / "other.zip", file=b"1")
    codes = {
        "gone": "reader_path_missing",
        "empty": "reader_file_empty",
        "text": "reader_file_foreign",
        "folder": "reader_file_empty",
        other.name: "reader_file_foreign",
    }
    assert {name: refused(tmp_path / name).code for name in codes} == codes
    assert refused(folder(tmp_path / "silent", b"")).code == "reader_file_empty"


def test_the_archive_of_an_experiment_that_never_ended_says_where_to_look(tmp_path: Path) -> None:
    """Comet's archive is empty until the end; the refusal names the temporary folder, which is read if it is near."""
    empty = archive(tmp_path / "key.zip")
    for path in (empty, tmp_path):
        refusal = refused(path)
        assert refusal.code == "reader_file_empty" and "experiment.tmpdir" in refusal.message
    folder(tmp_path / "tmpabc", THREE)
    assert len(read_comet(tmp_path)) == 3


def test_two_experiments_in_one_folder_are_ambiguous(tmp_path: Path) -> None:
    """A folder with an archive and a temporary folder refuses and names both (PROT-9)."""
    folder(tmp_path / "tmpabc", THREE)
    archive(tmp_path / "key.zip", messages=THREE)
    refusal = refused(tmp_path)
    assert refusal.code == "reader_path_ambiguous"
    assert set(refusal.fields["experiments"]) == {"tmpabc", "key.zip"}  # type: ignore[call-overload]


def test_a_damaged_archive_is_refused(tmp_path: Path) -> None:
    """A cut archive has no directory, and a changed byte does not check; neither gives points (FID-1)."""
    whole = archive(tmp_path / "whole.zip", messages=THREE, facts=b'{"offline_id": "key"}')
    assert (len(read_comet(whole)), read_comet(whole).closed) == (3, True)
    content = whole.read_bytes()
    cut, changed = tmp_path / "cut.zip", tmp_path / "changed.zip"
    cut.write_bytes(content[: len(content) // 2])
    changed.write_bytes(content.replace(b'"metricName": "b"', b'"metricName": "c"'))
    assert refused(cut).code == "reader_file_truncated" == refused(cut, allow_torn=True).code
    assert refused(changed, allow_torn=True).code == "reader_file_corrupt"


def test_what_comet_says_about_itself_is_noted(tmp_path: Path) -> None:
    """An error that Comet recorded for its server is noted; facts that are no JSON do no harm (FID-1)."""
    said = json.dumps({"customer_error_reported": True, "customer_error_message": "disk full"}).encode()
    told = archive(tmp_path / "told.zip", messages=THREE, facts=said)
    assert read_comet(told).notes == ("Comet says: disk full",)
    odd = archive(tmp_path / "odd.zip", messages=THREE, facts=b"{")
    assert (len(read_comet(odd)), read_comet(odd).closed) == (3, False)


def test_texts_have_the_tag_of_their_metadata(tmp_path: Path) -> None:
    """A text is placed by tag, step and the content of its file, whatever the file is called (COMET-1)."""
    store = folder(tmp_path, [upload("text-sample", "tmpx", 2**63 - 1, tag="t/\u00e9")], tmpx="a\r\n\u00e9".encode())
    assert list(read_comet(store)) == [TextPoint("t/\u00e9", 2**63 - 1, "a\r\n\u00e9")]
