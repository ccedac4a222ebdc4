"""What can be wrong with a file of framed records."""

from __future__ import annotations


class Damage(Exception):
    """A record that cannot be read.

    Args:
        kind: ``foreign`` (not this format at all), ``truncated`` (the file ends inside a record) or ``corrupt``.
        offset: Where the record starts, in bytes from the start of the file.
        detail: What does not fit.
    """

    def __init__(self, kind: str, offset: int, detail: str) -> None:
        super().__init__(f"{detail} at byte {offset}")
        self.kind = kind
        self.offset = offset
        self.detail = detail
