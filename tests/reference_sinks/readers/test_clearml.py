"""read_clearml over a real offline session, against a second plain reading of it, and over damaged copies."""

from __future__ import annotations

import json
import math
import os
import shutil
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import reference_sinks
from reference_sinks.readers import ReadResult, Unplaced, read_clearml
from reference_sinks.readers.clearml_tags import TagReader, relayed_name, relayed_tag
from torchlens_conformance.protocol import Refusal, ScalarPoint, TextPoint

# Not importorskip: importing clearml reads settings of the user, and some versions dial their server.
if find_spec("clearml") is None or find_spec("tensorboard") is None:
    pytest.skip("clearml or tensorboard is not installed", allow_module_level=True)

ROOT = Path(reference_sinks.__file__).parents[1]

SETTINGS = """
api { api_server: "http://127.0.0.1:9", web_server: "http://127.0.0.1:9", files_server: "http://127.0.0.1:9"
      credentials { access_key: "offline", secret_key: "offline" } }
sdk.development.report_use_subprocess: false
"""

# "detect_repository" also turns off a thread that asks a server for updates.
PROGRAM = """
import json, math, shutil, sys, warnings
warnings.simplefilter("ignore")
import numpy as np
from torch.utils.tensorboard import SummaryWriter
from clearml import Task
Task.set_offline(True)
others = ["matplotlib", "tensorflow", "pytorch", "xgboost", "scikit", "fastai", "lightgbm", "hydra",
          "detect_repository", "tfdefines", "joblib", "megengine", "catboost", "gradio", "jsonargparse"]
task = Task.init("conformance", "reader", auto_connect_arg_parser=False, auto_resource_monitoring=False,
    auto_connect_streams=False, auto_connect_frameworks={"tensorboard": True, **dict.fromkeys(others, False)})
writer, logger = SummaryWriter("events"), task.get_logger()
sent = json.loads(sys.stdin.read())

# A first line that is small enough to be cut at every byte.
for step in (100, 102, 104):
    writer.add_scalar("gradients/mean/transformer.h.0.attn.c_attn.weight", step / 8, step)
task.flush(wait_for_uploads=True)

for step, value in enumerate(map(float, sent["numbers"])):
    writer.add_scalar("probe/numbers", value, step)
for step in sent["steps"]:
    writer.add_scalar("probe/steps", 0.5, step)
for step in (100, 50, 100, 95):
    writer.add_scalar("probe/order", 0.5, step)
for index, tag in enumerate(sent["tags"]):
    writer.add_scalar(tag, index + 0.5, 7777)
    writer.add_text(tag, f"text {index}", 7777)
    writer.add_histogram_raw(tag, 0, 1, 3, 1, 1, [0.5, 1.0], [index, index], global_step=7777)
writer.add_scalar("a/b_c", 1.0, 8)
writer.add_scalar("a/b/c", 2.0, 8)
writer.add_scalar("a_b/c", 3.0, 8)
for step, text in enumerate(sent["texts"]):
    writer.add_text("torchlens/meta/manifest", text, step)
for step in range(102):
    writer.add_text("many/texts", f"text {step}", step)
edges = [index / 32 - 1 for index in range(65)]
for step in range(100, 124, 2):
    counts = [step + index for index in range(64)]
    writer.add_histogram_raw("gradients/hist/leaf", min=-0.99, max=0.99, num=sum(counts), sum=1.0, sum_squares=2.0,
        bucket_limits=edges[1:], bucket_counts=counts, global_step=step)
writer.add_image("image", np.zeros((3, 8, 8), dtype="uint8"), 3)
writer.add_scalar("lost/new-style", 1.0, 3, new_style=True, double_precision=True)
second = SummaryWriter("other-events")
second.add_scalar("probe/numbers", 5.0, 500)
second.close()
writer.close()
task.flush(wait_for_uploads=True)

logger.report_text("said on the console", print_console=False)
logger.report_scalar("native", "scalar", 0.1, 2**31 + 5)
logger.report_single_value("best", 0.25)
logger.report_surface("plots", "surface", [[1, 2], [3, 4]], iteration=3)
logger.report_media("media", "gone", iteration=1, url="http://127.0.0.1:9/x.png")
task.upload_artifact("facts", {"a": 1})
folder = str(task.get_offline_mode_folder())
task.close()
print(json.dumps(folder))
"""

