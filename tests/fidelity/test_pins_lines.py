"""A constraints file is read as pip reads it; renewing a pin leaves the rest of the file alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from fidelity.pins import Pin, pinned_text, read_pins
from torchlens_conformance.protocol import Refusal

_OLD, _NEW = "a" * 64, "b" * 64


def _read(text: str, folder: Path) -> list[Pin]:
    path = folder / "constraints.txt"
    path.write_bytes(text.encode("utf-8"))
    return read_pins(path)


@pytest.mark.parametrize(
    "line",
    [
        "wandb==0.19.0",
        "wandb == 0.19.0",
        "wandb[media]==0.19.0",
        "  \twandb==0.19.0  ",
        "wandb===0.19.0",
        "wandb (==0.19.0)",
        "wandb==0.19.0,>=0.18",
        "wandb==0.19.0;python_version>'3'",
        "wandb==0.19.0 ; sys_platform != 'nowhere'  # pinned by ops",
        "wandb==0.19.0 --hash=sha256:12 --hash=sha256:34",
        "wandb==0.19.0 \\\n    --hash=sha256:12 \\\n    --hash=sha256:34",
        "wandb \\\r\n==0.19.0\r\n",
        "\ufeffwandb==0.19.0",
    ],
)
def test_every_way_of_writing_an_exact_pin_is_read(line: str, tmp_path: Path) -> None:
    """Spaces, extras, markers, options, continued lines and three equals signs make the same pin (FID-3)."""
    assert _read(line, tmp_path) == [Pin("wandb", "0.19.0")]


def test_the_name_stays_as_it_is_written(tmp_path: Path) -> None:
    """Pins are listed as they are written, with the digest of their comment, wherever it stands there (FID-3)."""
    text = f"WandB==1  # result sha256:{_OLD}\ncomet-ml==3.58.8  # pinned by ops  # result sha256:{_NEW}  # ours\n"
    assert _read(text, tmp_path) == [Pin("WandB", "1", _OLD), Pin("comet-ml", "3.58.8", _NEW)]


def test_lines_that_pin_nothing_here_are_passed_over(tmp_path: Path) -> None:
    """Ranges, options, paths, addresses, comments and markers of other machines pin nothing (FID-3)."""
    text = (
        "# ours\n# format: black\nnumpy>=2\nruff==0.1.*\n-r base.txt\n--index-url https://example.org/x==1\n-e .\n"
        "./wandb==1.whl\nhttps://example.org/wandb==1.whl\ngit+https://example.org/wandb==1\n"
        "wandb @ https://example.org/wandb.whl\nwandb==1 ; sys_platform == 'nowhere'\nwandb==1 ; extra == 'media'\n"
        "clearml \\\n# a comment ends the line, whatever it ends with \\\nmlflow==1\n"
    )
    assert _read(text, tmp_path) == [Pin("mlflow", "1")]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("\n# format: torchlens-conformance.pins.v9\n", "pins.v9"),
        ("\n  #format: torchlens-conformance.pins.v9\n", "pins.v9"),
        ("\nwandb==0.30.0  # result sha256:12\n", "line 2: its result"),
        (f"\nwandb==0.30.0  # result sha256:{_OLD}0\n", "line 2: its result"),
        ("\nwandb==1 # result x\n", "line 2: its result"),
        ("\nwandb=0.19.0\n", "line 2: this is no requirement"),
        ("\nwandb==0.19.0 and more\n", "line 2: this is no requirement"),
        ("\nwandb==${WANDB}\n", "line 2: this is no requirement"),
        ("\nwandb==0.19.0,==0.20.0\n", "line 2: 'wandb==0.19.0,==0.20.0'"),
        ("\nwandb==0.19.0 ; os_name ~= 'x'\n", "line 2: "),
        ("wandb==0.19.0\n[tool.x]\n", "line 2: this is no requirement"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_line(text: str, why: str, tmp_path: Path) -> None:
    """A later format, a digest that is none and a line that pip could not read either are refused (FID-3, PROT-9)."""
    with pytest.raises(Refusal) as caught:
        _read(text, tmp_path)
    assert caught.value.code == "fidelity_pins_invalid"
    assert why in caught.value.message


def test_a_file_that_is_no_text_is_refused(tmp_path: Path) -> None:
    """A missing file, a folder and bytes that are no UTF-8 are refused by name (FID-3, PROT-9)."""
    (tmp_path / "bytes.txt").write_bytes(b"wandb==1\xff\n")
    for name in ("absent.txt", ".", "bytes.txt"):
        with pytest.raises(Refusal) as caught:
            read_pins(tmp_path / name)
        assert caught.value.code == "fidelity_pins_invalid"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("wandb==0.28.2", f"wandb==0.31.0  # result sha256:{_NEW}"),
        (f"wandb==0.28.2 # result sha256:{_OLD}", f"wandb==0.31.0  # result sha256:{_NEW}"),
        ("WandB[media] === 0.28.2", f"WandB[media] === 0.31.0  # result sha256:{_NEW}"),
        ("  wandb (==0.28.2)", f"  wandb (==0.31.0)  # result sha256:{_NEW}"),
        (
            "wandb==0.28.2 ; python_version>'3.0'  # pinned by ops",
            f"wandb==0.31.0 ; python_version>'3.0'  # pinned by ops  # result sha256:{_NEW}",
        ),
        (
            f"wandb==0.28.2;os_name!='x'  # result sha256:{_OLD}  # by ops: ==0.28.2",
            f"wandb==0.31.0;os_name!='x'  # result sha256:{_NEW}  # by ops: ==0.28.2",
        ),
        (
            "wandb==0.28.2 --config-settings=a==b",
            f"wandb==0.31.0 --config-settings=a==b  # result sha256:{_NEW}",
        ),
    ],
)
def test_only_version_and_result_are_renewed(old: str, new: str) -> None:
    """Spelling, extras, marker, options and other comments of a line stay; so do line ends and the rest (FID-3)."""
    for end in ("\n", "\r\n"):
        text = f"# top{end}numpy >= 2{end}{old}{end}mlflow==1 \\{end}  --hash=sha256:12"
        found = pinned_text(text, [Pin("wandb", "0.31.0", _NEW)])
        assert found == text.replace(old, new)
    assert pinned_text("comet-ml==3.54.2\n", [Pin("comet_ml", "3.58.8")]) == "comet-ml==3.58.8\n"
    assert pinned_text(f"wandb==1  # result sha256:{_OLD} by ops", [Pin("wandb", "2")]) == "wandb==2  # by ops"


def test_a_renewed_file_is_read_as_it_was_meant(tmp_path: Path) -> None:
    """Renewing twice gives the same text, and its pin is the one that was written (FID-3)."""
    pin = Pin("WandB", "0.31.0", _NEW)
    once = pinned_text("\ufeffWandB==0.28.2 ; os_name != 'x'  # pinned by ops\n", [pin])
    assert pinned_text(once, [pin]) == once
    assert _read(once, tmp_path) == [pin]


def test_a_new_pin_goes_behind_the_trackers_or_last() -> None:
    """A new line joins no other one, and ends as the lines of the file do (FID-3)."""
    text = "# [trackers] ours\nwandb==0.30.0\nclearml==1 \\\n --hash=sha256:12\n\n# [tools]\nruff==1\n"
    new = pinned_text(text, [Pin("wandb", "0.31.0", _NEW), Pin("mlflow", "3.17.2"), Pin("comet_ml", "1")])
    assert new == (
        f"# [trackers] ours\nwandb==0.31.0  # result sha256:{_NEW}\nclearml==1 \\\n --hash=sha256:12\nmlflow==3.17.2\n"
        "comet_ml==1\n\n# [tools]\nruff==1\n"
    )
    assert pinned_text("", [Pin("wandb", "1")]) == "wandb==1\n"
    assert pinned_text("numpy==2\r\nruff==1", [Pin("wandb", "1")]) == "numpy==2\r\nruff==1\r\nwandb==1\r\n"
    assert pinned_text("numpy==2 \\", [Pin("wandb", "1")]) == "numpy==2 \\\n\nwandb==1\n"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("wandb==1 ; os_name == 'posix'\nnumpy\nWandB==1 ; os_name == 'nt'\n", "lines 1, 3 all speak of it"),
        ("wandb==1\nwandb==1\n", "lines 1, 2 all speak of it"),
        ("wandb==1\nwandb>=0.9\n", "lines 1, 2 all speak of it"),
        ("wandb==1 --hash=sha256:12\n", "line 1 holds digests"),
        ("wandb==1 \\\n  --hash=sha256:12\n", "line 1 holds digests"),
        ("wandb \\\n==1\n", "line 1 goes on over several lines"),
        ("wandb>=1\n", "line 1 pins no exact version"),
        ("wandb\n", "line 1 pins no exact version"),
        ("wandb==1.*\n", "line 1 pins no exact version"),
        ("wandb @ https://example.org/wandb.whl\n", "line 1 pins no exact version"),
        ("wandb==1,<2\n", "line 1 asks for more than an exact version"),
        ("wandb==1 ; sys_platform == 'nowhere'\n", "line 1 is for other machines"),
    ],
)
def test_what_one_line_cannot_say_is_refused(text: str, why: str) -> None:
    """Several lines, digests of files, ranges and pins of other machines are not renewed (FID-3, PROT-9)."""
    with pytest.raises(Refusal) as caught:
        pinned_text(text, [Pin("wandb", "2", _NEW)])
    assert caught.value.code == "fidelity_pins_invalid"
    assert why in caught.value.message
    assert pinned_text(text, [Pin("mlflow", "2")]) == f"{text}mlflow==2\n"
