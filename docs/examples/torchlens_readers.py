"""Reads what torchlens 2.36's WandbSink leaves; apart from the sinks, since each fresh process imports this module."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from reference_sinks.readers import ReadResult
from torchlens_conformance.kit.subjects.readers import read_wandb_place
from torchlens_conformance.protocol import Point, TextPoint


def read_wandb_with_texts(place: Path) -> ReadResult:
    """Read every offline run of ``place``; their texts are HTML files beside the history, the text between ``<pre>``.

    The texts come behind the other points: the order across kinds is not looked at here.
    """
    result = read_wandb_place(place)
    texts: list[Point] = []
    rest: list[Any] = []
    for item in result.unplaced:
        text = _text(place, item.content)
        (rest if text is None else texts).append(item if text is None else text)
    return replace(result, points=(*result.points, *texts), unplaced=tuple(rest))


def _text(place: Path, content: Any) -> TextPoint | None:
    value = content.get("value") if isinstance(content, dict) else None
    if not isinstance(value, dict) or value.get("_type") != "html-file":
        return None
    for path in Path(place).glob(f"wandb/offline-run-*/files/{value['path']}"):
        # Read as bytes, since text mode would mend line ends.
        _, opened, rest = path.read_bytes().decode("utf-8", "surrogatepass").partition("<pre>")
        text, closed, _ = rest.rpartition("</pre>")
        if opened and closed:
            return TextPoint(content["tag"], content["step"], text)
    return None
