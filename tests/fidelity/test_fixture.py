"""The committed points: whole, checked, and the same on every machine."""

from __future__ import annotations

import json
import lzma
import math
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from fidelity.fixture import committed_points, load_fixture, save_fixture
from fidelity.grids import GRIDS, LOG_DESCRIPTORS, UNIFORM_BUCKETS, uniform_edges
from fidelity.stimulus import SentData, grid_of, points_digest
from fidelity.tensors import PARAMETER_TENSORS, STEPS, Provenance
from torchlens_conformance.protocol import HistogramPoint, Refusal, ScalarPoint

from .small_stimulus import small_data


def _small() -> SentData:
    return SentData(tuple(small_data()), Provenance("seeded", "a small stimulus", 1), "0" * 64)


def test_the_committed_points_are_a_full_stimulus() -> None:
    """Every gradient has its scalars and a histogram on each grid at each step (FID-5, FID-6)."""
    data = load_fixture()
    assert data.shortfall() is None
    scalars = [point for point in data.points if isinstance(point, ScalarPoint)]
    assert {point.step for point in scalars} == set(STEPS)
    assert len({point.tag.split("/", 2)[2] for point in scalars}) == PARAMETER_TENSORS
    per_grid = Counter(grid_of(point) for point in data.points if isinstance(point, HistogramPoint))
    assert per_grid == dict.fromkeys(GRIDS, PARAMETER_TENSORS * len(STEPS))
    assert all(sum(p.counts) == p.summary["num"] for p in data.points if isinstance(p, HistogramPoint))


def test_points_survive_the_fixture_bit_for_bit(tmp_path: Path) -> None:
    """What is saved is what is loaded (FID-6)."""
    path = tmp_path / "sent.json.xz"
    save_fixture(_small(), path)
    assert load_fixture(path) == _small()
    assert [file.name for file in tmp_path.iterdir()] == ["sent.json.xz"]


def test_one_altered_number_breaks_the_digest(tmp_path: Path) -> None:
    """A fixture whose points do not match its digest is refused (FID-6)."""
    path = tmp_path / "sent.json.xz"
    save_fixture(_small(), path)
    document = json.loads(lzma.decompress(path.read_bytes()))
    document["points"][0][3] += 1e-9
    path.write_bytes(lzma.compress(json.dumps(document).encode()))
    with pytest.raises(Refusal) as caught:
        load_fixture(path)
    assert caught.value.code == "fidelity_fixture_invalid"


@pytest.mark.parametrize("content", [b"", b"no archive", lzma.compress(b"{}"), lzma.compress(b"[1]")])
def test_a_broken_fixture_is_refused(content: bytes, tmp_path: Path) -> None:
    """An empty, foreign or incomplete fixture is refused by name (FID-6)."""
    path = tmp_path / "sent.json.xz"
    path.write_bytes(content)
    with pytest.raises(Refusal) as caught:
        load_fixture(path)
    assert caught.value.code == "fidelity_fixture_invalid"


def test_every_part_of_a_point_moves_the_digest() -> None:
    """Tag, step, value, count, edge and summary all count (FID-6)."""
    edges = (0.0, 1.0, 2.0)
    scalar, histogram = ScalarPoint("a", 1, 2.0), HistogramPoint("a", 1, (1, 2), edges, {"num": 3})
    points = [
        scalar,
        ScalarPoint("b", 1, 2.0),
        ScalarPoint("a", 2, 2.0),
        ScalarPoint("a", 1, -0.0),
        ScalarPoint("a", 1, 0.0),
        histogram,
        HistogramPoint("a", 1, (2, 1), edges, {"num": 3}),
        HistogramPoint("a", 1, (1, 2), (0.0, 1.5, 2.0), {"num": 3}),
        HistogramPoint("a", 1, (1, 2), edges, {"num": 4}),
    ]
    assert len({points_digest([point]) for point in points}) == len(points)
    assert points_digest([scalar, histogram]) != points_digest([histogram, scalar])


def test_uniform_edges_are_those_that_numpy_counts_over() -> None:
    """The edges that are sent are the edges that were counted over (FID-5)."""
    numpy = pytest.importorskip("numpy")
    for buckets in UNIFORM_BUCKETS.values():
        for low, high in ((-0.0636, 0.0555), (1e-9, 3e-9), (-1.0, 1.0)):
            assert uniform_edges(low, high, buckets) == tuple(numpy.linspace(low, high, buckets + 1).tolist())


def test_the_log_grids_have_the_sizes_of_their_names() -> None:
    """497 and 513 buckets (FID-5, GRID-1)."""
    assert {name: descriptor.bucket_count for name, descriptor in LOG_DESCRIPTORS.items()} == {
        "signed-log2-497": 497,
        "signed-log2-513": 513,
    }


def test_what_was_rebuilt_vouches_for_the_committed_points() -> None:
    """Rebuilt points give way to the committed ones, so that every machine sends the same (FID-6)."""
    fixture = _small()
    first = fixture.points[0]
    assert isinstance(first, ScalarPoint)
    moved = ScalarPoint(first.tag, first.step, math.nextafter(float(first.value), math.inf))
    rebuilt = replace(fixture, points=(moved, *fixture.points[1:]))
    sent, note = committed_points(rebuilt, fixture)
    assert sent is fixture
    assert note is not None and "the counts of 0 histograms" in note
    assert committed_points(fixture, fixture) == (fixture, None)
    elsewhere = replace(fixture, points=fixture.points[1:], tensor_digest="1" * 64)
    sent, note = committed_points(elsewhere, fixture)
    assert sent is fixture and note is not None and "differs in the counts of" in note


def test_the_same_tensors_must_give_the_same_points() -> None:
    """When the fixture's own tensors give other counts, or numbers that are off, the run is refused (FID-6)."""
    fixture = _small()
    index = next(i for i, point in enumerate(fixture.points) if isinstance(point, HistogramPoint))
    histogram, scalar = fixture.points[index], fixture.points[0]
    assert isinstance(histogram, HistogramPoint) and isinstance(scalar, ScalarPoint)
    other_counts = replace(histogram, counts=(histogram.counts[0] + 1, *histogram.counts[1:]))
    for number, wrong in ((index, other_counts), (0, replace(scalar, value=scalar.value * 1.001 + 1e-3))):
        points = [*fixture.points]
        points[number] = wrong
        with pytest.raises(Refusal) as caught:
            committed_points(replace(fixture, points=tuple(points)), fixture)
        assert caught.value.code == "fidelity_fixture_invalid"


def test_another_source_sends_its_own_points() -> None:
    """Another seed or a checkpoint is another measurement, with its own points and digest (FID-4, FID-6)."""
    fixture = _small()
    for provenance in (Provenance("seeded", "a small stimulus", 2), Provenance("checkpoint", "a folder", 1)):
        other = replace(fixture, provenance=provenance, points=fixture.points[1:])
        assert committed_points(other, fixture) == (other, None)
