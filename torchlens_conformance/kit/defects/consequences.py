"""Which checks fail on a planted defect beside those that it was planted for.

A sink that loses points at some rate loses them in every situation, and one that cannot be opened or read back answers
nothing; that is no second defect, and it is named here so that the kill matrix can be exact.
"""

from __future__ import annotations

from collections.abc import Mapping

_SHARING = (
    "isolation.two-sinks",
    "isolation.second-sink",
    "concurrency.fork",
    "concurrency.spawn",
    "concurrency.threads",
)
_SURVIVAL = (
    "survives.kill-between",
    "survives.kill-inside",
    "survives.full-disk",
)
_SCALE = (
    "scale.memory",
    "scale.cost",
)
_TEARDOWN = (
    "teardown.flush-before-close",
    "teardown.close-twice",
    "teardown.closed-refuses",
    "teardown.close-is-enough",
)
_READER = (
    "reader.fresh",
    "reader.sees-changes",
)
_DELIVERY = (
    "delivery.nothing-lost",
    "delivery.nothing-extra",
    "delivery.nothing-twice",
)
_PAYLOADS = (
    "values.histogram",
    "values.summary",
    "values.text",
    "values.image",
    "values.graph",
    "values.embedding",
    "values.event",
    "values.metadata",
)
_STREAM = (
    "values.scalar",
    "values.steps",
    "tags.unchanged",
    "order.kept",
    "points.not-aliased",
)

CONSEQUENCES: Mapping[str, tuple[str, ...]] = {
    "null": (
        *_SHARING,
        *_SURVIVAL,
        *_SCALE,
        *_TEARDOWN,
        *_READER,
        *_PAYLOADS,
        *_STREAM,
    ),
    "drops-last": (
        *_SHARING,
        *_SCALE,
        *_TEARDOWN,
        "tags.unchanged",
        "points.not-aliased",
    ),
    "drops-first": (
        *_SHARING,
        *_SURVIVAL,
        *_SCALE,
        *_TEARDOWN,
        "tags.unchanged",
        "points.not-aliased",
    ),
    "drops-every-tenth": (
        *_SHARING,
        *_SURVIVAL,
        *_SCALE,
        *_TEARDOWN,
        "tags.unchanged",
        "points.not-aliased",
    ),
    "duplicates": (
        *_SHARING,
        *_SURVIVAL,
        *_TEARDOWN,
        "points.not-aliased",
    ),
    "needs-flush": ("teardown.flush-before-close",),
    "flush-closes": (*_SCALE,),
    "flush-does-nothing": ("survives.kill-inside",),
    "reader-hangs": ("survives.kill-inside",),
    "words-as-text": ("surface.methods",),
    "advertises-what-it-lacks": (
        "surface.refuses-typed",
        "values.image",
        "teardown.flush-before-close",
        "teardown.closed-refuses",
        "survives.full-disk",
        "isolation.two-sinks",
        "isolation.second-sink",
        "concurrency.spawn",
        "concurrency.threads",
    ),
    "lacks-what-it-advertises": (
        "teardown.flush-before-close",
        "teardown.closed-refuses",
        "isolation.two-sinks",
        "concurrency.spawn",
        "concurrency.threads",
    ),
    "drops-what-it-advertises": (
        "delivery.nothing-lost",
        "teardown.closed-refuses",
    ),
    "refuses-without-code": ("teardown.closed-refuses",),
    "preflight-without-code": ("surface.refuses-typed",),
    "same-object": (
        *_SHARING,
        *_SURVIVAL,
        *_SCALE,
        *_TEARDOWN,
        *_PAYLOADS,
        *_STREAM,
        "delivery.nothing-lost",
        "reader.sees-changes",
    ),
    "canned-answer": (
        *_SHARING,
        *_SURVIVAL,
        *_SCALE,
        *_PAYLOADS,
        "values.steps",
        "tags.unchanged",
        "delivery.nothing-lost",
        "delivery.nothing-extra",
        "points.not-aliased",
        "teardown.close-twice",
        "teardown.closed-refuses",
        "reader.fresh",
    ),
    "reads-nothing": (
        *_SHARING,
        *_SURVIVAL,
        *_SCALE,
        *_TEARDOWN,
        *_PAYLOADS,
        *_STREAM,
        "delivery.nothing-lost",
        "reader.fresh",
    ),
    "reader-raises": (
        *_SHARING,
        *_SURVIVAL,
        *_SCALE,
        *_TEARDOWN,
        *_DELIVERY,
        *_PAYLOADS,
        *_STREAM,
        "reader.sees-changes",
    ),
    "flush-hangs": (
        *_SCALE,
        "survives.full-disk",
    ),
    "exits": (
        *_SHARING,
        *_SURVIVAL,
        *_TEARDOWN,
        *_READER,
        *_DELIVERY,
        *_STREAM,
        "surface.refuses-typed",
        "values.histogram",
        "values.summary",
        "values.text",
        "values.graph",
        "values.embedding",
        "values.event",
        "values.metadata",
        "points.unchanged",
        "survives.read-only",
    ),
    "cannot-open": (
        *_SHARING,
        *_SURVIVAL,
        *_SCALE,
        *_TEARDOWN,
        *_READER,
        *_DELIVERY,
        *_PAYLOADS,
        *_STREAM,
        "surface.methods",
        "surface.refuses-typed",
        "surface.preflight",
        "points.unchanged",
        "survives.read-only",
    ),
}
"""Ids of checks by id of defect; a defect that is not listed fails the checks it was planted for and no others."""
