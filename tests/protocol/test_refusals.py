"""Refusals: a stable code, the offending fields and a way out, also across process borders."""

from __future__ import annotations

import json
import math
import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torchlens_conformance.protocol import REFUSAL_CODES, FrozenMapping, Refusal
from torchlens_conformance.protocol.refusals import documented_codes

from ..reference_sinks.jsonl_points import plain

ROOT = Path(__file__).parents[2]
PACKAGES = ("torchlens_conformance", "reference_sinks", "fidelity")

NOT_RAISED_YET = frozenset(
    {
        "kit_subject_not_found",
        "kit_check_unknown",
        "kit_profile_unknown",
        "kit_report_invalid",
        "kit_deviations_invalid",
    }
)
"""Codes that stand in the table before the code that raises them; this set may only shrink."""


def make(**fields: Any) -> Refusal:
    """Return a refusal with ``fields``."""
    return Refusal("grid_invalid", "The grid is odd.", remedy="Use another grid.", **fields)


class Hidden:
    """An object that cannot be shown."""

    def __repr__(self) -> str:
        raise RuntimeError("no text")


@pytest.mark.parametrize("code", REFUSAL_CODES)
def test_every_code_has_a_meaning_in_one_line(code: str) -> None:
    """A code is words in lower case; its meaning is one sentence (PROT-9)."""
    meaning = REFUSAL_CODES[code]
    assert re.fullmatch(r"[a-z]+(_[a-z0-9]+)+", code)
    assert meaning[0].isupper() and meaning.endswith(".") and "\n" not in meaning
    assert dict(documented_codes())[code] == meaning


def test_the_table_is_one_and_closed() -> None:
    """Meanings tell the codes apart, the order is kept, and the table cannot be changed (PROT-9)."""
    assert len(set(REFUSAL_CODES.values())) == len(REFUSAL_CODES)
    assert list(documented_codes()) == list(REFUSAL_CODES.items())
    with pytest.raises(TypeError):
        REFUSAL_CODES["new_code"] = "New."  # type: ignore[index]


@pytest.mark.parametrize("code", ["", "no_such_code", "Grid_invalid", "grid_invalid "])
def test_an_unknown_code_cannot_be_raised(code: str) -> None:
    """A code that stands in no table is a fault of ours, a LookupError (PROT-9)."""
    with pytest.raises(LookupError, match="REFUSAL_CODES"):
        Refusal(code, "No.", remedy="None.")


def test_str_holds_code_message_fields_and_remedy() -> None:
    """One text tells everything (PROT-9)."""
    text = str(make(tag="a?b", step=-1))
    assert text == "[grid_invalid] The grid is odd. (tag='a?b', step=-1) Remedy: Use another grid."
    assert str(make()) == "[grid_invalid] The grid is odd. Remedy: Use another grid."


def test_long_and_unreadable_fields_do_not_break_the_text() -> None:
    """A field of any length, or one whose text cannot be made, leaves the text readable (PROT-9)."""
    text = str(make(long="x" * 10_000, huge=10**5000, hidden=Hidden()))
    assert len(text) < 500
    assert "..." in text and "huge=<int that cannot be shown>" in text and "hidden=<Hidden that cannot" in text


def test_the_code_is_readable_through_the_fields() -> None:
    """``fields["code"]`` is the code, as torchlens spells it, and is no field otherwise (PROT-9)."""
    refusal = make(tag="a")
    assert refusal.code == refusal.fields["code"] == "grid_invalid"
    assert refusal.fields == {"tag": "a"} and list(refusal.fields) == ["tag"]
    with pytest.raises(KeyError):
        refusal.fields["other"]


