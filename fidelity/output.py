"""Where a run's files go, and writing them whole or not at all."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torchlens_conformance.protocol import Refusal

from .files import write_together
from .report import README_END, README_START, fidelity_page, readme_block
from .results import dump_results
from .routes import CONTROL_ROUTES

if TYPE_CHECKING:
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
    return folder if pyproject.is_file() and name.search(pyproject.read_text("utf-8", errors="replace")) else None


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
    """Make the folders of a result and try to write into them, before anything is measured.

    Raises ``fidelity_output_invalid``.
    """
    prepare_files(places.results, places.page)
    _prepare_folder(places.pictures)


def prepare_files(*files: Path) -> None:
    """Make the folders of files and try to write into them, before the work whose results go there.

    Raises ``fidelity_output_invalid``, also where something that is no file has a file's name.
    """
    for file in files:
        _prepare_folder(file.parent)
        if file.exists() and not file.is_file():
            raise Refusal(
                "fidelity_output_invalid",
                "This is no file that could be replaced.",
                remedy="Name another place with --output.",
                path=str(file),
            )


def _prepare_folder(folder: Path) -> None:
    with _refused("The output folder cannot be written", path=folder):
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.NamedTemporaryFile(dir=folder):
            pass


@contextmanager
def _refused(message: str, *, path: Path | None = None) -> Iterator[None]:
    """Turn what the system says into a refusal that names the place."""
    try:
        yield
    except OSError as error:
        raise Refusal(
            "fidelity_output_invalid",
            f"{message}: {error.strerror}.",
            remedy="Make room, or name another place with --output.",
            path=str(path or error.filename),
        ) from error


def write_texts(texts: Mapping[Path, str]) -> list[Path]:
    """Write every text in UTF-8; each file is replaced whole, and only after all of them were made.

    Returns the files written. Raises ``fidelity_output_invalid``.
    """
    return _write_all({path: text.encode("utf-8") for path, text in texts.items()})


def _write_all(contents: Mapping[Path, bytes]) -> list[Path]:
    with _refused("The results could not be written"):
        write_together(contents)
    return list(contents)


def write(measurement: Measurement, places: Places) -> list[Path]:
    """Write results, page and pictures; all of them, or none.

    Returns the files written. Raises ``fidelity_output_invalid``.
    """
    result = measurement.result
    with _refused("The results could not be written"), tempfile.TemporaryDirectory(prefix="fidelity-output-") as folder:
        drawn = {route["id"]: _draw(route, measurement, Path(folder)) for route in result["routes"]}
        contents = {places.pictures / path.name: path.read_bytes() for paths in drawn.values() for path in paths}
    prefix = os.path.relpath(places.pictures, places.page.parent)
    with_pictures = {route for route, paths in drawn.items() if paths}
    texts = {
        places.page: fidelity_page(result, drawn=with_pictures, picture_folder=prefix),
        places.results: dump_results(result),
    }
    if places.readme is not None and places.readme.is_file():
        texts[places.readme] = _renewed(places.readme.read_text(encoding="utf-8"), readme_block(result))
    return _write_all(contents | {path: text.encode("utf-8") for path, text in texts.items()})


def _draw(route: Mapping[str, Any], measurement: Measurement, folder: Path) -> list[Path]:
    """Draw the pictures of a route into a folder; return none where nothing was measured."""
    from .pictures import draw, draw_seen

    panels = measurement.pictures.get(route["id"])
    if not panels:
        return []
    words = {row["grid"]: row["verdict"] for row in route["rows"] if row["id"] == "histogram-counts"}
    drawn = [folder / f"fidelity-{route['id']}.svg"]
    draw(route["title"], words, panels, drawn[0])
    if route["id"] not in CONTROL_ROUTES:
        drawn.append(folder / f"fidelity-seen-{route['id']}.svg")
        draw_seen(route["title"], panels, drawn[1])
    return drawn


def _renewed(text: str, block: str) -> str:
    start, end = text.find(README_START), text.find(README_END)
    if start < 0 or end < start:
        return text
    return f"{text[: start + len(README_START)]}\n{block}\n{text[end:]}"