# What is sent as text, so that it is JSON.
NUMBERS = ["nan", "inf", "-inf", "-0.0", "1e300", "5e-324", "16777217", "0.1", "0.3333333333333333", "-2.5"]
STORED_NUMBERS = [0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 16777216.0, 0.1, 0.33333334, -2.5]
STEPS = [0, 2**31 - 1, 2**31, 2**31 + 5, 2**40, 2**53 + 1, 2**63 - 1]
TEXTS = ["attached", "# M\n\n| k | v |\n", "Schr\u00f6dinger \u2192 \u03c8 \U0001f600 \u2028", "", "a\r\nb\rc\0d"]
TAGS = [
    "x/deep/er/and/deeper",
    "name/gradients/mean/transformer.h.0.attn.c_attn.weight",
    "plain",
    "two/parts",
    "with space/in it",
    "double//slash",
    "/leading",
    "trailing/",
    "dots.in/a.leaf",
    "\u00fcml\u00e4ut/\u03c8",
    "colon:at@comma,plus+/100%",
    "question?mark#hash/quote\"and'",
    "back\\slash/<angle>|",
    "under_score/under_score",
    "x" * 300,
    "/",
]


@dataclass(frozen=True)
class StoredSession:
    """The folder of a real session; its zip lies beside it."""

    folder: Path

    @property
    def zip(self) -> Path:
        """The zip that closing the task made."""
        return self.folder.with_name(f"{self.folder.name}.zip")

    @property
    def metrics(self) -> bytes:
        """The bytes of the metrics file."""
        return (self.folder / "metrics.jsonl").read_bytes()


@pytest.fixture(scope="session")
def session(tmp_path_factory: pytest.TempPathFactory) -> StoredSession:
    """Return a session that a SummaryWriter, relayed, and clearml's own logger wrote to."""
    home = tmp_path_factory.mktemp("clearml")
    (home / "clearml.conf").write_text(SETTINGS)
    kept = {key: value for key, value in os.environ.items() if not key.startswith("CLEARML_")}
    process = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        input=json.dumps({"numbers": NUMBERS, "steps": STEPS, "tags": TAGS, "texts": TEXTS}),
        cwd=home,
        env={
            **kept,
            "HOME": str(home),
            "CLEARML_CACHE_DIR": str(home / "cache"),
            "CLEARML_CONFIG_FILE": str(home / "clearml.conf"),
            "CLEARML_OFFLINE_MODE": "1",
        },
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert process.returncode == 0, process.stderr
    return StoredSession(Path(json.loads(process.stdout.splitlines()[-1])))


@pytest.fixture(scope="session")
def result(session: StoredSession) -> ReadResult:
    """Return what the reader makes of the session."""
    return read_clearml(session.folder)


@pytest.fixture
def altered(tmp_path: Path) -> Callable[[bytes], Path]:
    """Return a function that makes a session with other metrics, and with no files beside."""

    def make(metrics: bytes) -> Path:
        folder = tmp_path / "session"
        folder.mkdir(exist_ok=True)
        if not (folder / "task.json").exists():
            (folder / "task.json").write_text('{"id": "offline-1"}')
        (folder / "metrics.jsonl").write_bytes(metrics)
        return folder

    return make


def refused(path: Path, **arguments: Any) -> Refusal:
    """Return the refusal that reading raises."""
    with pytest.raises(Refusal) as caught:
        read_clearml(path, **arguments)
    return caught.value


def scalars(result: ReadResult, tag: str) -> list[tuple[int, float]]:
    """Return steps and values of one series of scalars."""
    return [(point.step, point.value) for point in result if isinstance(point, ScalarPoint) and point.tag == tag]


def texts(result: ReadResult, tag: str) -> list[tuple[int, str]]:
    """Return steps and texts of one series of texts."""
    return [(point.step, point.text) for point in result if isinstance(point, TextPoint) and point.tag == tag]


def left(result: ReadResult, reason: str) -> list[Unplaced]:
    """Return what was not placed for one reason."""
    return [item for item in result.unplaced if item.reason == reason]


def event(**fields: object) -> dict[str, object]:
    """Return a scalar event as ClearML spells it, changed as given."""
    return {
        **{"timestamp": 1, "type": "training_stats_scalar", "task": "t", "iter": 1, "metric": "m", "variant": "v"},
        **{"value": 1.0, "method": "get", **fields},
    }


def line(*events: object) -> bytes:
    """Return one line of a metrics file."""
    return json.dumps(events).encode() + b"\n"


