"""Statistics as emission points with the names of the tag grammar (STAT-1..3, TAG-1, TAG-5)."""

from __future__ import annotations

from ..protocol.points import HistogramPoint, ScalarPoint
from ..protocol.refusals import Refusal
from ..protocol.tags import NONFINITE_KINDS, histogram_tag, nonfinite_tag, overflow_tag, scalar_tag
from .result import TensorStatistics


def scalar_points(
    statistics: TensorStatistics,
    *,
    family: str,
    leaf: str,
    step: int,
    name: str | None = None,
    namespace: str | None = None,
) -> list[ScalarPoint]:
    """Return the scalars of one site at one step.

    ``[namespace/]family/[name/]statistic/leaf`` for mean, std, norm, min, max, count (of finite values) and
    zero_fraction, each as far as it exists: an empty or all-nonfinite tensor has no mean. When a non-finite value
    occurs, the three exact counts ``nonfinite/[name/]<family>_<nan|posinf|neginf>/leaf`` follow; when a finite value
    lies beyond the grid, ``family/[name/]overflow/leaf`` follows.

    Raises ``tracker_name_invalid`` and ``point_step_invalid``. Clause: STAT-1, STAT-2, STAT-3, TAG-1, TAG-2, TAG-5,
    GRID-2.
    """
    values: dict[str, int | float | None] = {
        "mean": statistics.mean,
        "std": statistics.std,
        "norm": statistics.norm,
        "min": statistics.minimum,
        "max": statistics.maximum,
        "count": statistics.finite,
        "zero_fraction": statistics.zero_fraction,
    }
    points = [
        ScalarPoint(scalar_tag(family, statistic, leaf, name=name, namespace=namespace), step, value)
        for statistic, value in values.items()
        if value is not None
    ]
    if statistics.nonfinite:
        for kind in NONFINITE_KINDS:
            tag = nonfinite_tag(family, kind, leaf, name=name, namespace=namespace)
            points.append(ScalarPoint(tag, step, getattr(statistics, kind)))
    if statistics.overflow:
        tag = overflow_tag(family, leaf, name=name, namespace=namespace)
        points.append(ScalarPoint(tag, step, statistics.overflow))
    return points


def histogram_point(
    statistics: TensorStatistics,
    *,
    family: str,
    leaf: str,
    step: int,
    name: str | None = None,
    namespace: str | None = None,
) -> HistogramPoint:
    """Return the histogram of one site at one step, ``[namespace/]family/[name/]hist/leaf``.

    Raises ``grid_invalid`` when the statistics were computed without a descriptor, ``tracker_name_invalid`` and
    ``point_step_invalid``. Clause: POINT-2, GRID-1, GRID-2, TAG-1, TAG-2.
    """
    if statistics.counts is None or statistics.descriptor is None:
        raise Refusal(
            "grid_invalid",
            "These statistics were computed without a grid, so there is no histogram.",
            remedy="Compute them with descriptor=.",
            leaf=leaf,
        )
    tag = histogram_tag(family, leaf, name=name, namespace=namespace)
    return HistogramPoint(tag, step, statistics.counts, statistics.descriptor.edges, statistics.summary)
