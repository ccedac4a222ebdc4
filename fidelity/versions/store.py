"""The file of the table of versions: its schema, reading and writing it (FID-2)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date
from functools import lru_cache
from pathlib import Path
from typing import Any

from reference_sinks.packages import require_package
from torchlens_conformance.protocol import Refusal, decode_value

from ..results import SCHEMA as MEASURED_SCHEMA
from ..results import results_schema
from .columns import Column, columns_of
from .significant import plain_json

SCHEMA = "torchlens-conformance.fidelity-versions.v1"
"""The name and version of the format."""

COMMITTED = Path(__file__).parent.parent / "results" / "versions.json"
"""The committed table of versions."""

VERSIONS_RESULTS = Path("fidelity") / "results" / "versions.json"
"""Where a checkout has it."""

VERSIONS_PAGE = Path("docs") / "fidelity-versions.md"
"""Where a checkout has its page."""

_SCHEMA_FILE = Path(__file__).parent.parent / "schemas" / "versions.schema.json"


@lru_cache(maxsize=1)
def versions_schema() -> Mapping[str, Any]:
    """Return the JSON schema of the format; it ships in the wheel."""
    schema: Mapping[str, Any] = json.loads(_SCHEMA_FILE.read_text(encoding="utf-8"))
    return schema


def dump_columns(columns: Sequence[Column]) -> str:
    """Return the table as standard JSON, a line for each cell; non-finite numbers use the encoding of JSONL-1."""
    parts = []
    for column in columns:
        head = {key: value for key, value in column.items() if key != "cells"}
        cells = ",\n    ".join(_line(cell) for cell in column["cells"])
        inner = f'{_line(head)[:-1]}, "cells": [' + (f"\n    {cells}\n   " if cells else "") + "]}"
        parts.append(f"  {inner}")
    joined = ",\n".join(parts)
    return f'{{"schema": "{SCHEMA}",\n "columns": [\n{joined}\n]}}\n'


def load_columns(path: Path = COMMITTED, *, validate: bool = True) -> list[Column]:
    """Read a table of versions, or one file of measured results, as columns.

    Args:
        path: The file.
        validate: Whether to validate against the schema, which needs jsonschema and a moment; without it a broken file
            is still refused when what is needed is missing.

    Raises ``fidelity_result_invalid``.
    """
    try:
        text = path.read_text(encoding="utf-8")
        document = json.loads(text)
        name = document.get("schema") if isinstance(document, dict) else None
        if name not in (SCHEMA, MEASURED_SCHEMA):
            raise ValueError(f"its schema is {name!r}")
        if "\\ud" in text.lower():
            # Half a pair of surrogates can be read, but never be written again.
            json.dumps(document, ensure_ascii=False).encode()
        if validate:
            _validate(document, name)
        columns = list(document["columns"]) if name == SCHEMA else columns_of(document)
        # Only a key that starts with "$" says that something is encoded; what a column leaves out needs no decoding.
        return [_checked(decode_value(column) if '"$' in text else column) for column in columns]
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise Refusal(
            "fidelity_result_invalid",
            f"This is no table of versions and no file of measured results: {error}.",
            remedy="Make one with `torchlens-conformance fidelity version` or `fidelity merge`.",
            path=str(path),
        ) from error


def _checked(column: Column) -> Column:
    """The column, whose date is a day of the calendar (a schema lets 31 November pass). Raises ``ValueError``."""
    if column["date"] is not None:
        date.fromisoformat(column["date"])
    return column


_KNOWN_SHAPES: dict[str, set[object]] = {}
"""Shapes of cells that were validated before, by format."""


def _validate(document: Any, name: str) -> None:
    listed, inner = ("columns", "cells") if name == SCHEMA else ("routes", "rows")
    known = _KNOWN_SHAPES.setdefault(name, set())
    seen = set(known)
    error = next(_validator(name).iter_errors(_thinned(document, listed, inner, seen)), None)
    if error is not None:
        raise ValueError(error.message)
    # Only shapes of a valid file are known to be valid.
    known |= seen


def _thinned(document: Any, listed: str, inner: str, seen: set[object]) -> Any:
    """The document with one cell of each shape: thousands of cells look alike to a schema, and validating is slow."""
    try:
        parts = []
        for part in document[listed]:
            cells: list[Any] = []
            for cell in part[inner]:
                shape = tuple((key, _shape(value)) for key, value in cell.items())
                if shape not in seen or not cells:
                    seen.add(shape)
                    cells.append(cell)
            parts.append({**part, inner: cells})
        return {**document, listed: parts}
    except (AttributeError, KeyError, TypeError):
        return document


def _shape(value: Any) -> object:
    """What a schema can tell about a value of a cell: words as they are, numbers and lists by the kinds they hold."""
    if isinstance(value, dict):
        return tuple((key, type(item)) for key, item in value.items())
    if isinstance(value, list):
        return frozenset(map(type, value))
    return type(value), value


@lru_cache(maxsize=2)
def _validator(name: str) -> Any:
    jsonschema = require_package("jsonschema", extra="fidelity")
    return jsonschema.Draft202012Validator(versions_schema() if name == SCHEMA else results_schema())


def _line(value: Any) -> str:
    return plain_json(value, ensure_ascii=False)
