"""Defects of what a sink says of itself and of how it refuses (PROT-1, PROT-2, PROT-7, PROT-9)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torchlens_conformance.protocol import CAPABILITY_METHODS, GridDescriptor, ImagePoint, Point, Refusal

from .base import Defect, PlainSink, planted


class UnknownWord(PlainSink):
    """A word outside the closed list is advertised."""

    def capabilities(self) -> frozenset[str]:
        """Add a word of its own."""
        return super().capabilities() | {"video"}


class WordsAsText(PlainSink):
    """The capability words come as one text."""

    def capabilities(self) -> Any:
        """Join the words."""
        return " ".join(CAPABILITY_METHODS)


class LacksMethod(PlainSink):
    """A capability is advertised whose method is missing."""

    emit_image: Any = None


class CannotDoWhatItSays(PlainSink):
    """A capability is advertised that the method then refuses to carry out."""

    def emit_image(self, point: ImagePoint) -> None:
        """Carry no image."""
        raise Refusal(
            "tracker_sink_capability_missing",
            "This sink carries no images.",
            remedy="Ask for another capability.",
            capability="image",
        )


class DropsWhatItSays(PlainSink):
    """A capability is advertised whose points are dropped."""

    def emit_image(self, point: ImagePoint) -> None:
        """Keep no image."""


class RefusesWithoutCode(PlainSink):
    """What is refused is refused without a code."""

    def require_usable(self) -> None:
        """Raise a plain error."""
        try:
            super().require_usable()
        except Refusal as refusal:
            raise RuntimeError(refusal.message) from None


class RefusesWithoutRemedy(PlainSink):
    """What is refused is refused without a way out."""

    def require_usable(self) -> None:
        """Take the remedy out of the refusal."""
        try:
            super().require_usable()
        except Refusal as refusal:
            raise Refusal(refusal.code, refusal.message, remedy="", **refusal.fields) from None


class PreflightWithoutCode(PlainSink):
    """A grid is refused at the preflight without a code."""

    def preflight_histograms(self, descriptor: GridDescriptor) -> None:
        """Refuse every grid."""
        raise ValueError("no grid suits this sink")


class PreflightWithoutEffect(PlainSink):
    """A preflight passes tags that are refused when they come."""

    def preflight_tags(self, tags: Iterable[str]) -> None:
        """Pass every tag."""

    def emit(self, point: Point) -> None:
        """Refuse tags with a space."""
        tag = getattr(point, "tag", "")
        if " " in tag:
            raise Refusal(
                "tracker_tag_unsafe", f"The tag {tag!r} has a space.", remedy="Use a tag without spaces.", tag=tag
            )
        super().emit(point)


SURFACE_DEFECTS: tuple[Defect, ...] = (
    planted("unknown-word", "surface.words", sink=UnknownWord),
    planted("words-as-text", "surface.words", sink=WordsAsText),
    planted("advertises-what-it-lacks", "surface.methods", sink=LacksMethod),
    planted("lacks-what-it-advertises", "values.image", sink=CannotDoWhatItSays),
    planted("drops-what-it-advertises", "values.image", sink=DropsWhatItSays),
    planted("refuses-without-code", "surface.refuses-typed", sink=RefusesWithoutCode),
    planted("refuses-without-remedy", "surface.refuses-typed", sink=RefusesWithoutRemedy),
    planted("preflight-without-code", "surface.preflight", sink=PreflightWithoutCode),
    planted("preflight-without-effect", "surface.preflight", sink=PreflightWithoutEffect),
)
"""Sinks that say what is not so, or refuse in a way that nobody can act on."""
