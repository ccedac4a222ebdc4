"""What an installed package is: the version that it reports itself, and a digest of its files.

A measurement is worth what its label is worth: the version comes from the imported package, and two versions with equal
files cannot both be true.
"""

from __future__ import annotations

import base64
import hashlib
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, PackagePath, distribution
from pathlib import Path
from types import ModuleType


@dataclass(frozen=True, slots=True)
class FilesDigest:
    """The files of one installed distribution.

    Args:
        digest: SHA-256 (hex) over the path and SHA-256 of each file, sorted by path.
        files: How many files that were.
        altered: Files whose content is not what the installer noted; empty when contents were not read.
    """

    digest: str
    files: int
    altered: tuple[str, ...] = ()


def recorded_files(name: str) -> FilesDigest | None:
    """Return the digest of a distribution from what its installer noted, without reading the files themselves.

    What an installer adds or a version alone changes is left out (metadata folder, compiled files, scripts), so that
    equal code has an equal digest whatever it is called. None when the distribution is missing or notes no digests.
    """
    noted = {path: value for path, _, value in _files(name) if value is not None}
    return _digest(noted) if noted else None


def read_files(name: str) -> FilesDigest | None:
    """Return the digest of a distribution from the files' contents; equal to :func:`recorded_files` when none changed.

    None when the distribution is missing or has no files.
    """
    found: dict[str, str] = {}
    altered = []
    for path, place, noted in _files(name):
        if not place.is_file():
            altered.append(path)
            continue
        found[path] = _file_digest(place)
        if noted is not None and noted != found[path]:
            altered.append(path)
    return _digest(found, tuple(sorted(altered))) if found else None


def reported_version(name: str, modules: Mapping[str, ModuleType] | None = None) -> str | None:
    """Return the ``__version__`` of a distribution's package as it is imported, or None.

    Args:
        name: The distribution.
        modules: Imported modules by name; None for those of this process.
    """
    imported = sys.modules if modules is None else modules
    for package in _package_names(name):
        version = getattr(imported.get(package), "__version__", None)
        if isinstance(version, str):
            return version
    return None


def _package_names(name: str) -> list[str]:
    """The importable packages of a distribution, the one that is called like it first."""
    like = name.replace("-", "_")
    tops = {path.split("/")[0] for path, _, _ in _files(name) if path.endswith("/__init__.py")}
    return sorted(tops | {like}, key=lambda top: (top.lower() != like.lower(), top))


def _files(name: str) -> Iterator[tuple[str, Path, str | None]]:
    """Yield (path, place, noted digest) of each file that belongs to the package itself."""
    try:
        found: Distribution = distribution(name)
    except PackageNotFoundError:
        return
    for file in found.files or ():
        path = file.as_posix()
        if not _is_installers(file):
            noted = file.hash.value if file.hash is not None and file.hash.mode == "sha256" else None
            yield path, Path(str(found.locate_file(file))), noted


def _is_installers(file: PackagePath) -> bool:
    parts = file.parts
    return (
        parts[0] == ".."
        or file.suffix == ".pyc"
        or parts[0].endswith((".dist-info", ".egg-info"))
        or file.is_absolute()
    )


def _file_digest(place: Path) -> str:
    digest = hashlib.sha256()
    with place.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return base64.urlsafe_b64encode(digest.digest()).rstrip(b"=").decode()


def _digest(files: Mapping[str, str], altered: tuple[str, ...] = ()) -> FilesDigest:
    lines = "".join(f"{path}\t{value}\n" for path, value in sorted(files.items()))
    return FilesDigest(hashlib.sha256(lines.encode()).hexdigest(), len(files), altered)
