"""read_clearml over what ClearMLSink stores: its artifacts, whole, cut, changed and taken away."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reference_sinks.clearml_names import ARTIFACT_PREFIX, artifact_name, tag_of, title_and_series
from reference_sinks.jsonl_rows import FOOTER, HEADER
from reference_sinks.readers import read_clearml
from torchlens_conformance.protocol import HistogramPoint, Point, Refusal, ScalarPoint, TextPoint

from ..clearml_tasks import START
from ..conftest import run_program

# Not importorskip: importing clearml reads settings of the user, and some versions dial their server.
if find_spec("clearml") is None:
    pytest.skip("clearml is not installed", allow_module_level=True)

PROGRAM = """
sink = ClearMLSink(task)
for step in (2, 1, 3):
    emit(sink, ScalarPoint("a/b/c", step, step / 3), TextPoint("m/t", step, f"text {step}\\n"),
         HistogramPoint("g/hist/x", step, [step, 2**60], [-0.5, 0.25, 1.0], {"num": step, "min": -0.1}))
sink.close()
task.upload_artifact("facts", {"a": 1}, wait_on_upload=True)
task.close()
end(told)
"""

SENT: list[Point] = [
    *(ScalarPoint("a/b/c", step, step / 3) for step in (2, 1, 3)),
    *(
        point
        for step in (2, 1, 3)
        for point in (
            TextPoint("m/t", step, f"text {step}\n"),
            HistogramPoint("g/hist/x", step, (step, 2**60), (-0.5, 0.25, 1.0), {"num": step, "min": -0.1}),
        )
    ),
]
"""What the reader gives: the scalars, then the artifacts in the order in which they were written."""


@dataclass(frozen=True)
class Copy:
    """A copy of the session that may be changed."""

    folder: Path

    @property
    def artifacts(self) -> list[Path]:
        """The files of the sink's artifacts, in the order in which they were written."""
        return sorted(self.folder.rglob(f"{ARTIFACT_PREFIX}*.jsonl"), key=lambda path: path.name)


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a session that a real task made; its zip lies beside it."""
    return Path(run_program(START + PROGRAM, home=tmp_path_factory.mktemp("native")).printed["folder"])


@pytest.fixture
def copy(stored: Path, tmp_path: Path) -> Copy:
    """Return a copy of the session."""
    return Copy(Path(shutil.copytree(stored, tmp_path / "session")))


def test_everything_returns_in_its_order(stored: Path) -> None:
    """Scalars, texts and histograms return exactly, each kind in the order it was sent (CLEARML-1, POINT-2)."""
    result = read_clearml(stored)
    assert list(result) == SENT
    assert result.torn is None and result.closed is True
    left = [item.content for item in result.unplaced if item.reason == "an artifact"]
    assert [(content["key"], Path(str(content["file"])).name) for content in left] == [("facts", "facts.json")]


def test_the_zip_gives_what_the_folder_gives(stored: Path) -> None:
    """The zip that closing makes holds the same points in the same order (FID-1)."""
    result = read_clearml(stored.with_name(f"{stored.name}.zip"))
    assert list(result) == SENT and result.closed is True


def test_nothing_of_clearml_is_imported(stored: Path) -> None:
    """The reader works without clearml (FID-1)."""
    code = (
        "import sys; from reference_sinks.readers import read_clearml; print(len(read_clearml(sys.argv[1])));"
        "sys.exit(any(name.split('.')[0] == 'clearml' for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code, str(stored)], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (0, f"{len(SENT)}\n"), done.stderr


def test_artifacts_are_found_without_the_list_of_the_task(copy: Copy) -> None:
    """A killed process may leave no list of artifacts: the files themselves are read (PROT-10)."""
    (copy.folder / "task.json").write_text("")
    with pytest.raises(Refusal) as caught:
        read_clearml(copy.folder)
    assert caught.value.code == "reader_file_truncated"
    result = read_clearml(copy.folder, allow_torn=True)
    assert list(result) == SENT
    assert result.torn is not None and result.torn.startswith("task.json")
    (copy.folder / "task.json").unlink()
    assert list(read_clearml(copy.folder)) == SENT


@pytest.mark.parametrize("cut", [1, len(FOOTER), len(FOOTER) + 1])
def test_a_cut_artifact_is_named(copy: Copy, cut: int) -> None:
    """An artifact without its end is refused, or read up to its last whole row, with its name in torn (FID-1)."""
    last = copy.artifacts[-1]
    content = last.read_bytes()
    last.write_bytes(content[:-cut])
    with pytest.raises(Refusal) as caught:
        read_clearml(copy.folder)
    assert caught.value.code == "reader_file_truncated"
    result = read_clearml(copy.folder, allow_torn=True)
    whole = SENT[:-1] if cut > len(FOOTER) else SENT
    assert list(result) == whole
    assert result.torn is not None and result.torn.startswith(last.name)


@pytest.mark.parametrize(
    ("change", "code"),
    [
        (lambda content: content.replace(b'"text', b'"t\xff\xffext'), "reader_file_corrupt"),
        (lambda content: content[len(HEADER) :], "reader_file_foreign"),
        (lambda content: content.replace(b'"version":1', b'"version":9'), "reader_file_corrupt"),
        (lambda content: b"", "reader_file_truncated"),
    ],
)
def test_a_changed_artifact_is_refused(copy: Copy, change: Callable[[bytes], bytes], code: str) -> None:
    """An artifact that is not what the sink wrote is refused by name (FID-1)."""
    first = copy.artifacts[0]
    first.write_bytes(change(first.read_bytes()))
    with pytest.raises(Refusal) as caught:
        read_clearml(copy.folder)
    assert caught.value.code == code


def test_a_row_that_makes_no_point_is_left(copy: Copy) -> None:
    """A row with edges that fall stays out of the points, with its content and the reason (POINT-2)."""
    first = copy.artifacts[0]
    first.write_bytes(first.read_bytes().replace(b"[-0.5,0.25,1.0]", b"[-0.5,0.25,0.0]"))
    result = read_clearml(copy.folder)
    assert list(result) == [*SENT[:4], *SENT[5:]]
    (left,) = [item for item in result.unplaced if item.reason == "a row that no point can hold"]
    assert left.content["edges"] == [-0.5, 0.25, 0.0] and "edges" in str(left.content["why"])


def test_a_listed_artifact_without_its_file_is_named(copy: Copy) -> None:
    """An artifact of points whose file is gone stands among what could not be placed (FID-1)."""
    copy.artifacts[0].unlink()
    result = read_clearml(copy.folder)
    assert list(result) == [*SENT[:3], *SENT[5:]]
    keys = [item.content["key"] for item in result.unplaced if item.reason == "an artifact"]
    assert "facts" in keys and any(str(key).startswith(ARTIFACT_PREFIX) for key in keys)


def test_an_empty_console_file_is_no_damage(copy: Copy) -> None:
    """A process that was killed when it had just made the console's file leaves a readable session (PROT-10)."""
    (copy.folder / "log.jsonl").write_bytes(b"")
    assert list(read_clearml(copy.folder)) == SENT


