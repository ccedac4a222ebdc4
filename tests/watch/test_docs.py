"""The pages about watching are true: every Python block of them runs, in order, as it stands."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")

DOCS = Path(__file__).parents[2] / "docs"


def run_page(page: str, monkeypatch: pytest.MonkeyPatch, folder: Path) -> dict[str, Any]:
    """Run the Python blocks of a page in one namespace, in an empty folder; return the namespace."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("TMPDIR", str(folder))
    monkeypatch.setattr("tempfile.tempdir", None)
    monkeypatch.syspath_prepend(str(DOCS / "examples"))
    text = (DOCS / page).read_text(encoding="utf-8")
    namespace: dict[str, Any] = {"__name__": "page"}
    blocks = list(re.finditer(r"```python\n(.*?)```", text, re.DOTALL))
    assert blocks
    for block in blocks:
        line = text[: block.start(1)].count("\n")
        tree = MustRefuse().visit(ast.parse("\n" * line + block.group(1)))
        exec(compile(ast.fix_missing_locations(tree), str(DOCS / page), "exec"), namespace)
    return namespace


class MustRefuse(ast.NodeTransformer):
    """Makes a page fail where what it catches as a refusal is not refused."""

    def visit_Try(self, node: ast.Try) -> ast.Try:
        """Raise behind a body that came to its end."""
        self.generic_visit(node)
        if any(handler.type is not None and ast.unparse(handler.type).endswith("Refusal") for handler in node.handlers):
            node.orelse = [*ast.parse("raise AssertionError('this is not refused')").body, *node.orelse]
        return node


def test_a_page_that_is_not_refused_fails() -> None:
    """The control: a block that catches a refusal which does not come is no true page (ATTACH-5)."""
    tree = MustRefuse().visit(ast.parse("try:\n    pass\nexcept trk.Refusal as refusal:\n    assert refusal.code\n"))
    with pytest.raises(AssertionError, match="not refused"):
        exec(compile(ast.fix_missing_locations(tree), "page", "exec"), {})


def test_the_tutorial_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The tutorial trains, logs to three stores and reads the caller's steps back (STEP-1, CLOSE-1, AMP-2)."""
    for package in ("tensorboard", "transformers", "wandb"):
        pytest.importorskip(package)
    report = run_page("watch-tutorial.md", monkeypatch, tmp_path)["report"]
    assert {sink.histograms for sink in report.sinks} == {3 * 9 * 2}


def test_the_example_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The program that the tutorial points to gives a close report with no failed sink (CLOSE-1)."""
    for package in ("tensorboard", "transformers", "wandb"):
        pytest.importorskip(package)
    monkeypatch.syspath_prepend(str(DOCS / "examples"))
    import watch_gpt2

    report = watch_gpt2.train(tmp_path, steps=11)
    assert [sink.failed for sink in report.sinks] == [None] * 3 and report.last_step == 1010
    assert report.computed["data_points"] == min(sink.data_points for sink in report.sinks) > 0
    sys.modules.pop("watch_gpt2")


def test_the_page_on_op_grain_runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A GPT-2 with eager attention gives twelve series per softmax, and consent is asked for (TIER-2, TIER-3)."""
    pytest.importorskip("transformers")
    page = run_page("op-grain.md", monkeypatch, tmp_path)
    assert page["session"].close().skip_counts == {}
    sys.modules.pop("collapsing_heads")


@pytest.mark.parametrize(
    "page", ["coming-from-wandb-watch.md", "cost-tiers.md", "protocol.md", "sinks-and-readers.md", "statistics.md"]
)
def test_the_other_pages_run(page: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every block runs, and its assertions hold (TIER-1, XFER-1, ATTACH-5, STAT-1, PROT-9)."""
    for package in ("tensorboard", "transformers", "wandb"):
        pytest.importorskip(package)
    run_page(page, monkeypatch, tmp_path)
