"""Many measured files become one table, whatever their order; what is stale, missing or mislabelled is told."""

from __future__ import annotations

import itertools
import json
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

from fidelity.commands import fidelity
from fidelity.results import dump_results
from fidelity.trackers import routes_of
from fidelity.versions.columns import Column, columns_of, digest_of, measured_versions
from fidelity.versions.inputs import read_inputs
from fidelity.versions.merge import STALE_DAYS, Expected, mark_stale, merge_columns
from fidelity.versions.page import STALE_MARK, terminal_tables, versions_page
from fidelity.versions.store import dump_columns, load_columns, versions_schema
from torchlens_conformance.protocol import Refusal

from .version_examples import cell, column, measured_file

pytest.importorskip("jsonschema")

_MOMENTS = [f"2026-{month:02}-10T0{hour}:00:00+00:00" for month in (5, 11) for hour in (1, 2)]
_COLUMNS = st.builds(
    column,
    st.sampled_from(["0.28.2", "0.30.0", "0.31.0"]),
    moment=st.sampled_from(_MOMENTS),
    code=st.sampled_from(["c" * 64, "e" * 64]),
    status=st.sampled_from(["measured", "measured", "crashed"]),
    detail=st.sampled_from(["", "a", "b"]),
    route=st.sampled_from(["wandb", "wandb-relay"]),
)


@given(st.lists(_COLUMNS, max_size=6), st.randoms(use_true_random=False))
def test_the_order_of_the_files_does_not_matter(columns: list[Column], random: Any) -> None:
    """The same columns in any order give the same table, and merging a table again changes nothing (FID-3)."""
    shuffled = list(columns)
    random.shuffle(shuffled)
    merged = merge_columns(columns)
    assert merge_columns(shuffled) == merged
    assert merge_columns(merged) == merged
    assert merge_columns([*merged, *columns]) == merged


@given(st.lists(_COLUMNS, max_size=5), st.lists(_COLUMNS, max_size=5))
def test_tables_merge_like_their_files(one: list[Column], other: list[Column]) -> None:
    """Merging two merged tables is the same as merging all the files, so machines can share the work (FID-3)."""
    assert merge_columns([*merge_columns(one), *merge_columns(other)]) == merge_columns([*one, *other])


def test_a_measured_column_beats_a_newer_failure() -> None:
    """A crash on one machine does not wipe out what another has measured (FID-3)."""
    good = column("0.30.0", moment=_MOMENTS[0])
    bad = column("0.30.0", status="crashed", detail="exit code 1", moment=_MOMENTS[3])
    (kept,) = merge_columns([good, bad])
    assert kept["status"] == "measured"
    (newer,) = merge_columns([good, column("0.30.0", cell(word="rounded"), moment=_MOMENTS[3])])
    assert newer["cells"][0]["verdict"] == "rounded"


def test_equal_files_under_two_versions_are_refused() -> None:
    """Two versions with the same files cannot both be what they are called (FID-3)."""
    with pytest.raises(Refusal) as caught:
        merge_columns([column("0.31.0", files="f" * 64), column("0.28.2", files="f" * 64)])
    assert caught.value.code == "fidelity_versions_alike"
    assert caught.value.fields["versions"] == ["0.28.2", "0.31.0"]
    assert merge_columns([column("2.6", files="f" * 64), column("2.6.0", files="f" * 64, route="wandb")])


def test_a_column_is_named_by_what_the_package_reports() -> None:
    """The version of a column is the package's own word, not the installer's (FID-3)."""
    assert column("0.30.0", reported="0.30.1.dev1")["version"] == "0.30.1.dev1"
    unlabelled = column("0.30.0", reported=None)
    assert (unlabelled["status"], unlabelled["cells"]) == ("unlabelled", [])
    patched = column("0.30.0", altered=("wandb/errors.py",))
    assert (patched["status"], patched["cells"]) == ("unlabelled", [])
    assert "wandb/errors.py" in patched["detail"]


def test_the_cells_of_a_void_file_do_not_count() -> None:
    """Where a control was off, no cell is taken over, and the column says why (FID-7)."""
    document = measured_file("0.30.0")
    document |= {"void": True, "void_reasons": ["the exact control did not run"]}
    (void,) = columns_of(document)
    assert (void["status"], void["detail"], void["cells"]) == ("void", "the exact control did not run", [])


