"""The committed sent points: one compressed file that ``check`` replays on any machine (FID-6)."""

from __future__ import annotations

import json
import lzma
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torchlens_conformance.protocol import HistogramPoint, Point, Refusal, ScalarPoint

from .files import write_bytes
from .grids import grid_edges
from .stimulus import SentData, grid_of
from .tensors import Provenance

FIXTURE_PATH = Path(__file__).parent / "data" / "sent.json.xz"
"""The fixture of the default source."""

_FORMAT = "torchlens-conformance.sent.v1"


def save_fixture(data: SentData, path: Path = FIXTURE_PATH) -> None:
    """Write ``data`` whole or not at all; histograms are stored sparse, edges by their grid and limits."""
    document = {
        "format": _FORMAT,
        "digest": data.digest,
        "provenance": asdict(data.provenance),
        "tensor_digest": data.tensor_digest,
        "points": [_pack(point) for point in data.points],
    }
    packed = lzma.compress(json.dumps(document, separators=(",", ":")).encode(), preset=9 | lzma.PRESET_EXTREME)
    write_bytes(path, packed)


def load_fixture(path: Path = FIXTURE_PATH) -> SentData:
    """Read the sent points back and check them against their digest.

    Raises ``fidelity_fixture_invalid``. Clause: FID-6.
    """
    try:
        document = json.loads(lzma.decompress(path.read_bytes()))
        if document["format"] != _FORMAT:
            raise ValueError(f"its format is {document['format']!r}")
        points = tuple(_unpack(row) for row in document["points"])
        data = SentData(points, Provenance(**document["provenance"]), document["tensor_digest"])
        if data.digest != document["digest"]:
            raise ValueError(f"its points have digest {data.digest}")
    except (OSError, lzma.LZMAError, ValueError, KeyError, TypeError, Refusal) as error:
        raise Refusal(
            "fidelity_fixture_invalid",
            f"The fixture of sent points cannot be used: {error}.",
            remedy="Restore the committed file, or make it anew: torchlens-conformance fidelity run --save-fixture.",
            path=str(path),
        ) from error
    return data


def _pack(point: Point) -> list[Any]:
    if isinstance(point, ScalarPoint):
        return ["s", point.tag, point.step, point.value]
    if not isinstance(point, HistogramPoint):
        raise TypeError(f"the fixture holds no {type(point).__name__}")
    grid = grid_of(point)
    limits = [point.edges[0], point.edges[-1]]
    runs: list[list[int]] = []
    previous = -2
    for index, count in enumerate(point.counts):
        if count:
            if index != previous + 1:
                runs.append([index])
            runs[-1].append(count)
            previous = index
    return ["h", point.tag, point.step, grid, limits, len(point.counts), runs, dict(point.summary)]


def _unpack(row: list[Any]) -> Point:
    if row[0] == "s":
        return ScalarPoint(*row[1:])
    _, tag, step, grid, (low, high), buckets, runs, summary = row
    counts = [0] * buckets
    for start, *values in runs:
        counts[start : start + len(values)] = values
    return HistogramPoint(tag, step, tuple(counts), grid_edges(grid, (low, high)), summary)
