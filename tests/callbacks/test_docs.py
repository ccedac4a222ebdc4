"""The page about frameworks is true: each example runs in a process of its own and ends with what the page says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

for package in ("torch", "transformers", "accelerate", "lightning", "tensorboard"):
    pytest.importorskip(package)

PAGE = Path(__file__).parents[2] / "docs" / "callbacks.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
CASES = list(zip(EXAMPLES, ("6 4", "10 2", "[0, 1, 2]"), strict=True))


@pytest.mark.parametrize(("example", "end"), CASES, ids=["hf", "lightning", "accelerate"])
def test_an_example_of_the_page(example: str, end: str, tmp_path: Path) -> None:
    """An example ends with the line that the page promises (CB-1, CB-2)."""
    assert f"`{end}`" in PAGE.read_text(encoding="utf-8")
    root = str(PAGE.parents[1])
    done = subprocess.run(
        [sys.executable, "-c", f"import sys; sys.path.append({root!r})\n{example}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == end
    if "Callback" in example:
        assert "watch signals = " in done.stdout and "[default]" in done.stdout
