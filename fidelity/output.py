"""Where a run's files go, and writing them whole or not at all."""

from __future__ import annotations

import os
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from torchlens_conformance.protocol import Refusal

from .pictures import draw, draw_seen
from .report import README_END, README_START, fidelity_page, readme_block
from .results import dump_results
from .routes import CONTROL_ROUTES
from .run import Measurement

DEFAULT_FOLDER = Path("fidelity-output")
"""Where results go when they are not the project's own."""


@dataclass(frozen=True, slots=True)
class Places:
    """The files of one result.

    Args:
        results: The JSON file.
        page: The Markdown page.
        pictures: The folder of the pictures, beside the page or below it.
        readme: A file whose generated block is renewed, or None.
    """

    results: Path
    page: Path
    pictures: Path
    readme: Path | None = None


def project_root(folder: Path) -> Path | None:
    """Return ``folder`` when it is the top of a checkout of this project, else None."""
    pyproject = folder / "pyproject.toml"
    name = re.compile(r'^name = "torchlens-conformance"$', re.MULTILINE)
    return folder if pyproject.is_file() and name.search(pyproject.read_text(encoding="utf-8")) else None


def project_places(folder: Path) -> Places | None:
    """Return the committed places when ``folder`` is the top of a checkout of this project, else None."""
    root = project_root(folder)
    if root is None:
        return None
    return Places(
        results=root / "fidelity" / "results" / "measured.json",
        page=root / "docs" / "fidelity.md",
        pictures=root / "docs" / "pictures",
        readme=root / "README.md",
    )


def folder_places(folder: Path) -> Places:
    """Return the places in a folder of the caller's."""
    return Places(folder / "measured.json", folder / "fidelity.md", folder / "pictures")


def prepare(places: Places) -> None:
    """Make the folders and try to write into them, before anything is measured.

    Raises ``fidelity_output_invalid``.
    """
    for folder in {places.results.parent, places.page.parent, places.pictures}:
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with tempfile.NamedTemporaryFile(dir=folder):
                pass
        except OSError as error:
            raise Refusal(
                "fidelity_output_invalid",
                f"The output folder cannot be written: {error.strerror}.",
                remedy="Name another folder with --output.",
                path=str(folder),
            ) from error


def write(measurement: Measurement, places: Places) -> list[Path]:
    """Write results, page and pictures; each file is replaced whole, and only after all of them were made.

    Returns the files written. Raises ``fidelity_output_invalid``.
    """
    result = measurement.result
    with tempfile.TemporaryDirectory(prefix="fidelity-output-") as folder:
        staged: list[tuple[Path, Path]] = []
        drawn: set[str] = set()
        for route in result["routes"]:
            panels = measurement.pictures.get(route["id"])
            if panels:
                words = {r["grid"]: r["verdict"] for r in route["rows"] if r["id"] == "histogram-counts"}
                picture = Path(folder) / f"fidelity-{route['id']}.svg"
                draw(route["title"], words, panels, picture)
                staged.append((picture, places.pictures / picture.name))
                drawn.add(route["id"])
                if route["id"] not in CONTROL_ROUTES:
                    seen = Path(folder) / f"fidelity-seen-{route['id']}.svg"
                    draw_seen(route["title"], panels, seen)
                    staged.append((seen, places.pictures / seen.name))
        prefix = os.path.relpath(places.pictures, places.page.parent)
        texts = {
            places.page: fidelity_page(result, drawn=drawn, picture_folder=prefix),
            places.results: dump_results(result),
        }
        if places.readme is not None and places.readme.is_file():
            texts[places.readme] = _renewed(places.readme.read_text(encoding="utf-8"), readme_block(result))
        for number, (final, text) in enumerate(texts.items()):
            staged.append((Path(folder) / str(number), final))
            staged[-1][0].write_text(text, encoding="utf-8")
        return _put_in_place(staged)


def _put_in_place(staged: list[tuple[Path, Path]]) -> list[Path]:
    partials = []
    try:
        for source, final in staged:
            partial = final.with_name(f".{final.name}.partial")
            partials.append((partial, final))
            shutil.copyfile(source, partial)
        for partial, final in partials:
            os.replace(partial, final)
    except OSError as error:
        for partial, _ in partials:
            partial.unlink(missing_ok=True)
        raise Refusal(
            "fidelity_output_invalid",
            f"The results could not be written: {error.strerror}.",
            remedy="Make room, or name another folder with --output.",
            path=str(error.filename),
        ) from error
    return [final for _, final in partials]


def _renewed(text: str, block: str) -> str:
    start, end = text.find(README_START), text.find(README_END)
    if start < 0 or end < start:
        return text
    return f"{text[: start + len(README_START)]}\n{block}\n{text[end:]}"