def test_code_and_fields_survive_a_second_process() -> None:
    """Pickled there and back through another interpreter, a refusal is the same (PROT-9)."""
    program = (
        "import pickle, sys; refusal = pickle.load(sys.stdin.buffer); "
        "assert refusal.fields['code'] == refusal.code == 'grid_invalid'; "
        "sys.stdout.buffer.write(pickle.dumps([refusal, str(refusal)]))"
    )
    sent = make(tag="\u00e9", value=math.inf, words=["a", "b"], content=FrozenMapping({"a": b"x"}))
    finished = subprocess.run(
        [sys.executable, "-c", program],
        input=pickle.dumps(sent),
        env={"PYTHONPATH": str(ROOT)},
        capture_output=True,
        timeout=60,
    )
    assert finished.returncode == 0, finished.stderr.decode()
    received, text = pickle.loads(finished.stdout)
    assert type(received) is Refusal and text == str(received) == str(sent)
    assert (received.code, received.message, received.remedy) == (sent.code, sent.message, sent.remedy)
    assert received.fields == sent.fields and received.fields["code"] == "grid_invalid"


@settings(deadline=None, max_examples=60)
@given(st.dictionaries(st.text(max_size=5), plain, max_size=4), st.integers(0, pickle.HIGHEST_PROTOCOL))
def test_any_fields_survive_pickling(fields: dict[str, Any], protocol: int) -> None:
    """Every protocol of pickle keeps code, message, remedy and fields (PROT-9)."""
    refusal = make(content=fields)
    again = pickle.loads(pickle.dumps(refusal, protocol))
    assert str(again) == str(refusal) and repr(again.fields) == repr(refusal.fields)
    assert repr(pickle.loads(pickle.dumps(refusal.fields, protocol))["code"]) == "'grid_invalid'"


@settings(deadline=None, max_examples=60)
@given(st.dictionaries(st.text(max_size=5), plain, max_size=4))
def test_as_dict_is_standard_json(fields: dict[str, Any]) -> None:
    """Whatever the fields hold, the dictionary is JSON without NaN tokens, and lists stay lists (PROT-9)."""
    told = make(content=fields, raw=b"x", kinds=(Hidden, 1), nan=math.nan, huge=10**5000, hidden=Hidden()).as_dict()
    assert json.loads(json.dumps(told, allow_nan=False)) == told
    assert list(told) == ["code", "message", "fields", "remedy"]
    shown = told["fields"]
    assert isinstance(shown, dict) and list(shown["content"]) == list(fields)
    assert (shown["raw"], shown["nan"], shown["kinds"][1]) == ("b'x'", "nan", 1)
    assert shown["huge"] == "<int that cannot be shown>"


def test_fields_that_json_can_hold_stay_as_they_are() -> None:
    """Texts, numbers, truth values, lists and mappings are not turned into text (PROT-9)."""
    fields = {"a": "x", "b": 1, "c": 0.5, "d": True, "e": None, "f": [1, ["y"]], "g": {"h": 2**63}}
    assert make(**fields).as_dict()["fields"] == fields


def _sources() -> dict[str, str]:
    files = (path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py")))
    return {str(path.relative_to(ROOT)): path.read_text(encoding="utf-8") for path in files}


def test_no_code_is_dead() -> None:
    """Every code of the table is raised somewhere; one that nothing raises is an empty promise (PROT-9)."""
    text = "\n".join(source for path, source in _sources().items() if not path.endswith("protocol/refusals.py"))
    dead = sorted(code for code in REFUSAL_CODES.keys() - NOT_RAISED_YET if f'"{code}"' not in text)
    assert not dead, f"in REFUSAL_CODES, but raised nowhere in {PACKAGES}: {dead}; raise them or take them out"


def test_every_raised_code_is_known() -> None:
    """A code written into a Refusal stands in the table, so that no refusal fails when it is needed (PROT-9)."""
    unknown = {
        (path, code)
        for path, source in _sources().items()
        for code in re.findall(r"\bRefusal\(\s*f?\"([^\"]*)\"", source)
        if code not in REFUSAL_CODES
    }
    assert not unknown, f"raised, but not in REFUSAL_CODES: {sorted(unknown)}"
