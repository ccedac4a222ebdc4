"""The one pins file: which versions the committed table speaks about (FID-3)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;#]+)")


def pins_path() -> Path:
    """Return the pins file: beside the package in a wheel, at the top of a checkout."""
    here = Path(__file__).parent
    packaged = here / "pins.txt"
    return packaged if packaged.is_file() else here.parent / "pins.txt"


def pinned_versions() -> Mapping[str, str]:
    """Return the pinned version of each distribution by name."""
    lines = pins_path().read_text(encoding="utf-8").splitlines()
    return {match[1]: match[2] for line in lines if (match := _PIN.match(line.strip()))}


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
