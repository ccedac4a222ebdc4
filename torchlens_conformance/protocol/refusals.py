"""Typed refusals: a stable code, the offending fields and a way out (PROT-9).

The table :data:`REFUSAL_CODES` is the one list of codes; the docs page of refusals is made from it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import isfinite
from types import MappingProxyType

REFUSAL_CODES: Mapping[str, str] = MappingProxyType(
    {
        # Protocol and sinks.
        "tracker_sink_invalid": "The object is not a sink, or advertises an unknown capability word.",
        "tracker_sink_capability_missing": "A requested capability is not advertised by the sink.",
        "tracker_sink_duplicate": "The same sink object was listed twice.",
        "tracker_sink_closed": "Something was emitted to, or attached to, a closed sink.",
        "tracker_sink_unavailable": "A package that the sink or reader needs is not installed.",
        "tracker_sink_path_exists": "The path already holds data and neither resume nor overwrite was asked for.",
        "tracker_sink_path_locked": "Another writer holds the path.",
        "tracker_sink_write_failed": "The store did not take the whole row; what stood there before is intact.",
        "tracker_sink_forked": "A forked child used a sink that belongs to its parent.",
        "tracker_sink_settings_invalid": "A setting of the sink is not one of the allowed values.",
        "tracker_value_unsupported": "The store cannot carry this value unchanged.",
        "tracker_step_regressed": "The store would drop this row, since a larger step was already written.",
        "tracker_histogram_bucket_cap": "The histogram has more buckets than the store keeps.",
        "tracker_relay_histogram_unsupported": "A relay is attached that rebuilds histograms wrong.",
        "tracker_relay_step_unsupported": "A relay is on that replaces the caller's step.",
        "tracker_step_shifted": "The tracker adds an offset to every step, since its run is a continued one.",
        "tracker_point_repeated": "The store would let a second point of one tag and step replace the first.",
        "tracker_tag_unsafe": "A tag is outside the safe grammar, or outside what the store can carry.",
        "tracker_name_invalid": "A session name or namespace is not one safe, non-empty component.",
        # Points and grids.
        "point_field_invalid": "A field of a point has the wrong type or value.",
        "point_step_invalid": "A step is not an integer in 0 .. 2**63-1.",
        "grid_invalid": "A histogram grid descriptor is malformed.",
        "grid_mismatch": "Histograms over different grids were merged or compared as one.",
        # Statistics.
        "statistics_dtype_unsupported": "Statistics are defined for float64, float32, float16 and bfloat16 only.",
        "statistics_layout_unsupported": "Statistics need a dense tensor that holds data.",
        "statistics_backend_unavailable": "The requested statistics backend cannot run here.",
        # Watching.
        "watch_model_invalid": "What was given as the model is not a torch.nn.Module.",
        "watch_signals_invalid": "The signals are empty, repeated, or not of the closed list.",
        "watch_selector_invalid": "A selector is of another kind than the grain takes.",
        "watch_selector_matched_no_sites": "A selector names nothing that the signals could be watched at.",
        "watch_settings_invalid": "A setting of the watch is not one of the allowed values.",
        "watch_budget_invalid": "A budget is not a positive integer, or was given twice.",
        "watch_budget_exceeded": "What was asked for costs more than a budget allows.",
        "watch_optimizer_invalid": "The optimizer cannot be watched, or holds none of the watched parameters.",
        "watch_sparse_grad_unsupported": "A watched gradient would be sparse.",
        "watch_sharded_unsupported": "A watched parameter is sharded over processes.",
        "watch_dtype_unsupported": "A watched tensor has a dtype that has no statistics.",
        "watch_compiled_unsupported": "What is watched lies inside a compiled graph or scripted code.",
        "watch_tier_inputs_missing": "Watching module outputs needs select= and inputs=.",
        "watch_tier_unavailable": "A signal, or a model in this wrapper, cannot be watched at this grain.",
        "watch_forward_wrap_consent_required": "Op grain wraps the forward, and consent was not given.",
        "watch_facet_shape_invalid": "A split into facets does not fit the shape of an operation's output.",
        "watch_discovery_failed": "The model raised in the discovery forward.",
        "watch_env_config_invalid": "An environment variable of a callback is malformed.",
        "watch_session_closed": "The watch session is closed.",
        "watch_check_invalid": "A check row has no legal name or outcome.",
        "watch_step_source_missing": "An optimizer stepped, and nothing says which step it was.",
        "watch_step_conflict": "Two sources of the step disagree, or step scopes nest.",
        "watch_step_invalid": "A step given to the watch is not an integer in 0 .. 2**63-1.",
        "watch_step_regression": "A step is not larger than the one before it in its segment.",
        "watch_phase_missing": "A step ended before something that its signals need had happened.",
        "watch_close_empty": "The run saw steps, and no data point of it arrived anywhere.",
        "tracker_namespace_collision": "Another watcher on the model would share the names of this one.",
        "tracker_scale_invalid": "A loss scale is not a power of two, so nothing exact can be derived from it.",
        # Readers.
        "reader_path_missing": "There is nothing at the path.",
        "reader_path_ambiguous": "The folder holds several stores, and only one can be read.",
        "reader_file_empty": "The file or folder holds no data.",
        "reader_file_foreign": "The file is of another kind.",
        "reader_file_truncated": "The file ends in the middle of a record.",
        "reader_file_corrupt": "A record in the middle of the file does not check.",
        "reader_version_unsupported": "The file was written by a later version of its format.",
        # Specification.
        "spec_clause_unknown": "No clause has this id.",
        # Certification.
        "kit_subject_invalid": "A subject of certification is not described right.",
        "kit_subject_not_found": "The subject named on the command line cannot be imported.",
        "kit_check_unknown": "No check has this id.",
        "kit_defect_unknown": "No planted defect has this id.",
        "kit_profile_unknown": "No profile has this id.",
        "kit_report_invalid": "A report does not match its schema, its digest or its own counts.",
        "kit_deviations_invalid": "A file of known deviations is malformed, stale, duplicate, unmatched or expired.",
        # Fidelity.
        "graph_trace_invalid": "The object is no recorded forward, or holds no operation.",
        "graph_values_needed": "A model without values needs one in its forward.",
        "fidelity_route_unknown": "No route or use has this name, or none of a named tracker's.",
        "fidelity_checkpoint_invalid": "The checkpoint folder does not hold a distilgpt2 model.",
        "fidelity_fixture_invalid": "The fixture of sent points does not match its digest.",
        "fidelity_result_invalid": "A file of measured results does not validate against its schema.",
        "fidelity_output_invalid": "The output folder cannot be written.",
        "fidelity_tracker_unknown": "No route measures this tracker.",
        "fidelity_version_unmeasured": "The table of versions has no measurement of this version.",
        "fidelity_versions_alike": "Two versions of a tracker were measured with equal files.",
        "fidelity_not_comparable": "Two measured files sent other points, share no measured cell, or one is void.",
        "fidelity_pins_invalid": "The pins file cannot be read, contradicts itself, or cannot be renewed.",
        "fidelity_matrix_unreadable": "The version matrix could not be read from tox.",
    }
)
"""Every refusal code with its meaning, in one line each (PROT-9)."""


class _Fields(dict[str, object]):
    """The fields of one refusal; ``fields["code"]`` reads the code as well, as torchlens spells it."""

    def __init__(self, code: str, fields: Mapping[str, object]) -> None:
        super().__init__(fields)
        self._code = code

    def __missing__(self, key: str) -> object:
        if key == "code":
            return self._code
        raise KeyError(key)


class Refusal(Exception):
    """A typed "no": raised before any side effect, never for a bug of ours.

    Args:
        code: A key of :data:`REFUSAL_CODES`; callers branch on it.
        message: What was wrong, one sentence.
        remedy: What the caller can do about it, one sentence.
        **fields: The offending values by name; they must be picklable.

    Attributes:
        code: The stable code.
        fields: The offending values; ``fields["code"]`` is the code too.
        remedy: The way out.

    Clause: PROT-9.
    """

    def __init__(self, code: str, message: str, *, remedy: str, **fields: object) -> None:
        if code not in REFUSAL_CODES:
            raise LookupError(f"refusal code {code!r} stands in no table; add it to REFUSAL_CODES")
        super().__init__(message)
        self.code = code
        self.message = message
        self.remedy = remedy
        self.fields: dict[str, object] = _Fields(code, fields)

    def __str__(self) -> str:
        """Code, message, fields and remedy in one text."""
        shown = ", ".join(f"{key}={short_repr(value)}" for key, value in self.fields.items())
        return f"[{self.code}] {self.message}{f' ({shown})' if shown else ''} Remedy: {self.remedy}"

    def __reduce__(self) -> tuple[object, ...]:
        """Pickle by arguments, so that a refusal crosses process borders whole."""
        return (_rebuild, (self.code, self.message, self.remedy, dict(self.fields)))

    def as_dict(self) -> dict[str, object]:
        """The refusal as standard JSON values; fields that JSON has no form for (NaN, say) are shown as text."""
        return {"code": self.code, "message": self.message, "fields": _plain(self.fields), "remedy": self.remedy}


def documented_codes() -> Iterator[tuple[str, str]]:
    """Yield every code with its meaning, in the order of the table."""
    yield from REFUSAL_CODES.items()


def _rebuild(code: str, message: str, remedy: str, fields: dict[str, object]) -> Refusal:
    return Refusal(code, message, remedy=remedy, **fields)


def short_repr(value: object, *, limit: int = 200) -> str:
    """Return ``repr(value)``, cut to ``limit`` characters; a value that cannot be shown is named by its type."""
    try:
        text = repr(value)
    except Exception:
        # Python refuses to show integers of more than 4300 digits; a refusal must not fail over what it refuses.
        text = f"<{type(value).__name__} that cannot be shown>"
    return text if len(text) <= limit else f"{text[: limit - 3]}..."


def _plain(value: object) -> object:
    if value is None or isinstance(value, (bool, str)):
        return value
    if isinstance(value, int) and -(2**63) <= value < 2**64:
        return value
    if isinstance(value, float) and isfinite(value):
        return value
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return short_repr(value, limit=1000)
