"""What an installed package is: its own version, and a digest of its files that ignores what installers add."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType

import pytest

from fidelity.identity import read_files, recorded_files, reported_version


def _install(place: Path, name: str, *, version: str, code: str) -> None:
    """Lay a distribution into ``place`` as an installer does, with digests of its files."""
    import base64
    import hashlib

    package, info = place / name, place / f"{name}-{version}.dist-info"
    package.mkdir(parents=True, exist_ok=True)
    info.mkdir(parents=True)
    (package / "__init__.py").write_text(code, encoding="utf-8")
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n", encoding="utf-8")
    digest = base64.urlsafe_b64encode(hashlib.sha256(code.encode()).digest()).rstrip(b"=").decode()
    rows = [
        f"{name}/__init__.py,sha256={digest},{len(code)}",
        f"{name}/__pycache__/x.pyc,,",
        "../../bin/tool,sha256=x,1",
    ]
    (info / "RECORD").write_text("\n".join([*rows, f"{info.name}/METADATA,sha256=y,1", f"{info.name}/RECORD,,"]))


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder from which packages are found."""
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    return tmp_path


def test_equal_code_has_an_equal_digest_under_any_version(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the package's own files count, so the same code called by two versions is found out (FID-3)."""
    digests = []
    for version, code in (("1.0", "x = 1\n"), ("2.0", "x = 1\n"), ("3.0", "x = 2\n")):
        folder = place / version
        _install(folder, "alike_tracker", version=version, code=code)
        monkeypatch.setattr(sys, "path", [str(folder), *sys.path])
        found = recorded_files("alike_tracker")
        assert found is not None and found.files == 1
        assert read_files("alike_tracker") == found
        digests.append(found.digest)
    assert digests[0] == digests[1] != digests[2]


def test_a_changed_file_is_found(place: Path) -> None:
    """A file that was edited after its installation is named, and the digest of the contents differs (FID-3)."""
    _install(place, "edited_tracker", version="1.0", code="x = 1\n")
    (place / "edited_tracker" / "__init__.py").write_text("x = 3\n", encoding="utf-8")
    noted, read = recorded_files("edited_tracker"), read_files("edited_tracker")
    assert noted is not None and read is not None
    assert noted.digest != read.digest
    assert read.altered == ("edited_tracker/__init__.py",)


def test_a_missing_package_has_no_files() -> None:
    """A distribution that is not installed has no digest and no version (FID-3)."""
    assert recorded_files("no-such-tracker") is None
    assert read_files("no-such-tracker") is None
    assert reported_version("no-such-tracker") is None


def test_the_version_is_the_packages_own_word(place: Path) -> None:
    """The imported package is asked, not the installer's notes (FID-3)."""
    _install(place, "frank_tracker", version="1.0", code="")
    module = ModuleType("frank_tracker")
    assert reported_version("frank_tracker", {"frank_tracker": module}) is None
    module.__version__ = "1.0.post7"  # type: ignore[attr-defined]
    assert reported_version("frank-tracker", {"frank_tracker": module}) == "1.0.post7"


@pytest.mark.parametrize("name", ["wandb", "clearml", "tensorboard", "mlflow", "comet_ml"])
def test_an_installed_tracker_has_the_files_that_its_installer_noted(name: str) -> None:
    """Both ways to the digest give the same for a real package (FID-3)."""
    pytest.importorskip(name)
    noted, read = recorded_files(name), read_files(name)
    assert noted is not None
    assert noted == read
    assert noted.files > 100