@pytest.mark.parametrize(
    ("old", "reason"),
    [
        ({"moment": "2026-08-01T00:00:00+00:00"}, "120 days before"),
        ({"sent": "b" * 64}, "other points"),
        ({"kit": "0.0.9"}, "kit 0.0.9"),
        ({"code": "e" * 64}, "other code"),
    ],
)
def test_a_stale_cell_says_why_and_looks_stale(old: dict[str, Any], reason: str) -> None:
    """Old cells, other points, another kit and older code of the route are marked in table and page (FID-3)."""
    settings = {"moment": "2026-11-28T00:00:00+00:00", **old}
    stale, fresh = merge_columns([column("0.28.2", **settings), column("0.30.0", moment="2026-11-29T00:00:00+00:00")])
    assert len(stale["stale"]) == 1 and reason in stale["stale"][0]
    assert fresh["stale"] == []
    page = versions_page([stale, fresh])
    assert f"exact {STALE_MARK} {stale['date']} | exact 2026-11-29 |" in page
    assert f"0.28.2 is stale: `{stale['stale'][0]}`" in page


def test_the_last_day_of_a_quarter_is_not_stale() -> None:
    """A cell is stale after 90 days, not on the ninetieth (FID-3)."""
    fresh = column("0.30.0", moment="2026-11-29T00:00:00+00:00")
    assert mark_stale([column("0.28.2", moment="2026-08-31T00:00:00+00:00"), fresh])[0]["stale"] == []
    assert mark_stale([column("0.28.2", moment="2026-08-30T00:00:00+00:00"), fresh])[0]["stale"] != []
    assert STALE_DAYS == 90


def test_what_was_expected_and_left_nothing_says_why() -> None:
    """A missing file, a failed installation and a wrong version each leave a column with the reason (FID-3)."""
    routes = {"wandb-relay": "wandb relay"}
    expected = [
        Expected("fidelity-wandb0282", "wandb", "0.28.2", routes),
        Expected("fidelity-wandb0300", "wandb", "0.30.0", routes, "the installation failed: no such version"),
        Expected("fidelity-wandb0310", "wandb", "0.31.0", routes),
        Expected("fidelity-wandb0320", "wandb", "0.32.0", routes),
        Expected("fidelity-wandb0330", "wandb", "0.33.0", routes),
    ]
    given_columns = [
        column("0.27.0", environment="fidelity-wandb0310"),
        column(None, status="missing", detail="wandb is not installed", environment="fidelity-wandb0320"),
        column("0.33.0", environment="fidelity-wandb0330"),
    ]
    merged = merge_columns(given_columns, expected=expected)
    assert {c["version"]: c["detail"] for c in merged} == {
        "0.27.0": "",
        "0.28.2": "the environment fidelity-wandb0282 left no file",
        "0.30.0": "the installation failed: no such version",
        "0.31.0": "the environment fidelity-wandb0310 has version 0.27.0",
        "0.32.0": "missing: wandb is not installed",
        "0.33.0": "",
    }
    page = versions_page(merged)
    assert "not measured: absent" in page
    assert "0.30.0 could not be measured, absent: `the installation failed: no such version`" in page


def test_a_failed_version_never_hides_the_others() -> None:
    """One crashed version leaves its own column, and every other cell stands (FID-3)."""
    merged = merge_columns([column("0.28.2"), column("0.29.0", status="crashed", detail="boom"), column("0.30.0")])
    assert [(c["version"], c["status"]) for c in merged] == [
        ("0.28.2", "measured"),
        ("0.29.0", "crashed"),
        ("0.30.0", "measured"),
    ]
    assert measured_versions(merged, "wandb") == ["0.28.2", "0.30.0"]


def test_versions_are_ordered_as_versions() -> None:
    """0.9 stands before 0.10 and a pre-release before its release (FID-3)."""
    versions = ["0.10.0", "0.9.1", "0.10.0rc1"]
    assert [c["version"] for c in merge_columns(map(column, versions))] == ["0.9.1", "0.10.0rc1", "0.10.0"]


