"""The page about frameworks is true: each example runs as it stands, and ends with what the page says."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

for package in ("torch", "transformers", "accelerate", "lightning", "tensorboard"):
    pytest.importorskip(package)

PAGE = Path(__file__).parents[2] / "docs" / "callbacks.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
ENDS = {
    "hf": "6 4",
    "lightning": "10 2",
    "manual-optimization": "15 [0, 2, 4, 6, 8] {1024.0}",
    "structure": "[(0, 'body'), (0, 'head'), (1, 'body'), (1, 'head')]",
    "accelerate": "[0, 1, 2]",
    "accelerate-accumulation": "3 [0, 1, 2]",
}
DRIVER = """
import io, json, os, sys, traceback
from contextlib import redirect_stdout
sys.path.append(sys.argv[1])
told = []
for number, example in enumerate(json.load(sys.stdin)):
    os.makedirs(str(number))
    os.chdir(str(number))
    out, problem = io.StringIO(), ""
    try:
        with redirect_stdout(out):
            exec(compile(example, f"example {number}", "exec"), {"__name__": "__main__"})
    except Exception:
        problem = traceback.format_exc()
    told.append((out.getvalue().splitlines(), problem))
    os.chdir("..")
print(json.dumps(told))
"""


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[list[str], str]]:
    """Run every example, each with names and a folder of its own, in one process: importing takes longest."""
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(PAGE.parents[1])],
        input=json.dumps(EXAMPLES),
        cwd=tmp_path_factory.mktemp("examples"),
        capture_output=True,
        text=True,
        timeout=250,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout.splitlines()[-1])
    return {name: (lines, problem) for name, (lines, problem) in zip(ENDS, answers, strict=True)}


@pytest.mark.parametrize("name", ENDS)
def test_an_example_of_the_page(name: str, told: dict[str, tuple[list[str], str]]) -> None:
    """An example ends with the line that the page promises (CB-1, CB-2, CB-3, CB-4)."""
    lines, problem = told[name]
    assert not problem, problem
    assert lines[-1] == ENDS[name] and f"`{ENDS[name]}`" in PAGE.read_text(encoding="utf-8")
    if name in ("hf", "lightning"):
        assert "watch signals = gradients" in "\n".join(lines) and "watch select = None [default]" in lines
    if name == "structure":
        assert any("Total params" in line for line in lines)
