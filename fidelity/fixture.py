"""The committed sent points: one compressed file that ``check`` replays on any machine (FID-6)."""

from __future__ import annotations

import json
import lzma
from dataclasses import asdict
from pathlib import Path
from typing import Any

from torchlens_conformance.protocol import HistogramPoint, Point, Refusal, ScalarPoint
from torchlens_conformance.protocol.compare import value_error

from .files import write_bytes
from .grids import grid_edges
from .stimulus import SentData, grid_of
from .tensors import Provenance

LAST_BITS = 1e-6
"""Relative error that another order of summation may give, with cancellation (FID-6)."""

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


def committed_points(data: SentData, fixture: SentData) -> tuple[SentData, str | None]:
    """Return the points to send for rebuilt ``data``, and a sentence when they are not the rebuilt ones.

    Arithmetic differs between machines and kernels in the last bits. So that results can be compared, what was rebuilt
    from the committed source only vouches for the committed points, which are sent; other sources send their own.

    Raises ``fidelity_fixture_invalid`` when the very tensors of the fixture give other counts, or other numbers by more
    than :data:`LAST_BITS`: then it vouches for nothing. Clause: FID-6.
    """
    sources = [(item.provenance.source, item.provenance.seed) for item in (data, fixture)]
    if sources[0] != sources[1] or data.digest == fixture.digest:
        return data, None
    counts, worst = _difference(data, fixture)
    told = f"differs in the counts of {counts} histograms, and in other numbers by {worst:.1g} at most"
    if data.tensor_digest == fixture.tensor_digest and (counts or worst > LAST_BITS):
        raise Refusal(
            "fidelity_fixture_invalid",
            f"The committed points are not those of these tensors: what was rebuilt {told}.",
            remedy="Find out what changed in the statistics; `fidelity run --save-fixture` writes new points.",
            path=FIXTURE_PATH.name,
        )
    return fixture, f"the committed points are sent; what was rebuilt here {told}"


def _difference(data: SentData, fixture: SentData) -> tuple[int, float]:
    """Return how many histograms have other counts (one that is missing or too many as well), and the worst error."""
    pairs = list(zip(data.points, fixture.points))
    counts = sum(getattr(new, "counts", None) != getattr(old, "counts", None) for new, old in pairs)
    worst = max((value_error(*numbers) for pair in pairs for numbers in _numbers(*pair)), default=0.0)
    return counts + abs(len(data.points) - len(fixture.points)), worst


def _numbers(new: Point, old: Point) -> list[tuple[float, float]]:
    if isinstance(new, ScalarPoint) and isinstance(old, ScalarPoint):
        return [(old.value, new.value)]
    if isinstance(new, HistogramPoint) and isinstance(old, HistogramPoint):
        names = old.summary.keys() & new.summary.keys()
        return [*zip(old.edges, new.edges), *((old.summary[name], new.summary[name]) for name in names)]
    return []