def test_every_cell_has_its_date_and_the_page_marks_changes(tmp_path: Path) -> None:
    """Each cell carries the day of its measurement, and a word that changed from version to version is bold (FID-3)."""
    old = column("0.28.2", cell(word="rounded"), moment="2026-11-20T00:00:00+00:00")
    new = column("0.30.0", cell(word="exact"), moment="2026-11-29T00:00:00+00:00")
    merged = merge_columns([new, old])
    assert [c["cells"][0]["date"] for c in merged] == ["2026-11-20", "2026-11-29"]
    page = versions_page(merged)
    assert "| scalars |  | rounded 2026-11-20 | **exact** 2026-11-29 |" in page
    place = "wandb-relay (sync_tensorboard), scalars"
    assert (
        f"- **0.28.2 to 0.30.0**: 1 cell.\n  - {place}: before: values of scalars arrive rounded; now: kept\n" in page
    )
    assert "\n    - rounded -> exact\n" in page


def test_a_terminal_shows_the_newest_versions() -> None:
    """Of more versions than can be read the newest are shown, and the place of the others is named (FID-3)."""
    merged = merge_columns(column(f"0.{number}.0", status="crashed", detail="see [/log]") for number in range(12))
    (table,) = terminal_tables(merged, page="docs/page.md")
    text = StringIO()
    Console(file=text, width=400).print(table)
    assert "0.11.0" in text.getvalue() and "0.4.0" in text.getvalue()
    assert "0.3.0" not in text.getvalue()
    assert "4 older versions stand in docs/page.md." in text.getvalue()
    assert "0.11.0 could not be measured, crashed: see [/log]" in text.getvalue()
    (whole,) = terminal_tables(merged[:8], page="docs/page.md")
    assert "older" not in str(whole.caption) and len(whole.columns) == 10
    assert all(f"| {c['version']} |" in versions_page(merged) for c in merged)


def test_a_table_reads_back_as_it_was_written(tmp_path: Path) -> None:
    """The file of versions validates against its schema and holds every number, infinities included (FID-7)."""
    import jsonschema

    merged = merge_columns(
        [column("0.30.0", cell(counts_l1=float("inf"))), column("0.29.0", status="crashed", detail="x")]
    )
    path = tmp_path / "versions.json"
    path.write_text(dump_columns(merged), encoding="utf-8")
    jsonschema.validate(json.loads(path.read_text(encoding="utf-8")), versions_schema())
    assert load_columns(path) == merged
    assert load_columns(path, validate=False) == merged


@pytest.mark.parametrize("text", ["", "{", "[]", '{"schema": "torchlens-conformance.fidelity-versions.v9"}', "\xff"])
@pytest.mark.parametrize("validate", [True, False])
def test_other_files_are_refused_as_tables(text: str, validate: bool, tmp_path: Path) -> None:
    """An empty, broken, foreign or later file is refused by name, with and without the schema (FID-1)."""
    path = tmp_path / "versions.json"
    path.write_text(text, encoding="latin-1")
    with pytest.raises(Refusal) as caught:
        load_columns(path, validate=validate)
    assert caught.value.code == "fidelity_result_invalid"


def test_the_digest_of_a_result_is_about_data_only() -> None:
    """Dates, machines, counts of log lines and noise below six digits leave the result digest alone (FID-3)."""
    first = column("0.28.2", cell(value_error=0.1, notices=3))
    same = column("0.30.0", cell(value_error=0.1 * (1 + 1e-12), notices=9), moment="2026-12-29T10:00:00+00:00")
    other = column("0.31.0", cell(value_error=0.2))
    digests = [digest_of([found], "wandb", found["version"]) for found in (first, same, other)]
    assert digests[0] == digests[1] != digests[2]
    assert digest_of([first], "wandb", "9.9") is None


