"""Text that a store of UTF-8 strings can carry unchanged."""

from __future__ import annotations

from torchlens_conformance.protocol import Refusal


def is_encodable(text: str) -> bool:
    """Whether ``text`` has a UTF-8 form: it holds no lone surrogates."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def require_encodable_tag(tag: str, *, store: str) -> None:
    """Refuse ``tracker_tag_unsafe`` for a tag without a UTF-8 form. Clause: TAG-3, PROT-7."""
    if not is_encodable(tag):
        raise Refusal(
            "tracker_tag_unsafe",
            f"{store} stores tags as UTF-8, and this one has no UTF-8 form.",
            remedy="Remove the lone surrogates from the tag.",
            tag=ascii(tag),
            store=store,
        )


def require_encodable_text(text: str, *, tag: str, store: str) -> None:
    """Refuse ``tracker_value_unsupported`` for a text without a UTF-8 form. Clause: POINT-3."""
    if not is_encodable(text):
        raise Refusal(
            "tracker_value_unsupported",
            f"{store} stores text as UTF-8, and this one has no UTF-8 form.",
            remedy="Replace the lone surrogates before the text is emitted.",
            tag=tag,
            store=store,
        )
