"""What ClearML's TensorBoard relay does to a tag, and the way back where there is one (FID-1).

ClearMLSink cuts a tag at its last slash and changes nothing, so that metric and variant give it back
(:mod:`reference_sinks.clearml_names`). The relay is another matter.

The relay cuts a tag at its slashes into a metric and a variant, and joins the components of each with ``_``. That is
not reversible: ``a/b/c`` and ``a_b/c`` are one series afterwards, both the metric ``a_b`` with the variant ``c``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from ..clearml_names import tag_of

TEXT_SUFFIX = "text_summary"
"""The component that torch appends to the tag of a text, before the relay sees it."""


def relayed_name(tag: str, capability: str) -> tuple[str, str]:
    """Return the metric and the variant under which the relay stores ``tag``, with its default settings.

    The last component is the variant, the others, joined with ``_``, are the metric; of a text, up to three last
    components are the variant, joined with ``_``, and one of them is torch's suffix. Without a metric it is the tag
    itself (scalars), ``Histograms`` or ``Text``. A second writer that sends the same tag gets a variant of its own with
    a piece of its log folder in it, which is not foreseen here.

    Args:
        tag: What was sent.
        capability: ``scalar``, ``raw_histogram`` or ``text_manifest``.

    Raises ``KeyError`` for another capability. Clause: FID-1.
    """
    default = {"scalar": tag, "raw_histogram": "Histograms", "text_manifest": "Text"}[capability]
    parts, last = tag.split("/"), 1
    if capability == "text_manifest":
        parts.append(TEXT_SUFFIX)
        last = min(3, len(parts) - 1)
    return "_".join(parts[:-last]) or default, "_".join(parts[-last:])


def relayed_tag(tag: str, capability: str) -> str:
    """Return the tag that the reader gives, without known tags, to what the relay stored for ``tag``.

    It is ``metric/variant`` of :func:`relayed_name`, without torch's suffix where that is a text's. Clause: FID-1.
    """
    return TagReader((), Counter()).tag(*relayed_name(tag, capability), capability)


class TagReader:
    """Turn stored names into tags.

    Args:
        known_tags: Tags that may have been sent.
        notes: Counts what had to be inferred.
    """

    def __init__(self, known_tags: Iterable[str], notes: Counter[str]) -> None:
        self._notes = notes
        self._sent: dict[tuple[str, tuple[str, str]], set[str]] = {}
        for tag in known_tags:
            for capability in ("scalar", "raw_histogram", "text_manifest"):
                self._sent.setdefault((capability, relayed_name(tag, capability)), set()).add(tag)

    def tag(self, metric: str, variant: str, capability: str) -> str:
        """Return the one known tag that is stored under this name, else the name as it is stored."""
        sent = self._sent.get((capability, (metric, variant)), ())
        if len(sent) == 1:
            self._notes["names turned back into the one known tag that is stored under them"] += 1
            return next(iter(sent))
        if sent:
            self._notes["names left as they are, since several known tags are stored under them"] += 1
        if capability != "text_manifest":
            return tag_of(metric, variant)
        return self._text_tag(metric, variant)

    def _text_tag(self, metric: str, variant: str) -> str:
        if variant != TEXT_SUFFIX and not variant.endswith(f"_{TEXT_SUFFIX}"):
            return f"{metric}/{variant}"
        self._notes[f"text tags whose suffix {TEXT_SUFFIX} was removed"] += 1
        return metric if variant == TEXT_SUFFIX else f"{metric}/{variant[: -len(TEXT_SUFFIX) - 1]}"