# What a real session holds.


def test_agrees_with_a_plain_reading(session: StoredSession, result: ReadResult) -> None:
    """Points come in stored order and equal a second reading that knows nothing of ours (FID-1)."""
    events = [item for row in session.metrics.splitlines() for item in json.loads(row)]
    uses = Counter(item["url"] for item in events if "url" in item)
    expected: list[tuple[str, int, float | str]] = []
    for item in events:
        name = f"{item['metric']}/{item['variant']}"
        uses[item.get("url")] -= 1
        if item["type"] == "training_stats_scalar" and item["iter"] >= 0:
            expected.append((name, item["iter"], item["value"]))
        elif item.get("url", "").endswith(".txt") and uses[item["url"]] == 0:
            name = name.removesuffix("/text_summary").removesuffix("_text_summary")
            expected.append((name, item["iter"], Path(item["url"]).read_bytes().decode()))
    got: list[tuple[str, int, float | str]] = []
    for point in result:
        assert isinstance(point, (ScalarPoint, TextPoint))
        got.append((point.tag, point.step, point.value if isinstance(point, ScalarPoint) else point.text))
    assert len(got) > 150
    assert got == expected


def test_scalars_and_steps(result: ReadResult) -> None:
    """A relayed scalar keeps step and value; the tag shows what the relay stores (FID-1, POINT-3)."""
    tag = "gradients_mean/transformer.h.0.attn.c_attn.weight"
    assert scalars(result, tag) == [(100, 12.5), (102, 12.75), (104, 13.0)]


def test_large_steps(result: ReadResult) -> None:
    """Steps up to 2**63-1 are stored as integers, also past 2**53 (POINT-3)."""
    assert [step for step, _ in scalars(result, "probe/steps")] == STEPS
    assert scalars(result, "native/scalar") == [(2**31 + 5, 0.1)]


def test_numbers_are_given_as_stored(result: ReadResult) -> None:
    """NaN and infinities were stored as 0.0, floats as the shortest decimal of their float32 (FID-8)."""
    values = [value for _, value in scalars(result, "probe/numbers")]
    assert list(map(repr, values)) == list(map(repr, STORED_NUMBERS))


def test_steps_that_fall_behind_are_given_as_stored(result: ReadResult) -> None:
    """The relay takes a step far behind for a wrapped counter and moves it ahead (STEP-1, FID-8)."""
    assert [step for step, _ in scalars(result, "probe/order")] == [100, 200, 250, 245]


def test_relayed_names_follow_the_rule(session: StoredSession) -> None:
    """Scalars, texts and histograms of odd tags are stored under the names that our rule gives (FID-8)."""
    events = [item for row in session.metrics.splitlines() for item in json.loads(row)]
    tagged = [item for item in events if item["iter"] == 7777]
    names = {
        "scalar": [item for item in tagged if item["type"] == "training_stats_scalar"],
        "text_manifest": [item for item in tagged if "url" in item],
        # ClearML loses their step.
        "raw_histogram": [item for item in events if item["type"] == "plot"][: len(TAGS)],
    }
    for capability, stored in names.items():
        got = [(item["metric"], item["variant"]) for item in stored]
        assert got == [relayed_name(tag, capability) for tag in TAGS], capability


def test_known_tags_are_restored(session: StoredSession) -> None:
    """Every tag that was sent comes back when it is named, whatever the relay did to it (TAG-3, FID-8)."""
    result = read_clearml(session.folder, known_tags=TAGS)
    assert [point.tag for point in result if isinstance(point, ScalarPoint) and point.step == 7777] == TAGS
    assert [point.tag for point in result if isinstance(point, TextPoint) and point.step == 7777] == TAGS
    surfaces = [item.content["tag"] for item in left(result, "histogram surface")]
    assert surfaces[: len(TAGS)] == TAGS
    assert any(note.startswith("names turned back") for note in result.notes)


def test_relayed_tags_follow_the_rule(result: ReadResult) -> None:
    """Without known tags, each kind of point is found under the tag that our rule gives (FID-8)."""
    at = [point for point in result if getattr(point, "step", None) == 7777]
    got = [point.tag for point in at if isinstance(point, ScalarPoint)]
    assert got == [relayed_tag(tag, "scalar") for tag in TAGS]
    got = [point.tag for point in at if isinstance(point, TextPoint)]
    assert got == [relayed_tag(tag, "text_manifest") for tag in TAGS]
    surfaces = [item.content["tag"] for item in left(result, "histogram surface")]
    assert surfaces[: len(TAGS)] == [relayed_tag(tag, "raw_histogram") for tag in TAGS]
    assert relayed_tag("a/b/c", "scalar") == "a_b/c"
    assert relayed_tag("plain", "text_manifest") == "plain"


