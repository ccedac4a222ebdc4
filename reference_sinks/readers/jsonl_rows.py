"""The rows of a JSONL file one after the other, and what is wrong with its tail (JSONL-1..3)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from json import JSONDecoder
from typing import Any, NamedTuple

from torchlens_conformance.protocol import NONFINITE_ENCODING

from ..jsonl_rows import FORMAT, FORMAT_FAMILY, VERSION
from .damage import Damage

_HEADER_START = f'{{"format":"{FORMAT_FAMILY}'.encode()


class LaterVersion(Exception):
    """A header of a version that this release cannot read; ``args[0]`` is what it says."""


class Row(NamedTuple):
    """One row of a file.

    Args:
        number: Counted from 1, as lines are.
        offset: Where it starts, in bytes from the start of the file.
        content: The JSON object.
        header: Whether it opens a segment.
    """

    number: int
    offset: int
    content: dict[str, Any]
    header: bool


class RowScan:
    """Iterate over the whole rows of a file, reading each line once.

    A row counts as whole when it ends with a newline, since its writer writes both at once. Empty lines, and a
    carriage return before the newline, are passed over. The last row may be damaged; it is then not yielded.

    Args:
        lines: The lines of a file opened in binary mode, newlines kept. A file that grows meanwhile is read up to
            the first line without a newline.

    Attributes:
        torn: None, or what is wrong with the last row, once the iteration has ended.
        end: Where the last whole row ends, in bytes.
        number: The row that was looked at last; the damaged one, when something is raised.
        empty_lines: How many lines held nothing.
        carriage_returns: Whether a line ended with one.

    Iterating raises :class:`~reference_sinks.readers.damage.Damage`: ``foreign`` when the first row is no header,
    ``truncated`` when the header itself is cut, ``corrupt`` (with the row's number in the detail) for a damaged row
    that is not the last, and for a row behind a footer; and :class:`LaterVersion`.
    """

    def __init__(self, lines: Iterable[bytes]) -> None:
        self._lines = lines
        self._decoder = _LENIENT
        self.torn: Damage | None = None
        self.end = 0
        self.number = 0
        self.empty_lines = 0
        self.carriage_returns = False

    def __iter__(self) -> Iterator[Row]:
        started = footer = False
        for number, offset, line in self._filled_lines():
            if self.torn is not None:
                raise Damage("corrupt", self.torn.offset, self.torn.detail)
            self.number = number
            content = self._parse(line, number, offset, started=started)
            if content is None:
                continue
            header = not started or _names_format(content)
            if header:
                self._open_segment(content, number, offset, started=started)
            elif footer:
                raise Damage("corrupt", offset, f"row {number} stands behind the end of its segment")
            started, footer = True, content.get("kind") == "closed"
            self.end = offset + len(line)
            yield Row(number, offset, content, header)

    def _filled_lines(self) -> Iterator[tuple[int, int, bytes]]:
        offset = 0
        for number, line in enumerate(self._lines, 1):
            if not line.isspace():
                self.carriage_returns |= line.endswith(b"\r\n")
                yield number, offset, line
                if not line.endswith(b"\n"):
                    return
            else:
                self.empty_lines += 1
            offset += len(line)

    def _parse(self, line: bytes, number: int, offset: int, *, started: bool) -> dict[str, Any] | None:
        """Return the object of a line; None (and ``torn`` set) when it is damaged."""
        content = None
        if not line.endswith(b"\n"):
            detail = f"row {number} is cut"
        else:
            try:
                content = self._decoder.decode(line.decode("utf-8"))
                detail = f"row {number} is no JSON object"
            except (ValueError, RecursionError) as error:
                detail = f"row {number} is not valid JSON ({_reason(error)})"
        if isinstance(content, dict):
            return content
        if not started:
            raise Damage("truncated" if _starts_like_header(line) else "foreign", offset, detail)
        self.torn = Damage("truncated", offset, detail)
        return None

    def _open_segment(self, content: dict[str, Any], number: int, offset: int, *, started: bool) -> None:
        name, version, nonfinite = (content.get(key) for key in ("format", "version", "nonfinite"))
        if not _names_format(content) or type(version) is not int:
            raise Damage("corrupt" if started else "foreign", offset, f"row {number} is no header of this format")
        if name != FORMAT or version != VERSION or nonfinite not in (None, NONFINITE_ENCODING):
            raise LaterVersion(f"{name}, version {version}, nonfinite {nonfinite}")
        # torchlens 2.36 has no such key and writes bare NaN tokens; whoever names an encoding must keep to it.
        self._decoder = _LENIENT if nonfinite is None else _STRICT


def _names_format(content: dict[str, Any]) -> bool:
    name = content.get("format")
    return isinstance(name, str) and name.startswith(FORMAT_FAMILY)


def _refuse_token(token: str) -> float:
    raise ValueError(f"the token {token}")


_LENIENT = JSONDecoder()
_STRICT = JSONDecoder(parse_constant=_refuse_token)


def _reason(error: Exception) -> str:
    return error.msg if isinstance(error, json.JSONDecodeError) else str(error).partition(":")[0]


def _starts_like_header(line: bytes) -> bool:
    compact = b"".join(line.split())
    return compact.startswith(_HEADER_START) or (bool(compact) and _HEADER_START.startswith(compact))
