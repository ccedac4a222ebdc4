"""The one pins file: which versions the committed table speaks about (FID-3)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from torchlens_conformance.protocol import Refusal

MEASURED_SECTIONS = ("trackers", "runtime")
"""The sections of the pins file whose versions bear on a measurement."""

_SECTION = re.compile(r"^# \[(\w+)\]")
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;#]+)")
_RESULT = re.compile(r"#\s*result\b\s*(.*)$")
_DIGEST = re.compile(r"^sha256:([0-9a-f]{64})$")
_FORMAT_LINE = re.compile(r"^# format: (\S+)")

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


def pins_path() -> Path:
    """Return the pins file: beside the package in a wheel, at the top of a checkout."""
    here = Path(__file__).parent
    packaged = here / "pins.txt"
    return packaged if packaged.is_file() else here.parent / "pins.txt"


def pinned_versions() -> Mapping[str, str]:
    """Return the pinned version of each distribution that bears on a measurement, by name. Clause: FID-3."""
    pins: dict[str, str] = {}
    section = ""
    for line in pins_path().read_text(encoding="utf-8").splitlines():
        if header := _SECTION.match(line):
            section = header[1]
        elif (pin := _PIN.match(line)) and section in MEASURED_SECTIONS:
            pins[pin[1]] = pin[2]
    return pins


def installed_version(distribution: str) -> str | None:
    """Return the version that the installed package reports, or None."""
    try:
        return version(distribution)
    except PackageNotFoundError:
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


def read_pins(path: Path | None = None) -> list[Pin]:
    """Return every exact pin of a constraints file, in its order.

    Args:
        path: The file; None for the project's own. Any requirements or constraints file will do: lines that pin no
            exact version are passed over.

    Raises ``fidelity_pins_invalid``.
    """
    place = path or pins_path()
    try:
        lines = place.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise _invalid(place, str(error)) from error
    pins = []
    for number, line in enumerate(lines, start=1):
        header = _FORMAT_LINE.match(line)
        if header and header[1] != FORMAT:
            raise _invalid(place, f"its format is {header[1]}, not {FORMAT}")
        if pin := _PIN.match(line):
            noted = _RESULT.search(line)
            digest = _DIGEST.match(noted[1].strip()) if noted else None
            if noted and digest is None:
                raise _invalid(place, f"line {number} has a result that is no SHA-256")
            pins.append(Pin(pin[1], pin[2], digest[1] if digest else None))
    return pins


def pins_document(pins: Iterable[Pin]) -> dict[str, object]:
    """Return pins for programs; the document validates against ``schemas/pins.schema.json``."""
    return {"schema": FORMAT, "pins": [asdict(pin) for pin in pins]}


def pinned_text(text: str, pins: Iterable[Pin]) -> str:
    """Return the text of a pins file with the lines of ``pins`` renewed; new ones go behind the trackers, or last."""
    lines = text.splitlines()
    for pin in pins:
        places = [n for n, line in enumerate(lines) if (found := _PIN.match(line)) and found[1] == pin.distribution]
        if places:
            lines[places[0]] = pin.line()
            continue
        headers = [n for n, line in enumerate(lines) if (found := _SECTION.match(line)) and found[1] == "trackers"]
        end = headers[0] + 1 if headers else len(lines)
        while headers and end < len(lines) and _PIN.match(lines[end]):
            end += 1
        lines.insert(end, pin.line())
    return "\n".join(lines) + "\n"


def _invalid(path: Path, reason: str) -> Refusal:
    return Refusal(
        "fidelity_pins_invalid",
        f"The pins cannot be read: {reason}.",
        remedy="Name a constraints file with lines such as `wandb==0.30.0  # result sha256:...`, or make them with "
        "`torchlens-conformance fidelity pins update`.",
        path=str(path),
    )