def test_tags_that_share_a_name_stay_as_stored(session: StoredSession) -> None:
    """Two known tags that the relay merges into one series are never guessed apart (TAG-3)."""
    result = read_clearml(session.folder, known_tags=["a/b/c", "a_b/c", "a/b_c"])
    assert scalars(result, "a_b/c") == [(8, 2.0), (8, 3.0)]
    assert scalars(result, "a/b_c") == [(8, 1.0)]
    assert any(note.startswith("names left as they are") and note.endswith(": 2") for note in result.notes)


def test_texts(result: ReadResult) -> None:
    """Texts come back byte for byte, with the suffix of their tag removed (FID-8)."""
    assert texts(result, "torchlens/meta_manifest") == list(enumerate(TEXTS))
    assert any(note.startswith("text tags whose suffix text_summary") for note in result.notes)


def test_overwritten_texts_are_not_invented(result: ReadResult) -> None:
    """A text whose file a later one took over is left out, not read as the later one (FID-1)."""
    kept = texts(result, "many/texts")
    assert kept == [(step, f"text {step}") for step in range(2, 102)]
    assert [item.content["step"] for item in left(result, "a medium whose file was overwritten")] == [0, 1]


def test_histogram_surfaces(result: ReadResult) -> None:
    """Every plot of relayed histograms is kept with rows, labels and the lost step (FID-1)."""
    surfaces = [
        item.content for item in left(result, "histogram surface") if item.content["tag"] == "gradients_hist/leaf"
    ]
    rows = [len(content["z"]) for content in surfaces]  # type: ignore[arg-type]
    assert rows == [2, 2, 3, 4, 5, 10]
    first, last = surfaces[0], surfaces[-1]
    assert first["step"] == last["step"] == 0
    assert first["y_labels"] == ("100",)
    assert last["y_labels"] == tuple(str(step) for step in range(100, 120, 2))
    assert first["z"][0] == (0.0,) * 48  # type: ignore[index]
    labels: Any = last["x_labels"]
    assert len(labels) == 47 and labels[:5] == ("-1.01", "", "", "", "-0.84")
    z: Any = last["z"]
    assert all(type(value) is float and not math.isnan(value) for row in z for value in row)
    # 48 samples of 64 buckets that hold 100 to 163 each.
    assert 0.7 < sum(z[0]) / sum(100 + index for index in range(64)) < 0.75


def test_everything_stored_is_placed_or_named(result: ReadResult) -> None:
    """What is no point is named with its reason, and the new-style scalar never arrived (FID-1)."""
    reasons = Counter(item.reason for item in result.unplaced)
    del reasons["histogram surface"]
    assert reasons == {
        "a medium whose file was overwritten": 2,
        "a medium of kind .jpeg": 1,
        "a medium whose file is not in the session": 1,
        "a single value without a step": 1,
        "a plot": 1,
        "console text": reasons["console text"],
        "an artifact": 1,
    }
    assert any("said on the console" in str(item.content["msg"]) for item in left(result, "console text"))
    assert not any("new-style" in getattr(point, "tag", "") for point in result)
    (artifact,) = left(result, "an artifact")
    assert artifact.content["key"] == "facts"
    assert str(artifact.content["file"]).startswith("data/")


def test_a_second_writer_gets_a_name_of_its_own(result: ReadResult) -> None:
    """Where two writers share a tag, the relay names the second series after its folder (FID-8)."""
    assert scalars(result, "probe/other-events: numbers") == [(500, 5.0)]


# Places.


def test_folder_zip_and_cache_folder_read_alike(session: StoredSession, result: ReadResult) -> None:
    """A session's folder, its zip and the cache folder above it give the same points (FID-1)."""
    cache = session.folder.parents[1]
    for path in (session.zip, session.folder.parent, cache, cache.parent):
        other = read_clearml(path)
        assert (other.points, other.unplaced, other.closed) == (result.points, result.unplaced, True), path


