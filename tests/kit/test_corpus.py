"""The corpus holds what the clauses name, the same for the same nonce."""

from __future__ import annotations

from math import copysign, inf, isnan

from torchlens_conformance.kit.checks.showing import point_key
from torchlens_conformance.kit.corpus import corpus, odd_tags, ordinary_points
from torchlens_conformance.protocol import CAPABILITY_METHODS, GraphPoint, HistogramPoint, ScalarPoint, TextPoint

SMALL = [entry.point for entry in corpus("ncorpus")]
FULL = [entry.point for entry in corpus("ncorpus", "full")]


def test_every_capability_has_ordinary_and_hard_points() -> None:
    """Each capability word has points that must be taken and points that may be refused (PROT-2)."""
    for ordinary in (True, False):
        words = {entry.point.capability for entry in corpus("ncorpus") if entry.ordinary is ordinary}
        assert words == set(CAPABILITY_METHODS)


def test_scalars_hold_the_hard_numbers() -> None:
    """Negative zero, subnormals, 1e300, 0.1, NaN, the infinities, integers beyond 2**53 are sent (POINT-3)."""
    values = [point.value for point in SMALL if isinstance(point, ScalarPoint)]
    for value in (5e-324, 1e300, 0.1, inf, -inf, 2**53 + 1):
        assert value in values
    assert any(isnan(value) for value in values)
    assert any(value == 0 and copysign(1, value) < 0 for value in values)


def test_steps_reach_the_largest() -> None:
    """Steps 0, 1, 2**31 and 2**63-1 are sent, and steps never fall (POINT-3)."""
    steps = [point.step for point in SMALL if isinstance(point, ScalarPoint)]
    assert {0, 1, 2**31, 2**63 - 1} <= set(steps)
    assert steps == sorted(steps)


def test_steps_never_fall_across_kinds() -> None:
    """In the whole stream no step is smaller than one before it, whatever the kind (STEP-2, WANDB-1)."""
    for points in (SMALL, FULL, list(ordinary_points("ncorpus"))):
        steps = [point.step for point in points if not isinstance(point, GraphPoint)]
        assert steps == sorted(steps)
    # Kinds are interleaved all the same, and the first points are not all of one kind.
    assert len({type(point) for point in ordinary_points("ncorpus")[:16]}) >= 6


def test_histograms_have_all_sizes() -> None:
    """Histograms of 1, 64, 497, 513 and 2048 buckets, huge counts, empty counts, partial summaries (POINT-2)."""
    histograms = [point for point in SMALL if isinstance(point, HistogramPoint)]
    assert {1, 64, 497, 513, 2048} <= {len(point.counts) for point in histograms}
    assert any(max(point.counts) > 2**53 for point in histograms)
    assert any(not any(point.counts) for point in histograms)
    assert any(not point.summary for point in histograms) and any(0 < len(point.summary) < 5 for point in histograms)


def test_texts_are_empty_large_and_of_all_unicode() -> None:
    """Texts of no character, of 1 MB, and of every character that is no surrogate (POINT-1)."""
    texts = [point.text for point in FULL if isinstance(point, TextPoint)]
    assert "" in texts and max(map(len, texts)) == 2**20
    assert len(set().union(*texts)) == 0x110000 - 2048


def test_points_differ_and_repeat_for_a_nonce() -> None:
    """No two points are equal, one nonce gives one corpus, and the nonce stands in every tag (FID-1)."""
    assert len(set(map(point_key, FULL))) == len(FULL)
    assert [point_key(point) for point in SMALL] == [point_key(entry.point) for entry in corpus.__wrapped__("ncorpus")]
    assert all("ncorpus" in getattr(point, "tag", "ncorpus") for point in FULL)
    assert all("ncorpus" in tag for tag in odd_tags("ncorpus"))
