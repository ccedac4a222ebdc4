"""The requirements of a constraints file, read as pip reads them, and one of them renewed (FID-3)."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

_COMMENT = re.compile(r"(^|\s+)#.*$")
_NOTE = re.compile(r"\s*#\s*result\b\s*(\S*)")
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")
_OTHER_FILE = re.compile(r"\s*(-r|-c|--requirement|--constraint)\b")
_EXACT = re.compile(r"(===?\s*)[^\s,;)]+")


@dataclass(frozen=True, slots=True)
class RequirementLine:
    """One requirement of a constraints file; it may stand on several lines of text.

    Args:
        first: Its first line of text, from 0.
        last: Its last one.
        name: The distribution, as it is written.
        wish: Name and versions, as a person would say them.
        versions: The exact versions that it pins: one, or none.
        obstacle: Why a new version cannot be put in the place of the old one, or None.
        holds: Whether its environment marker holds on this machine.
        result: The result digest (hex) of its comment, or None.
    """

    first: int
    last: int
    name: str
    wish: str
    versions: tuple[str, ...]
    obstacle: str | None
    holds: bool
    result: str | None

    def names(self, distribution: str) -> bool:
        """Return whether it is about ``distribution``; names are compared as PEP 503 says."""
        return canonicalize_name(self.name) == canonicalize_name(distribution)


def requirement_lines(text: str) -> list[RequirementLine]:
    """Return the requirements of a file in their order; options, paths and addresses are passed over.

    Raises ``ValueError``, which names the line, for what pip could not read either and for a result that is no digest.
    """
    found = []
    for first, last, line in _joined(text.removeprefix("\ufeff").splitlines()):
        tokens = _COMMENT.sub("", line).split()
        end = next((number for number, token in enumerate(tokens) if token.startswith("-")), len(tokens))
        if end == 0 or _is_place(tokens[0]):
            continue
        try:
            found.append(_requirement(first, last, line, " ".join(tokens[:end]), tokens[end:]))
        except ValueError as error:
            raise ValueError(f"line {first + 1}: {_first_line(error)}") from error
    return found


def other_files(text: str) -> list[int]:
    """Return the numbers, from 1, of the lines that name another file with ``-r`` or ``-c``."""
    return [number for number, line in enumerate(text.splitlines(), start=1) if _OTHER_FILE.match(line)]


def renewed(line: str, version: str, result: str | None) -> str:
    """Return a line of text that pins one version with ``version`` and ``result`` in it; all else stays as it is."""
    found = _COMMENT.search(line)
    start = found.start() if found else len(line)
    body, comment = line[:start], line[start:]
    head, semicolon, marker = body.partition(";")
    head = _EXACT.sub(lambda exact: f"{exact[1]}{version}", head, count=1)
    note = f"  # result sha256:{result}" if result else ""
    noted = _NOTE.search(comment)
    if noted is None:
        return f"{head}{semicolon}{marker}{comment}".rstrip() + note
    rest = comment[noted.end() :]
    # What follows our note without a sign of its own is a comment only as long as the note is there.
    sign = "  #" if not note and rest.strip() and not _COMMENT.match(rest) else ""
    return f"{head}{semicolon}{marker}{comment[: noted.start()]}{note}{sign}{rest}"


def _joined(lines: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    """Yield first number, last number and text of what a trailing backslash joins; a line of comment ends it."""
    first = 0
    parts: list[str] = []
    for number, line in enumerate(lines):
        first = first if parts else number
        goes_on = line.endswith("\\") and not _COMMENT.match(line)
        parts.append(line.rstrip("\\") if goes_on else line)
        if not goes_on:
            yield first, number, "".join(parts)
            parts = []
    if parts:
        yield first, len(lines) - 1, "".join(parts)


def _requirement(first: int, last: int, line: str, text: str, options: Sequence[str]) -> RequirementLine:
    wanted = Requirement(text)
    exact = [s.version for s in wanted.specifier if s.operator in ("==", "===") and not s.version.endswith(".*")]
    if len(exact) > 1:
        raise ValueError(f"{text!r} asks for several versions")
    return RequirementLine(
        first=first,
        last=last,
        name=wanted.name,
        # An address may hold a password.
        wish=f"{wanted.name} @ ..." if wanted.url else f"{wanted.name}{wanted.specifier}",
        versions=tuple(exact),
        obstacle=_obstacle(wanted, exact, options, several=first != last),
        holds=wanted.marker is None or wanted.marker.evaluate(),
        result=_result(line) if exact else None,
    )


def _obstacle(wanted: Requirement, exact: Sequence[str], options: Sequence[str], *, several: bool) -> str | None:
    if any(option.startswith("--hash") for option in options):
        return "holds digests of the old version's files (--hash)"
    if several:
        return "goes on over several lines"
    if not exact:
        return "pins no exact version"
    return "asks for more than an exact version" if len(wanted.specifier) > 1 else None


def _result(line: str) -> str | None:
    noted = _NOTE.search(line)
    if noted is None:
        return None
    digest = _DIGEST.fullmatch(noted[1])
    if digest is None:
        raise ValueError("its result is no SHA-256")
    return digest[1]


def _is_place(token: str) -> bool:
    return token.startswith(".") or "/" in token or "\\" in token


def _first_line(error: Exception) -> str:
    reason = str(error).splitlines()[0] if str(error) else type(error).__name__
    return f"this is no requirement ({reason})" if isinstance(error, InvalidRequirement) else reason
