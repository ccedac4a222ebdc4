"""The extra routes: their page says what the committed result holds, and how the relays take hold of tensorboardX."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fidelity import extra, extra_page
from fidelity.commands import fidelity
from fidelity.fixture import load_fixture
from fidelity.processes import ProcessFailed
from fidelity.results import results_schema
from fidelity.routes import CONTROL_ROUTES, EXTRA_ROUTES
from fidelity.run import Measurement
from fidelity.verdicts import judge
from torchlens_conformance.protocol import decode_value

from ..reference_sinks.conftest import run_program

_ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def committed() -> dict[str, Any]:
    """The committed result."""
    document: dict[str, Any] = json.loads((_ROOT / extra.EXTRA_RESULTS).read_text(encoding="utf-8"))
    assert document["schema"] == extra.SCHEMA
    jsonschema = pytest.importorskip("jsonschema")
    jsonschema.validate(document["measured"], results_schema())
    decoded: dict[str, Any] = decode_value(document)
    return decoded


def test_the_page_is_what_the_result_says(committed: dict[str, Any]) -> None:
    """The page is made of the committed result, and every difference between relays is explained (FID-2)."""
    page = extra_page.extra_page(committed)
    assert (_ROOT / extra.EXTRA_PAGE).read_text(encoding="utf-8") == page
    assert "Not explained yet" not in page
    assert r"angle\<and" in page and "angle<and" not in page
    assert "extra-routes" in (_ROOT / "docs" / "index.md").read_text(encoding="utf-8").split()
    assert all(sentence in page for sentence in extra_page._WHY.values())


def test_the_result_is_whole_and_its_words_follow_from_numbers(committed: dict[str, Any]) -> None:
    """Every extra route is measured at pinned versions, with the committed points, between good controls (FID-6)."""
    result = committed["measured"]
    assert [route["id"] for route in result["routes"]] == [*EXTRA_ROUTES, *CONTROL_ROUTES]
    assert {route["status"] for route in result["routes"]} == {"measured"}
    assert (result["void"], result["incomplete"], result["environment"]["pins_differ"]) == (False, [], [])
    assert result["tensors"]["sent_digest"] == load_fixture().digest
    for route in result["routes"]:
        for row in route["rows"]:
            assert row["verdict"] == judge(row["id"], row["numbers"]), (route["id"], row["id"])


def test_a_void_result_says_so_and_keeps_the_projects_files(
    committed: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A void measurement exits with 2, opens its page with that and does not replace what a checkout holds (FID-7)."""
    void = copy.deepcopy(committed)
    void["measured"].update(void=True, void_reasons=["the exact control has 'rounded' in scalars"])
    (tmp_path / "pyproject.toml").write_text('[project]\nname = "torchlens-conformance"\n')
    monkeypatch.chdir(tmp_path)
    for measured, code, place in ((committed, 0, Path("docs")), (void, 2, Path("fidelity-output"))):
        monkeypatch.setattr(extra, "measure_extra", lambda *_, answer=measured, **__: answer)
        done = CliRunner().invoke(fidelity, ["extra"], standalone_mode=False, catch_exceptions=False)
        assert done.return_value == code
        page = (place / extra.EXTRA_PAGE.name).read_text(encoding="utf-8")
        assert ("**This table is void.**" in page) is bool(code)
    assert "void" not in Path("docs", extra.EXTRA_PAGE.name).read_text(encoding="utf-8")
    assert json.loads(extra.EXTRA_RESULTS.read_text(encoding="utf-8"))["measured"]["void"] is False


def test_counts_that_are_lost_or_changed_are_told(committed: dict[str, Any]) -> None:
    """What came back beside the rows is named by what it is: the same, differences, something else, nothing (FID-2)."""
    told = {
        (1, 2, 3): "as it was sent",
        (1, 1, 1): "the differences of neighbours",
        (3, 2, 1): "changed",
        None: "did not come back",
    }
    for received, words in told.items():
        row = {"what": "some", "sent": [1, 2, 3], "received": None if received is None else list(received)}
        assert f"| {words}" in extra_page.extra_page({**committed, "beside": {"trailer": [row]}})


@pytest.mark.parametrize(("status", "lacks"), [("measured", 1), ("missing", 0)])
def test_a_tracker_that_fails_leaves_an_incomplete_result(
    status: str, lacks: int, committed: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What trailer could not be asked beside the rows is said, and without it nothing is asked (FID-3)."""

    def failing(*_: object, **__: object) -> None:
        raise ProcessFailed("crashed", "exit code 1")

    result = copy.deepcopy(committed["measured"])
    next(route for route in result["routes"] if route["id"] == "trailer")["status"] = status
    monkeypatch.setattr(extra, "measure_routes", lambda *_, **__: Measurement(result, {}))
    monkeypatch.setattr(extra, "measure_beside", failing)
    found = extra.measure_extra(load_fixture(), timeout=1, progress=lambda route, doing: None)
    assert found["beside"] == {}
    assert found["measured"]["incomplete"] == ["trailer, beside the rows: crashed"] * lacks
    assert extra.exit_code(found) == 2 * lacks
    assert "What no row shows" not in extra_page.extra_page(found)


@pytest.mark.trackers
def test_trailer_stores_rising_counts_as_differences(committed: dict[str, Any]) -> None:
    """Sent again in a process of its own, trailer makes of the histograms what the committed result says (FID-8)."""
    pytest.importorskip("trailer")
    found = extra.measure_beside(load_fixture(), "trailer", timeout=100)
    assert found == committed["beside"]["trailer"]
    assert [(row["sent"], row["received"]) for row in found] == [([1, 2, 3], [1, 1, 1]), ([1, 3, 2], [1, 3, 2])]


_PATCHES = """
import json, sys
from tensorboardX import writer

def state():
    return {
        "EventFileWriter": writer.EventFileWriter,
        "FileWriter.add_event": writer.FileWriter.add_event,
    }

before = state()
if sys.argv[1] == "wandb":
    from wandb.integration import tensorboard
    tensorboard.patch(root_logdir="log")
else:
    from reference_sinks.clearml_offline import start_offline_task
    start_offline_task("patches", tensorboard=True).close()
after = state()
print(json.dumps([name for name in before if before[name] is not after[name]]))
"""


@pytest.mark.trackers
@pytest.mark.parametrize(("relay", "replaced"), [("wandb", "EventFileWriter"), ("clearml", "FileWriter.add_event")])
def test_each_relay_takes_hold_of_tensorboardx_where_the_page_says(relay: str, replaced: str, tmp_path: Path) -> None:
    """The class that writes the file is replaced by wandb, the method that is handed every event by ClearML (FID-8)."""
    for package in (relay, "tensorboard", "tensorboardX"):
        pytest.importorskip(package)
    assert run_program(_PATCHES, relay, home=tmp_path).printed == [replaced]
    assert f"`{replaced}`" in (_ROOT / extra.EXTRA_PAGE).read_text(encoding="utf-8")
