"""Where points lie in an MLflow run, and which names MLflow can carry: shared by sink and reader (MLFLOW-1)."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Mapping
from typing import NamedTuple

from torchlens_conformance.protocol import LARGEST_STEP, Refusal

HISTOGRAM, TEXT = "json", "txt"
"""How the files of histograms and of texts end."""

LONGEST_TAG = 250
"""Characters of a metric's name (measured with 2.22.5 and 3.17.2, by the client, by sqlite and by the server)."""

LONGEST_COMPONENT = 255
"""Bytes of one component of a file's path, in UTF-8."""

TEXTS_UNDER_WAY = "torchlens.texts_under_way"
"""The run's tag that names the texts of the latest batch with their sizes, written before the files.

MLflow copies files to their place, so a process that is killed meanwhile leaves a cut text, which looks like a whole
one. The sizes tell.
"""

LONGEST_RUN_TAG = 7000
"""Characters of that tag's value; MLflow keeps 8000 of them."""

# \w as MLflow has it: letters and digits of every script.
_NAME = re.compile(r"[/\w.\- :]+")
_FILE = re.compile(rf"step_([0-9]{{10,19}})\.({HISTOGRAM}|{TEXT})")


class PointFile(NamedTuple):
    """What the path of a point's file says.

    Args:
        tag: The series.
        step: The step.
        kind: :data:`HISTOGRAM` or :data:`TEXT`.
    """

    tag: str
    step: int
    kind: str


def file_name(step: int, kind: str) -> str:
    """Return ``step_<10 digits>.<kind>``; a step of more than ten digits has them all."""
    return f"step_{step:010d}.{kind}"


def parse_path(path: str) -> PointFile | None:
    """Return what an artifact's path says, or None for a file that is none of ours."""
    tag, _, name = path.rpartition("/")
    found = _FILE.fullmatch(name)
    if not tag or found is None:
        return None
    step, kind = int(found[1]), found[2]
    return PointFile(tag, step, kind) if step <= LARGEST_STEP and file_name(step, kind) == name else None


def require_metric_name(tag: str) -> None:
    """Refuse ``tracker_tag_unsafe`` for a tag that MLflow refuses or rewrites as the name of a metric.

    MLflow takes letters and digits of any script, ``_ - . : /`` and space, up to 250 characters, and no name that
    would be another one as a path. A line feed at the end slips through its check of characters, and its server then
    does not find the path; it is refused as well. Clause: MLFLOW-1, TAG-3.
    """
    if _NAME.fullmatch(tag) is None:
        raise _refusal(tag, "MLflow's names hold letters, digits, _ - . : / and spaces, at least one of them")
    if len(tag) > LONGEST_TAG:
        raise _refusal(tag, f"MLflow's names have up to {LONGEST_TAG} characters, this one has {len(tag)}")
    normal = posixpath.normpath(tag)
    if normal != tag or normal == "." or normal.startswith(("..", "/")):
        raise _refusal(tag, f"MLflow reads names as paths, and this one would be {normal!r}")


def require_artifact_folder(tag: str) -> None:
    """Refuse ``tracker_tag_unsafe`` for a tag that cannot be the folder of a series' files. Clause: MLFLOW-1, TAG-3."""
    require_metric_name(tag)
    for component in tag.split("/"):
        if len(component.encode()) > LONGEST_COMPONENT:
            raise _refusal(tag, f"a folder's name has up to {LONGEST_COMPONENT} bytes")
        if _FILE.fullmatch(component) is not None:
            raise _refusal(tag, "a component is named as the files of texts and histograms are")


def encode_texts_under_way(sizes: Mapping[str, int]) -> str:
    """Return the value of :data:`TEXTS_UNDER_WAY`."""
    return json.dumps(dict(sizes), ensure_ascii=False)


def decode_texts_under_way(value: str) -> dict[str, int]:
    """Undo :func:`encode_texts_under_way`; a value of another form says nothing."""
    try:
        sizes = json.loads(value)
    except ValueError:
        return {}
    if not isinstance(sizes, dict):
        return {}
    return {path: size for path, size in sizes.items() if isinstance(size, int)}


def _refusal(tag: str, why: str) -> Refusal:
    return Refusal(
        "tracker_tag_unsafe",
        f"{why[0].upper()}{why[1:]}.",
        remedy="Choose another name, or another sink: MLflow would refuse this one or make another of it.",
        tag=tag if tag.isascii() else ascii(tag),
        store="MLflow",
    )
