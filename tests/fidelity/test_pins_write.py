"""Files that rest on each other are written together or not at all."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from fidelity.pins_write import probe, write_together
from torchlens_conformance.protocol import Refusal


def test_all_files_are_written_and_nothing_else_is_left(tmp_path: Path) -> None:
    """Every text stands in its place; permissions are kept, links are followed, no other file is left (FID-3)."""
    kept, linked, new = (tmp_path / name for name in ("kept.txt", "linked.txt", "new.txt"))
    kept.write_text("old", encoding="utf-8")
    kept.chmod(0o640)
    linked.symlink_to(kept)
    probe([linked, new])
    assert sorted(os.listdir(tmp_path)) == ["kept.txt", "linked.txt"]
    write_together({linked: "one\r\n", new: "two\n"})
    assert (kept.read_bytes(), new.read_bytes()) == (b"one\r\n", b"two\n")
    assert kept.stat().st_mode & 0o777 == 0o640
    assert linked.is_symlink()
    assert sorted(os.listdir(tmp_path)) == ["kept.txt", "linked.txt", "new.txt"]


@pytest.mark.parametrize("last", ["absent/b.txt", f"{'b' * 250}.txt", "folder"])
def test_a_file_that_cannot_be_written_leaves_the_others_as_they_were(tmp_path: Path, last: str) -> None:
    """When the last file fails, the first ones are what they were, or are not there (FID-3)."""
    (tmp_path / "folder").mkdir()
    old, new = tmp_path / "old.txt", tmp_path / "new.txt"
    old.write_text("old", encoding="utf-8")
    with pytest.raises(Refusal) as caught:
        write_together({old: "changed", new: "new", tmp_path / last: "last"})
    assert caught.value.code == "fidelity_output_invalid"
    assert old.read_text(encoding="utf-8") == "old"
    assert sorted(os.listdir(tmp_path)) == ["folder", "old.txt"]


def test_an_interruption_puts_back_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run that is stopped between two files leaves both as they were (FID-3)."""
    one, two = tmp_path / "one.txt", tmp_path / "two.txt"
    one.write_text("old", encoding="utf-8")
    rename = os.replace

    def stopped(source: Path, place: Path) -> None:
        if place == two:
            raise KeyboardInterrupt
        rename(source, place)

    monkeypatch.setattr(os, "replace", stopped)
    with pytest.raises(KeyboardInterrupt):
        write_together({one: "new", two: "new"})
    assert {path.name: path.read_text(encoding="utf-8") for path in tmp_path.iterdir()} == {"one.txt": "old"}


def test_places_that_take_no_file_are_refused(tmp_path: Path) -> None:
    """A missing folder, a folder, a pipe, a circle of links and one file under two names are refused (PROT-9)."""
    os.mkfifo(tmp_path / "pipe")
    circle = tmp_path / "circle"
    circle.symlink_to(circle)
    alias = tmp_path / "alias.txt"
    alias.symlink_to(tmp_path / "real.txt")
    for paths, why in (
        ([tmp_path / "absent" / "a.txt"], "its folder is not there"),
        ([tmp_path], "it is no file"),
        ([tmp_path / "pipe"], "it is no file"),
        ([Path("/proc/a.txt")], "nothing was: "),
        ([circle], "nothing was: "),
        ([tmp_path / ("a" * 300)], "nothing was: "),
        ([alias, tmp_path / "real.txt"], "it is named twice"),
    ):
        with pytest.raises(Refusal) as caught:
            probe(paths)
        assert caught.value.code == "fidelity_output_invalid"
        assert why in caught.value.message
        assert caught.value.fields["path"] == str(paths[-1])
    assert sorted(os.listdir(tmp_path)) == ["alias.txt", "circle", "pipe"]
