"""Which received item stands for which sent one, over all series of one kind (FID-1)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from torchlens_conformance.protocol.compare import align_series


@dataclass(slots=True)
class Series:
    """Sent and received items of one kind, matched series by series.

    Args:
        sent: Items that were sent.
        pairs: (sent, received) that stand for each other.
        missing: Sent items that nothing stands for.
        extra: Received items that stand for nothing, among the tags that were sent.
    """

    sent: int = 0
    pairs: list[tuple[Any, Any]] = field(default_factory=list)
    missing: list[Any] = field(default_factory=list)
    extra: list[Any] = field(default_factory=list)


StoredTag: TypeAlias = Callable[[str, str], str]
"""From a sent tag and its capability word to the name under which the store keeps it."""


def same_tag(tag: str, capability: str) -> str:
    """Return the tag: a store that renames nothing."""
    return tag


def match(
    sent: Sequence[Any], received: Iterable[Any], key: Callable[[Any], Any], stored_tag: StoredTag = same_tag
) -> Series:
    """Match items by tag, then within each tag as :func:`align_series` does.

    Args:
        sent: Points, in sending order.
        received: Received items of the same kind, in stored order.
        key: What tells items of one series apart beside the step.
        stored_tag: Under which name the store keeps a sent tag.
    """
    by_tag: dict[str, list[Any]] = {}
    for item in received:
        by_tag.setdefault(item.tag, []).append(item)
    groups: dict[str, list[Any]] = {}
    for point in sent:
        groups.setdefault(stored_tag(point.tag, point.capability), []).append(point)
    series = Series(len(sent))
    for tag, points in groups.items():
        found = by_tag.get(tag, [])
        alignment = align_series(
            [point.step for point in points],
            [item.step for item in found],
            sent_keys=[key(point) for point in points],
            received_keys=[key(item) for item in found],
        )
        series.pairs.extend((points[here], found[there]) for here, there in alignment.pairs)
        series.missing.extend(points[index] for index in alignment.missing)
        series.extra.extend(found[index] for index in alignment.extra)
    return series
