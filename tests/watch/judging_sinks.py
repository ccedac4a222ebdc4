"""Sinks that judge what they are asked to carry."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

import torchlens_conformance.trackers as trk  # noqa: E402


class NoHistograms(trk.MemorySink):  # type: ignore[misc, unused-ignore]
    """A sink without raw histograms."""

    def capabilities(self) -> frozenset[str]:
        """Return scalars and texts."""
        return frozenset({"scalar", "text_manifest"})


class Judge(trk.MemorySink):  # type: ignore[misc, unused-ignore]
    """A sink that refuses grids, or tags, in its preflight."""

    def __init__(self, *, grids: bool = False, tags: bool = False) -> None:
        super().__init__()
        self._grids, self._tags = grids, tags

    def preflight_histograms(self, descriptor: trk.GridDescriptor) -> None:
        """Refuse any grid when asked to."""
        if self._grids:
            raise trk.Refusal("tracker_relay_histogram_unsupported", "A relay.", remedy="Use the native sink.")

    def preflight_tags(self, tags: Any) -> None:
        """Refuse any tags when asked to."""
        if self._tags:
            raise trk.Refusal("tracker_tag_unsafe", "Too long.", remedy="Rename.", tag=next(iter(tags)))


class Capped(trk.MemorySink):  # type: ignore[misc, unused-ignore]
    """A sink with wandb's cap of 512 buckets and the grid that it offers."""

    def preflight_histograms(self, descriptor: trk.GridDescriptor) -> None:
        """Refuse more than 512 buckets."""
        if descriptor.bucket_count > 512:
            raise trk.Refusal("tracker_histogram_bucket_cap", "Too many.", remedy="Use fewer buckets.")

    def default_histogram_descriptor(self) -> trk.GridDescriptor:
        """Offer 497 buckets."""
        return trk.WANDB_SAFE_DESCRIPTOR
