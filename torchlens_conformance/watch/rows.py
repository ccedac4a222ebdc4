"""Tags and points of a session (TAG-1, TAG-2, TAG-5, STAT-1..5)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter

from ..protocol.points import HistogramPoint, ScalarPoint
from ..protocol.tags import (
    NONFINITE_KINDS,
    STATISTICS,
    check_tag,
    histogram_tag,
    meta_tag,
    nonfinite_tag,
    overflow_tag,
    require_safe_tag,
    run_tag,
    scalar_tag,
)
from ..statistics import TensorStatistics

EXTRA_STATISTICS = {"updates": ("ratio",), "activations": ("calls",), "activation_grads": ("calls",)}
"""Statistics that a family has beside the common ones."""

RUN_KEYS = (
    "attached",
    "last_step",
    "disabled",
    "segment",
    "amp_scale",
    "amp_unscale_derived",
    "closure_evaluations",
    "op_grain_overhead_median_x",
)
"""The run-health series."""

META_KINDS = ("manifest", "amp_unscaled", "op_grain_calibration")
"""The texts about a run."""


@dataclass(frozen=True, slots=True)
class SiteTags:
    """The tags of one site in one family; those of ``scalars`` in the order of the statistics."""

    scalars: tuple[str, ...]
    extra: dict[str, str]
    histogram: str
    nonfinite: tuple[tuple[str, str], ...]
    overflow: str

    def all(self) -> Iterator[str]:
        """Yield every tag that the site can emit."""
        yield from self.scalars
        yield from self.extra.values()
        yield self.histogram
        yield from (tag for _, tag in self.nonfinite)
        yield self.overflow


class TagBook:
    """Builds the tags of a session once.

    Args:
        name: The session's ``name=``.
        namespace: Its ``namespace=``.

    Raises ``tracker_name_invalid``. Clause: TAG-1, TAG-2, TAG-5.
    """

    def __init__(self, *, name: str | None, namespace: str | None) -> None:
        self._name = name
        self._namespace = namespace
        self._sites: dict[tuple[str, str], SiteTags] = {}
        self.run = {key: run_tag(key, name=name, namespace=namespace) for key in RUN_KEYS}
        self.meta = {kind: meta_tag(kind, name=name, namespace=namespace) for kind in META_KINDS}

    def check(self, check: str) -> str:
        """Return the tag of a check row."""
        return check_tag(check, name=self._name, namespace=self._namespace)

    def site(self, family: str, leaf: str) -> SiteTags:
        """Return the tags of one site in one family."""
        known = self._sites.get((family, leaf))
        if known is None:
            known = self._sites[family, leaf] = self._build(family, leaf)
        return known

    def knows(self, family: str, leaf: str) -> bool:
        """Return whether the tags of the site were built, and so checked at attach."""
        return (family, leaf) in self._sites

    def require_safe(self) -> list[str]:
        """Return every tag that the session can emit; refuse ``tracker_tag_unsafe``, naming the site. Clause: TAG-3."""
        tags = [*self.run.values(), *self.meta.values()]
        for (_, leaf), site in self._sites.items():
            tags += [require_safe_tag(tag, site=leaf) for tag in site.all()]
        return tags

    def _build(self, family: str, leaf: str) -> SiteTags:
        names = {"name": self._name, "namespace": self._namespace}
        return SiteTags(
            tuple(scalar_tag(family, word, leaf, **names) for word in STATISTICS),
            {word: scalar_tag(family, word, leaf, **names) for word in EXTRA_STATISTICS.get(family, ())},
            histogram_tag(family, leaf, **names),
            tuple((kind, nonfinite_tag(family, kind, leaf, **names)) for kind in NONFINITE_KINDS),
            overflow_tag(family, leaf, **names),
        )


_ATTRIBUTES = {"min": "minimum", "max": "maximum", "count": "finite"}

_values_of = attrgetter(*(_ATTRIBUTES.get(word, word) for word in STATISTICS))


def site_points(
    statistics: TensorStatistics, tags: SiteTags, step: int, extra: dict[str, float]
) -> Iterator[ScalarPoint | HistogramPoint]:
    """Yield the points of one site at one step, in the order of the statistics, the histogram last.

    What does not exist (the mean of nothing) is left out. Clause: STAT-1, STAT-2, STAT-3, GRID-2.
    """
    for tag, value in zip(tags.scalars, _values_of(statistics)):
        if value is not None:
            yield ScalarPoint(tag, step, value)
    for word, value in extra.items():
        yield ScalarPoint(tags.extra[word], step, value)
    if statistics.nonfinite:
        for kind, tag in tags.nonfinite:
            yield ScalarPoint(tag, step, getattr(statistics, kind))
    if statistics.overflow:
        yield ScalarPoint(tags.overflow, step, statistics.overflow)
    if statistics.counts is not None and statistics.descriptor is not None:
        yield HistogramPoint(tags.histogram, step, statistics.counts, statistics.descriptor.edges, statistics.summary)
