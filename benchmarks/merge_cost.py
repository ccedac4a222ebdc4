"""What a merge of many versions costs: `python benchmarks/merge_cost.py [VERSIONS]`, 200 by default.

Makes that many measured files from the committed one (each under a version and with files of its own), and runs
`torchlens-conformance fidelity merge` over them as a user would, the start of the process and the drawing of the tables
included. Prints seconds of the clock and of the processor; on a busy machine only the latter say much.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from fidelity.results import COMMITTED, Result, dump_results, load_results
from fidelity.versions.store import load_columns

ROUTES = ("wandb", None)
"""The trackers whose routes stand in each file; None is that of the controls."""


def main(versions: int) -> None:
    """Write the files, then time the command."""
    result = load_results(COMMITTED)
    with tempfile.TemporaryDirectory(prefix="merge-cost-") as folder:
        place = Path(folder)
        files = [place / f"{number}.json" for number in range(versions)]
        for number, path in enumerate(files):
            path.write_text(dump_results(_version(result, number)), encoding="utf-8")
        merged = place / "merged"
        command = [sys.executable, "-m", "torchlens_conformance", "fidelity", "merge", "--output", str(merged)]
        started, before = time.perf_counter(), os.times()
        done = subprocess.run([*command, *map(str, files)], capture_output=True, text=True, check=True)
        seconds, after = time.perf_counter() - started, os.times()
        columns = load_columns(merged / "versions.json")
    processor = sum(after[2:4]) - sum(before[2:4])
    print(
        f"{versions} versions, {len(columns)} columns, {sum(len(c['cells']) for c in columns)} cells, "
        f"{len(done.stdout.splitlines())} lines printed: {seconds:.2f} s, of the processor {processor:.2f} s"
    )


def _version(result: Result, number: int) -> Result:
    """The committed result with the routes of one tracker, under a version of its own."""
    package = {"reported": f"1.{number}.0", "digest": f"{number:064x}", "files": 500, "altered": []}
    routes = [
        {**route, "package": package, "code": "c" * 64} if route["tracker"] else route
        for route in result["routes"]
        if route["tracker"] in ROUTES
    ]
    return {
        **result,
        "moment": f"{result['date']}T{number // 60 % 24:02}:{number % 60:02}:00+00:00",
        "routes": routes,
    }


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
