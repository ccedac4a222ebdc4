"""The file of measured results: its shape, its schema, reading and writing it (FID-1, FID-2)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeAlias

from reference_sinks.packages import require_package
from torchlens_conformance.protocol import Refusal, decode_value, encode_value

SCHEMA = "torchlens-conformance.fidelity.v1"
"""The name and version of the format."""

COMMITTED = Path(__file__).parent / "results" / "measured.json"
"""The committed results of the pinned versions."""

_SCHEMA_FILE = Path(__file__).parent / "schemas" / "measured.schema.json"

Result: TypeAlias = dict[str, Any]
"""A decoded results file."""


@lru_cache(maxsize=1)
def results_schema() -> Mapping[str, Any]:
    """Return the JSON schema of the format; it ships in the wheel."""
    schema: Mapping[str, Any] = json.loads(_SCHEMA_FILE.read_text(encoding="utf-8"))
    return schema


def dump_results(result: Result) -> str:
    """Return ``result`` as standard JSON; non-finite numbers use the encoding of JSONL-1. Clause: FID-7."""
    return json.dumps(encode_value(result), indent=1, ensure_ascii=False) + "\n"


def load_results(path: Path = COMMITTED) -> Result:
    """Read a results file and validate it.

    Raises ``fidelity_result_invalid`` for a file that is missing, is no JSON or does not match the schema, and
    ``tracker_sink_unavailable`` without jsonschema.
    """
    jsonschema = require_package("jsonschema", extra="fidelity")
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(document, dict) and document.get("schema") != SCHEMA:
            raise ValueError(f"its schema is {document.get('schema')!r}, not {SCHEMA!r}")
        jsonschema.validate(document, results_schema())
    except (OSError, ValueError, jsonschema.ValidationError) as error:
        reason = error.message if isinstance(error, jsonschema.ValidationError) else str(error)
        raise Refusal(
            "fidelity_result_invalid",
            f"This is no file of measured results: {reason}.",
            remedy="Make one with `torchlens-conformance fidelity run`.",
            path=str(path),
        ) from error
    decoded: Result = decode_value(document)
    return decoded


def cells(result: Result) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield (route id, row) for every cell of a result."""
    for route in result["routes"]:
        for row in route["rows"]:
            yield route["id"], row


def changed_cells(old: Result, new: Result) -> list[tuple[str, str, str | None, str, str]]:
    """Return (route, row, grid, old word, new word) of every cell of ``new`` whose word differs from ``old``'s.

    A cell that ``old`` lacks has the old word ``absent``. Clause: FID-3.
    """
    before = {(route, row["id"], row["grid"]): row["verdict"] for route, row in cells(old)}
    changes = []
    for route, row in cells(new):
        word = before.get((route, row["id"], row["grid"]), "absent")
        if word != row["verdict"]:
            changes.append((route, row["id"], row["grid"], word, row["verdict"]))
    return changes
