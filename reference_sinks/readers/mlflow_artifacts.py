"""The files of an MLflow run: which are points, which are something else, which are cut (MLFLOW-1)."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import url2pathname

from torchlens_conformance.protocol import Point, TextPoint, row_to_point

from ..mlflow_layout import TEXT, PointFile, parse_path
from .result import Unplaced

_UPLOADING = ".artifact.uploading."
# What the name of a file begins with while MLflow's server is still receiving it.


def find_artifacts(uri: str, run_id: str, *, beside: Path) -> Path | None:
    """Return the folder of a run's artifacts, or None.

    Args:
        uri: What the run says: a path, a ``file:`` URI, or the address of a store.
        run_id: The run, whose artifacts lie in a folder ``<run_id>/artifacts``.
        beside: The folder of the database: relative paths begin there, and what has moved is looked for below it.
    """
    if is_local(uri):
        parts = urlsplit(uri)
        folder = beside / (url2pathname(parts.path) if parts.scheme else uri)
        if folder.is_dir():
            return folder
    found = sorted(folder for folder in beside.rglob(f"{run_id}/artifacts") if folder.is_dir())
    return found[0] if len(found) == 1 else None


def is_local(uri: str) -> bool:
    """Whether a run says that its artifacts are files, and not that a server or a store keeps them."""
    return urlsplit(uri).scheme in ("", "file")


class ArtifactReader:
    """Reads the files of one run into lists of a reader.

    Args:
        points: Where histograms and texts go.
        unplaced: Where every other file goes.

    Attributes:
        torn: Which files are cut, in words.
    """

    def __init__(self, points: list[Point], unplaced: list[Unplaced]) -> None:
        self._points, self._unplaced = points, unplaced
        self.torn: list[str] = []

    def read(self, folder: Path | None, under_way: Mapping[str, int]) -> None:
        """Read every file below a folder, if there is one.

        ``under_way`` has the sizes of the texts that were written last.
        """
        found: list[tuple[PointFile, str, Path]] = []
        missing = dict(under_way)
        for path, file in _files(folder) if folder else ():
            parsed = parse_path(path)
            size = file.stat().st_size
            if missing.pop(path, size) != size:
                self.torn.append(f"{path}: {size} of {under_way[path]} bytes were written")
            elif file.name.startswith(_UPLOADING):
                self.torn.append(f"{path}: an upload that did not end")
            elif parsed is None:
                self._unplaced.append(Unplaced(path, "artifact", {"bytes": size}))
            else:
                found.append((parsed, path, file))
        self.torn += [f"{path}: none of {size} bytes was written" for path, size in missing.items()]
        for parsed, path, file in sorted(found):
            self._read_point(parsed, path, file.read_bytes())

    def _read_point(self, parsed: PointFile, path: str, content: bytes) -> None:
        try:
            if parsed.kind == TEXT:
                self._points.append(TextPoint(parsed.tag, parsed.step, content.decode()))
                return
            row = json.loads(content)
        except UnicodeDecodeError:
            self._unplaced.append(Unplaced(path, "not UTF-8", {"bytes": len(content)}))
        except ValueError:
            self.torn.append(f"{path}: the JSON is cut")
        else:
            self._place_histogram(parsed, path, row)

    def _place_histogram(self, parsed: PointFile, path: str, row: Any) -> None:
        series = {"tag": parsed.tag, "step": parsed.step}
        if not isinstance(row, dict) or not {"counts", "edges"} <= row.keys():
            self._unplaced.append(Unplaced(path, "JSON that is no histogram", series))
            return
        content = {**series, "counts": row["counts"], "edges": row["edges"]}
        if any(row.get(name, value) != value for name, value in series.items()):
            self._unplaced.append(Unplaced(path, "the histogram is of another series than its path", content))
            return
        try:
            self._points.append(row_to_point({"summary": {}, **row, **series, "kind": "histogram"}))
        except ValueError as error:
            self._unplaced.append(Unplaced(path, f"no histogram of the protocol: {error}", content))


def _files(folder: Path) -> list[tuple[str, Path]]:
    """Return every file below a folder, with its path inside it."""
    files = []
    for parent, _, names in os.walk(folder):
        for name in sorted(names):
            file = Path(parent, name)
            files.append((file.relative_to(folder).as_posix(), file))
    return files
