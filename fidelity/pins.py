"""The one pins file: which versions the committed table speaks about (FID-3)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from packaging.utils import canonicalize_name

from torchlens_conformance.protocol import Refusal

from .pins_lines import RequirementLine, other_files, renewed, requirement_lines
from .versions.columns import version_key

MEASURED_SECTIONS = ("trackers", "runtime")
"""The sections of the pins file whose versions bear on a measurement."""

_SECTION = re.compile(r"^# \[(\w+)\]")
_FORMAT_LINE = re.compile(r"^\s*#\s*format:\s*(torchlens-conformance\.pins\S*)", re.MULTILINE)

FORMAT = "torchlens-conformance.pins.v1"
"""The name and version of the format: a pip constraints file in which a comment behind a pin holds a result digest."""


@dataclass(frozen=True, slots=True)
class Pin:
    """One line of a pins file.

    Args:
        distribution: The package's name, as it is written.
        version: The version that is pinned.
        result: SHA-256 (hex) of what was measured with it, or None.
    """

    distribution: str
    version: str
    result: str | None = None

    def line(self) -> str:
        """Return the line as it stands in the file."""
        return f"{self.distribution}=={self.version}{f'  # result sha256:{self.result}' if self.result else ''}"


@dataclass(frozen=True, slots=True)
class PinsFile:
    """What a constraints file says.

    Args:
        path: The file.
        text: Its text.
        lines: Its requirements, in their order.
    """

    path: Path
    text: str
    lines: Sequence[RequirementLine]

    def pins(self) -> list[Pin]:
        """Return every exact pin that holds on this machine, as it is written."""
        return [Pin(line.name, line.versions[0], line.result) for line in self.lines if line.holds and line.versions]

    def pin(self, distribution: str) -> Pin | None:
        """Return the pin of a distribution on this machine, or None.

        Raises ``fidelity_pins_invalid`` when two lines pin it to different versions or results.
        """
        own = [line for line in self.lines if line.names(distribution) and line.holds and line.versions]
        versions = {version_key(line.versions[0]) for line in own}
        results = {line.result for line in own if line.result}
        if len(versions) > 1 or len(results) > 1:
            numbers = ", ".join(str(line.first + 1) for line in own)
            raise Refusal(
                "fidelity_pins_invalid",
                f"The pins of {distribution} contradict each other (lines {numbers}).",
                remedy="Keep one of them, or give each a marker that holds on other machines.",
                path=str(self.path),
                pins=[line.wish for line in own],
            )
        return Pin(own[0].name, own[0].versions[0], next(iter(results), None)) if own else None

    def why_unpinned(self, distribution: str) -> str:
        """Say how a distribution stands in the file that has no exact pin here."""
        own = [line for line in self.lines if line.names(distribution)]
        here = [line for line in own if line.holds]
        if here:
            return f"It is not pinned exactly: line {here[0].first + 1} says {here[0].wish}."
        if own:
            return f"It is not pinned on this machine: the marker of line {own[0].first + 1} does not hold."
        others = ", ".join(map(str, other_files(self.text)))
        return f"It is not pinned{f'; the file named in line {others} is not read' if others else ''}."


def pins_path() -> Path:
    """Return the pins file: beside the package in a wheel, at the top of a checkout."""
    here = Path(__file__).parent
    packaged = here / "pins.txt"
    return packaged if packaged.is_file() else here.parent / "pins.txt"


def pinned_versions() -> Mapping[str, str]:
    """Return the pinned version of each distribution that bears on a measurement, by name. Clause: FID-3."""
    file = load_pins()
    sections = [found[1] if (found := _SECTION.match(line)) else "" for line in file.text.splitlines()]
    pins = {}
    for line in file.lines:
        above = next((name for name in reversed(sections[: line.first]) if name), "")
        if above in MEASURED_SECTIONS and line.holds and line.versions:
            pins[line.name] = line.versions[0]
    return pins


def installed_version(distribution: str) -> str | None:
    """Return the version that the installed package reports, or None."""
    try:
        return version(distribution)
    except (PackageNotFoundError, ValueError):
        # An empty name is no distribution's.
        return None


def version_differences() -> list[str]:
    """Say which pinned distributions are installed at another version, or not at all; local labels do not count."""
    differences = []
    for name, pinned in pinned_versions().items():
        installed = installed_version(name)
        if installed is None:
            differences.append(f"{name} {pinned} is not installed")
        elif installed.split("+")[0] != pinned:
            differences.append(f"{name} is {installed}, pinned {pinned}")
    return differences


def load_pins(path: Path | None = None) -> PinsFile:
    """Read a constraints file as pip reads it, but for the files that it names.

    Args:
        path: The file; None for the project's own. Any requirements or constraints file will do.

    Raises ``fidelity_pins_invalid``.
    """
    place = path or pins_path()
    try:
        # By bytes, so that the line ends are those of the file.
        text = place.read_bytes().decode("utf-8")
        return PinsFile(place, text, _lines(text))
    except (OSError, ValueError) as error:
        raise Refusal(
            "fidelity_pins_invalid",
            f"The pins cannot be read: {error}.",
            remedy="Name a constraints file with lines such as `wandb==0.30.0  # result sha256:...`, or make them with "
            "`torchlens-conformance fidelity pins update`.",
            path=str(place),
        ) from error


def read_pins(path: Path | None = None) -> list[Pin]:
    """Return every exact pin of a constraints file that holds on this machine. As :func:`load_pins`."""
    return load_pins(path).pins()


def pins_document(pins: Iterable[Pin]) -> dict[str, object]:
    """Return pins for programs; the document validates against ``schemas/pins.schema.json``."""
    return {"schema": FORMAT, "pins": [asdict(pin) for pin in pins]}


def tracker_named(name: str, known: Iterable[str]) -> str:
    """Return the tracker of ``known`` that has this name as PEP 503 compares names: ``comet-ml`` is ``comet_ml``.

    Raises ``fidelity_tracker_unknown``.
    """
    trackers = {canonicalize_name(tracker): tracker for tracker in known}
    found = trackers.get(canonicalize_name(name))
    if found is None:
        raise Refusal(
            "fidelity_tracker_unknown",
            f"No tracker is called {name!r}.",
            remedy=f"Use one of {', '.join(sorted(trackers.values(), key=str.lower))}.",
            tracker=name,
        )
    return found


def pinned_text(text: str, pins: Iterable[Pin]) -> str:
    """Return the text of a pins file with new versions and results in the lines of ``pins``.

    All else stays as it is. A new line goes behind the trackers, or last.

    Raises ``fidelity_pins_invalid`` when one line of text does not say it all: several lines of one distribution, one
    with digests of files, one that does not pin exactly, or does so on other machines.
    """
    found = requirement_lines(text)
    lines = text.splitlines(keepends=True)
    line_end = "\r\n" if lines and lines[0].endswith("\r\n") else "\n"
    new = []
    for pin in pins:
        own = [line for line in found if line.names(pin.distribution)]
        if not own:
            new.append(pin.line() + line_end)
            continue
        _refuse_what_one_line_cannot_say(pin.distribution, own)
        old = lines[own[0].first]
        bare = old.splitlines()[0]
        lines[own[0].first] = renewed(bare, pin.version, pin.result) + old[len(bare) :]
    place = _end_of_trackers(lines, found)
    if new and place:
        lines[place - 1] = _ended(lines[place - 1], line_end)
    return "".join([*lines[:place], *new, *lines[place:]])


def _refuse_what_one_line_cannot_say(distribution: str, own: Sequence[RequirementLine]) -> None:
    line = own[0]
    if len(own) > 1:
        reason = f"lines {', '.join(str(one.first + 1) for one in own)} all speak of it"
    elif line.obstacle:
        reason = f"line {line.first + 1} {line.obstacle}"
    elif not line.holds:
        reason = f"line {line.first + 1} is for other machines than this one"
    else:
        return
    raise Refusal(
        "fidelity_pins_invalid",
        f"The pin of {distribution} cannot be renewed: {reason}.",
        remedy=f"Make it one line such as `{distribution}==VERSION` without --hash, or keep these pins in a file of "
        "their own and name it with --pins.",
        tracker=distribution,
        lines=[one.first + 1 for one in own],
    )


def _end_of_trackers(lines: Sequence[str], found: Iterable[RequirementLine]) -> int:
    """The number of the line of text before which a new pin goes."""
    ends = {line.first: line.last + 1 for line in found}
    for number, line in enumerate(lines):
        if (header := _SECTION.match(line)) and header[1] == "trackers":
            place = number + 1
            while place in ends:
                place = ends[place]
            return place
    return len(lines)


def _ended(line: str, line_end: str) -> str:
    """The line, ended such that another one can follow it."""
    if line.rstrip("\r\n").endswith("\\"):
        return line.rstrip("\r\n") + 2 * line_end
    return line if line.endswith(("\n", "\r")) else line + line_end


def _lines(text: str) -> list[RequirementLine]:
    named = _FORMAT_LINE.search(text)
    if named and named[1] != FORMAT:
        raise ValueError(f"its format is {named[1]}, not {FORMAT}")
    return requirement_lines(text)