def test_files_of_all_kinds_are_merged(tmp_path: Path) -> None:
    """Measured files, tables, tox's report and the list of jobs are told apart by what they hold (FID-3)."""
    (tmp_path / "one.json").write_text(dump_results(measured_file("0.28.2")), encoding="utf-8")
    (tmp_path / "table.json").write_text(dump_columns([column("0.31.0")]), encoding="utf-8")
    jobs = [{"environment": f"fidelity-wandb0{v}0", "tracker": "wandb", "version": f"0.{v}.0"} for v in (29, 30)]
    (tmp_path / "jobs.json").write_text(json.dumps({"include": jobs}), encoding="utf-8")
    install = {
        "command": ["uv", "pip", "install", "torch", "wandb==0.30.0"],
        "retcode": 1,
        "output": "",
        "err": "no\nway",
    }
    report = {"testenvs": {"fidelity-wandb0300": {"setup": [install]}, "lint": {"setup": []}}}
    (tmp_path / "tox.json").write_text(json.dumps(report), encoding="utf-8")
    for order in itertools.permutations(sorted(tmp_path.iterdir()), 4):
        inputs = read_inputs(order)
        merged = merge_columns(inputs.columns, expected=inputs.expected)
        details = {c["version"]: c["detail"] for c in merged if c["route"] == "wandb-relay"}
        assert details == {
            "0.28.2": "",
            "0.29.0": "the environment fidelity-wandb0290 left no file",
            "0.30.0": "the installation failed: no way",
            "0.31.0": "",
        }


@pytest.mark.parametrize("text", ['{"include": 3}', '{"include": [{"tracker": "wandb"}]}', '{"testenvs": {"x": 1}}'])
def test_a_broken_list_of_jobs_is_refused(text: str, tmp_path: Path) -> None:
    """A file that looks like jobs or like tox's report, and is neither, is refused by name (FID-3)."""
    path = tmp_path / "jobs.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(Refusal) as caught:
        read_inputs([path])
    assert caught.value.code == "fidelity_result_invalid"


def test_an_unknown_tracker_is_refused_with_those_there_are() -> None:
    """A tracker that no route measures is refused by name (FID-3)."""
    assert set(routes_of("wandb")) == {"wandb", "wandb-relay"}
    with pytest.raises(Refusal) as caught:
        routes_of("wand")
    assert caught.value.code == "fidelity_tracker_unknown"
    assert "clearml" in caught.value.remedy


def test_in_a_checkout_the_table_is_renewed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the files do not hold stays in the committed table, unless one begins afresh (FID-3)."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pyproject.toml").write_text('name = "torchlens-conformance"\n', encoding="utf-8")
    (tmp_path / "new.json").write_text(dump_results(measured_file("0.31.0")), encoding="utf-8")
    table = tmp_path / "fidelity" / "results" / "versions.json"
    table.parent.mkdir(parents=True)
    table.write_text(dump_columns([column("0.30.0")]), encoding="utf-8")
    for arguments, versions in ((["new.json"], ["0.30.0", "0.31.0"]), (["new.json", "--fresh"], ["0.31.0"])):
        done = CliRunner().invoke(fidelity, ["merge", *arguments], standalone_mode=False, catch_exceptions=False)
        assert done.return_value == 0
        assert [c["version"] for c in load_columns(table)] == versions
    assert (tmp_path / "docs" / "fidelity-versions.md").read_text(encoding="utf-8").startswith("# Version by version")
    CliRunner().invoke(fidelity, ["merge", "new.json", "--output", "elsewhere"], catch_exceptions=False)
    assert load_columns(tmp_path / "elsewhere" / "versions.json") == load_columns(table)


@pytest.mark.parametrize(
    "broken",
    [{"verdict": "splendid"}, {"numbers": 3}, {"date": "today"}, {"extra": 1}, {"id": None}, {"grid": "uniform-65"}],
)
def test_one_broken_cell_among_good_ones_is_refused(broken: dict[str, Any], tmp_path: Path) -> None:
    """A cell that does not match the schema is found wherever it stands, also after good files (FID-1)."""
    path = tmp_path / "versions.json"
    good = column("0.30.0", cell("scalars"), cell("text"), cell("tags"))
    path.write_text(dump_columns([good]), encoding="utf-8")
    assert load_columns(path) == [good]
    bad = {**good, "cells": [*good["cells"][:2], {**good["cells"][2], **broken}]}
    path.write_text(dump_columns([column("0.28.2"), bad]), encoding="utf-8")
    with pytest.raises(Refusal) as caught:
        load_columns(path)
    assert caught.value.code == "fidelity_result_invalid"
