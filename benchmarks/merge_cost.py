"""What a merge of many versions costs: `python benchmarks/merge_cost.py [VERSIONS]`, 200 by default.

Makes that many measured files from the committed one (each under a version and with files of its own), and merges them
as `torchlens-conformance fidelity merge` does, from reading to the written page. Prints seconds of the clock and of the
processor.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

from fidelity.results import COMMITTED, load_results
from fidelity.versions.inputs import read_inputs
from fidelity.versions.merge import merge_columns
from fidelity.versions.page import versions_page
from fidelity.versions.store import dump_columns


def main(versions: int) -> None:
    """Write the files, then time reading, merging and writing."""
    result = load_results(COMMITTED)
    with tempfile.TemporaryDirectory(prefix="merge-cost-") as folder:
        place = Path(folder)
        for number in range(versions):
            document = json.loads(COMMITTED.read_text(encoding="utf-8"))
            document["routes"] = [route for route in document["routes"] if route["tracker"] in ("wandb", None)]
            document["moment"] = f"{result['date']}T{number // 60 % 24:02}:{number % 60:02}:00+00:00"
            for route in document["routes"]:
                if route["tracker"] is not None:
                    route["package"] = {
                        "reported": f"1.{number}.0",
                        "digest": f"{number:064x}",
                        "files": 500,
                        "altered": [],
                    }
                    route["code"] = "c" * 64
            (place / f"{number}.json").write_text(json.dumps(document), encoding="utf-8")
        started, cpu = time.perf_counter(), time.process_time()
        columns, expected = read_inputs(sorted(place.glob("*.json")))
        read = time.perf_counter()
        merged = merge_columns(columns, expected=expected)
        folded = time.perf_counter()
        table, page = dump_columns(merged), versions_page(merged)
        written, cpu = time.perf_counter(), time.process_time() - cpu
    print(
        f"{versions} versions, {len(merged)} columns, {sum(len(c['cells']) for c in merged)} cells: "
        f"reading and validating {read - started:.2f} s, merging {folded - read:.2f} s, "
        f"table ({len(table) / 1e6:.1f} MB) and page ({len(page) / 1e6:.1f} MB) {written - folded:.2f} s, "
        f"together {written - started:.2f} s, of the processor {cpu:.2f} s"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200)