def test_the_list_of_the_task_names_the_artifacts(stored: Path) -> None:
    """What a person sees of an artifact names its tags and texts (CLEARML-1)."""
    artifacts = json.loads((stored / "task.json").read_text())["execution"]["artifacts"]
    preview = next(a["type_data"]["preview"] for a in artifacts if a["key"].endswith("-step_0000000002"))
    assert preview == f"m/t, step 2: text 2\n\ng/hist/x, step 2: 2 buckets, {2 + 2**60} values"
    assert zipfile.is_zipfile(stored.with_name(f"{stored.name}.zip"))


@given(st.text("ab/", max_size=8))
def test_a_tag_returns_from_title_and_series(tag: str) -> None:
    """Every tag comes back from its title and series, so no two share them (TAG-3)."""
    assert tag_of(*title_and_series(tag)) == tag


@given(
    st.lists(
        st.tuples(st.integers(0, 10**6), st.integers(0, 2**63 - 1)),
        min_size=2,
        max_size=5,
        unique_by=lambda item: item[0],
    )
)
def test_artifacts_sort_as_they_were_written(items: list[tuple[int, int]]) -> None:
    """Names of one sink sort by their number, whatever the steps (CLEARML-1)."""
    ordered = sorted(items)
    assert sorted(artifact_name("t", *item) for item in items) == [artifact_name("t", *item) for item in ordered]
