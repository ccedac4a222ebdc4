"""The page about graphs is true: its example runs and prints what stands there."""

from __future__ import annotations

import contextlib
import io
import re
import runpy
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("tensorboard")

from reference_sinks.readers import read_tensorboard

DOCS = Path(__file__).parents[2] / "docs"


def test_the_example_of_the_page(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The examples print what the page shows, and leave a graph (GRAPH-1)."""
    text = (DOCS / "graph.md").read_text(encoding="utf-8")
    codes, shown = (re.findall(rf"```{word}\n(.*?)```", text, re.DOTALL) for word in ("python", "text"))
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "page"}
    for code, wanted in zip(codes, shown, strict=True):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(code, "graph.md", "exec"), names)
        assert printed.getvalue() == wanted
    assert len(read_tensorboard(tmp_path / "runs" / "graph").points) == 1


def test_the_net_of_the_picture(tmp_path: Path) -> None:
    """The net whose page is shown still gives that graph (GRAPH-1)."""
    module = runpy.run_path(str(DOCS / "examples" / "graph_page.py"))
    (point,) = read_tensorboard(module["write_graph"](tmp_path)).points
    scopes = {node["name"].split("/")[0] for node in point.graph["nodes"]}  # type: ignore[union-attr]
    assert {"input", "stem", "blocks", "head", "output"} <= scopes