def test_closed_is_said_only_where_it_can_be_seen(altered: Callable[[bytes], Path]) -> None:
    """A folder without a zip is unclosed only at the place that it names as its own (FID-1)."""
    folder = altered(line(event()))
    assert read_clearml(folder).closed is None
    for place, closed in ((folder, False), (folder.parent / "elsewhere", None)):
        (folder / "task.json").write_text(json.dumps({"id": "offline-1", "offline_folder": str(place)}))
        assert read_clearml(folder).closed is closed


def test_clearml_is_not_needed(session: StoredSession) -> None:
    """Reading needs the standard library only (FID-1)."""
    code = (
        "import sys\n"
        "for name in ('clearml', 'tensorboard', 'torch', 'numpy'): sys.modules[name] = None\n"
        "from reference_sinks.readers import read_clearml\n"
        "print(len(read_clearml(sys.argv[1])))"
    )
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    printed = subprocess.run(
        [sys.executable, "-c", code, str(session.folder)],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert printed.returncode == 0, printed.stderr
    assert int(printed.stdout) > 150


def test_missing_empty_and_foreign_places(session: StoredSession, tmp_path: Path) -> None:
    """Each place that is no session is refused by its own name (FID-1)."""
    assert refused(tmp_path / "nothing").code == "reader_path_missing"
    (tmp_path / "folder").mkdir()
    assert refused(tmp_path / "folder").code == "reader_file_empty"
    (tmp_path / "empty.zip").write_bytes(b"")
    assert refused(tmp_path / "empty.zip").code == "reader_file_empty"
    zipfile.ZipFile(tmp_path / "hollow.zip", "w").close()
    assert refused(tmp_path / "hollow.zip").code == "reader_file_empty"
    with zipfile.ZipFile(tmp_path / "other.zip", "w") as other:
        other.writestr("readme.txt", "no session")
    assert refused(tmp_path / "other.zip").code == "reader_file_foreign"
    (tmp_path / "text.txt").write_text("no session")
    assert refused(tmp_path / "text.txt").code == "reader_file_foreign"
    for name in ("offline-1", "offline-2"):
        shutil.copytree(session.folder, tmp_path / "two" / name)
    refusal = refused(tmp_path / "two")
    assert (refusal.code, refusal.fields["sessions"]) == ("reader_path_ambiguous", ["offline-1", "offline-2"])


def test_a_session_without_reports_is_no_damage(altered: Callable[[bytes], Path]) -> None:
    """A session to which nothing was reported has no points and says so (FID-1)."""
    folder = altered(b"")
    assert refused(folder).code == "reader_file_empty"
    (folder / "metrics.jsonl").unlink()
    result = read_clearml(folder)
    assert len(result) == 0
    assert result.notes == ("there is no metrics.jsonl: nothing was reported",)


# Damage.


def test_cut_at_every_byte(session: StoredSession, altered: Callable[[bytes], Path]) -> None:
    """A file cut anywhere is named as cut, and every event that is whole before the cut is read (FID-1)."""
    metrics = session.metrics
    end = metrics.index(b"\n") + 1
    assert 500 < end < 2000
    for cut in range(1, end + 50):
        whole = metrics[:cut].count(b"}")
        folder = altered(metrics[:cut])
        if cut == end:
            assert (len(read_clearml(folder)), read_clearml(folder).torn) == (3, None)
            continue
        refusal = refused(folder)
        offset = 0 if cut < end else end
        expected = ("reader_file_truncated", offset, whole)
        assert (refusal.code, refusal.fields["offset"], refusal.fields["points_before"]) == expected, cut
        result = read_clearml(folder, allow_torn=True)
        assert (len(result), bool(result.torn)) == (whole, True), cut


def test_damage_in_the_middle(session: StoredSession, altered: Callable[[bytes], Path]) -> None:
    """A line that does not check is corrupt, also when torn files are allowed (FID-1)."""
    first, rest = session.metrics.split(b"\n", 1)
    for damaged in (b"[{]", b"", b"{}", b"[1]", b"[{}]", b"\xff" * 9, b"[" * 100_000, b'[{"type": 1}]'):
        refusal = refused(altered(first + b"\n" + damaged + b"\n" + rest), allow_torn=True)
        expected = ("reader_file_corrupt", len(first) + 1, 3)
        assert (refusal.code, refusal.fields["offset"], refusal.fields["points_before"]) == expected, damaged[:9]


@pytest.mark.parametrize("content", [b'{"a": 1}\n', b"no json", b"[1, 2]\n", b'[{"a": 1}]\n', b"\n", b"\0" * 9])
def test_foreign_metrics(altered: Callable[[bytes], Path], content: bytes) -> None:
    """A metrics file of another kind is foreign (FID-1)."""
    assert refused(altered(content), allow_torn=True).code == "reader_file_foreign"


def test_damaged_task(altered: Callable[[bytes], Path]) -> None:
    """The description of the task is checked too, since a kill can cut it (FID-1)."""
    folder = altered(line(event()))
    for content, code in (('{"id": "x', "truncated"), ("{{}", "corrupt"), ("[]", "foreign"), ("", "truncated")):
        (folder / "task.json").write_text(content)
        assert refused(folder).code == f"reader_file_{code}"
    result = read_clearml(folder, allow_torn=True)
    assert (len(result), result.torn) == (
        1,
        "task.json: task.json does not parse at byte 0; 0 bytes behind it were not read",
    )


def test_damaged_zips(session: StoredSession, tmp_path: Path) -> None:
    """A cut zip is refused whatever is allowed, and a flipped byte in it is found (FID-1)."""
    content = session.zip.read_bytes()
    path = tmp_path / "session.zip"
    for cut in (1, 3, 4, 100, len(content) // 2, len(content) - 1):
        path.write_bytes(content[:cut])
        assert refused(path, allow_torn=True).code == "reader_file_truncated", cut
    with zipfile.ZipFile(session.zip) as whole:
        start = whole.getinfo("metrics.jsonl").header_offset
    flipped = bytearray(content)
    flipped[start + 200] ^= 0x10
    path.write_bytes(flipped)
    assert refused(path, allow_torn=True).code == "reader_file_corrupt"


# Events that the relay does not write, and hostile ones.


def test_odd_events_are_left_with_a_reason(altered: Callable[[bytes], Path]) -> None:
    """Events that no point can hold are kept verbatim with a reason, and nothing raises (FID-1)."""
    odd = [
        (event(iter=-1), "a value that no point can hold"),
        (event(iter=None), "a value that no point can hold"),
        (event(value=None), "a value that no point can hold"),
        (event(value=True), "a value that no point can hold"),
        # A model's own reports stand among those of the task.
        (event(model_event=True), "an event of a model"),
        (event(type="training_stats_vector", values=[1]), "an event of type training_stats_vector"),
        (event(type="plot", plot_str="{"), "a plot that does not parse"),
        (event(type="plot"), "a plot that does not parse"),
        (event(type="plot", plot_str='{"data": []}'), "a plot"),
        (event(type="plot", plot_str="3"), "a plot"),
        (event(type="training_debug_image", key="../outside.txt"), "a medium whose file is not in the session"),
        (event(type="training_debug_image", key="not/there.txt"), "a medium whose file is not in the session"),
        (event(type="training_debug_image", key=3), "a medium whose file is not in the session"),
        (event(type="training_debug_image", key="bytes.txt"), "a text that is not UTF-8"),
    ]
    folder = altered(line(*(fields for fields, _ in odd)))
    (folder / "outside.txt").write_text("not part of the session")
    (folder / "data").mkdir()
    (folder / "data" / "bytes.txt").write_bytes(b"\xff")
    result = read_clearml(folder)
    assert [item.reason for item in result.unplaced] == [reason for _, reason in odd]
    assert (len(result), result.unplaced[-1].where) == (0, "metrics.jsonl@0[13]")


def test_bare_words_for_non_finite_numbers(altered: Callable[[bytes], Path]) -> None:
    """Where ClearML is told to keep them, NaN and infinities are read as floats (POINT-3)."""
    values = [math.nan, math.inf, -math.inf, -0.0, 3]
    result = read_clearml(altered(line(*(event(value=value) for value in values))))
    assert [repr(value) for _, value in scalars(result, "m/v")] == [repr(value) for value in values]


@given(st.sets(st.text(alphabet="ab_/", max_size=6)), st.sampled_from(["scalar", "raw_histogram", "text_manifest"]))
def test_restored_tags_are_never_wrong(tags: set[str], capability: str) -> None:
    """A known tag is restored exactly when no other known tag shares its stored name (TAG-3)."""
    reader = TagReader(tags, Counter())
    stored = Counter(relayed_name(tag, capability) for tag in tags)
    for tag in tags:
        name = relayed_name(tag, capability)
        if stored[name] == 1:
            assert reader.tag(*name, capability) == tag
        else:
            assert reader.tag(*name, capability) == TagReader([], Counter()).tag(*name, capability)
