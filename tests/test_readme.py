"""What the README shows runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

_README = Path(__file__).parents[1] / "README.md"
_BLOCKS = re.findall(r"^```python\n(.*?)^```", _README.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def test_the_readme_shows_python() -> None:
    """The README holds the blocks that are run here."""
    assert len(_BLOCKS) == 2


@pytest.mark.parametrize("block", _BLOCKS)
def test_every_block_runs(block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each block of Python in the README runs on its own in an empty folder (JSONL-1, STEP-1)."""
    if "torch" in block:
        pytest.importorskip("torch")
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "README.md", "exec"), {"__name__": "readme"})
