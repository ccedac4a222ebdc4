"""The one pins file: which versions the committed table speaks about (FID-3)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

MEASURED_SECTIONS = ("trackers", "runtime")
"""The sections of the pins file whose versions bear on a measurement."""

_SECTION = re.compile(r"^# \[(\w+)\]")
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;#]+)")


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
