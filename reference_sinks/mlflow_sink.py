"""MLflowSink: points as metrics and artifacts of an MLflow run (MLFLOW-1)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from math import copysign, isinf
from types import ModuleType
from typing import Any

from torchlens_conformance.protocol import LARGEST_STEP, HistogramPoint, Refusal, RelayState, ScalarPoint, TextPoint

from .encodable import require_encodable_text
from .jsonl_rows import encode_histogram
from .mlflow_batch import Batch
from .mlflow_layout import HISTOGRAM, TEXT, file_name, parse_path, require_artifact_folder, require_metric_name
from .packages import require_package
from .sink_state import SinkState

_CLIENT_METHODS = ("get_run", "get_metric_history", "log_batch", "log_artifacts", "list_artifacts")


class MLflowSink:
    """Write points to an MLflow run, over its tracking server or straight into its database.

    The sink neither starts nor ends runs. What the run holds afterwards:

    - Scalars are metrics, exact: every finite float but -0.0, NaN, and integers that a float64 holds exactly. MLflow's
      SQL stores make the largest float of an infinity, 0.0 of -0.0, and floats of all integers; what that would change
      is refused with ``tracker_value_unsupported``.
    - Texts are artifacts, ``<tag>/step_<10 digits>.txt``, exact. Histograms are artifacts, ``.json`` with counts, edges
      and summary, exact. One file a point, so keep histograms sparse. A second text or histogram of one tag and step
      would replace the first; it is refused with ``tracker_point_repeated``.
    - Steps are exact, and may fall or repeat.

    MLflow keeps two numbers of one tag, step, value and millisecond as one. So the sink gives each number of a series a
    later millisecond than the one before it, those included that the run held before: all are kept, and the sink's own
    in order. For that the history of a series is asked for once, and only when the run was given numbers of it before,
    at this step or a later one. Two sinks that are open on one run at once know nothing of each other: the same number
    within one millisecond is kept once, and a file replaces one of its name.

    Points are gathered, since a call of MLflow costs 10 ms and more. They are in the store

    - after ``flush()`` and ``close()``,
    - when the step changes and the first of those gathered is a second old,
    - when 200 numbers, or 8 MiB of files, are gathered.

    What was gathered and not written is lost when the process is killed; killed while it writes files, it leaves a
    folder ``torchlens-mlflow-*`` among the temporary files. A batch that MLflow does not take is given up,
    and the call that tried to write it refuses ``tracker_sink_write_failed`` with the number of points. A server that
    does not answer holds that call for as long as MLflow's own retries take (``MLFLOW_HTTP_REQUEST_MAX_RETRIES``).
    Every batch with texts sets one tag on the run, ``torchlens.texts_under_way``, by which a reader tells a text that a
    killed process left cut.

    Args:
        client: The module ``mlflow``, whose active run is taken; an ``MlflowClient``, with ``run_id``; or nothing,
            which means the module.
        run_id: The run; with the module it replaces the active one.

    Raises ``tracker_sink_unavailable`` and ``tracker_sink_settings_invalid`` (no run, a deleted one, a store that
    cannot be opened, an artifact store that does not answer). Every ``emit_*`` raises ``tracker_sink_closed``,
    ``tracker_sink_forked``, ``tracker_tag_unsafe``, ``tracker_value_unsupported`` and ``tracker_sink_write_failed``.

    Clause: MLFLOW-1, PROT-1, PROT-6, PROT-10, PROT-11, POINT-3.
    """

    def __init__(self, client: Any = None, *, run_id: str | None = None) -> None:
        self._library = require_package("mlflow", extra="mlflow")
        self._state = SinkState(type(self).__name__)
        module = self._library if client is None else client
        if isinstance(module, ModuleType) and hasattr(module, "MlflowClient"):
            run_id = _run_of(module) if run_id is None else run_id
            client = _asked(module.MlflowClient, "client")
        self._client, self._run_id = client, _require_named_run(client, run_id)
        # Of each series that is there: the largest step, until its history was asked for.
        self._found_steps = _largest_steps(self._require_active())
        # Where nothing is, nothing can be replaced; else each tag's folder is looked at once.
        self._found_files = bool(_asked(lambda: client.list_artifacts(run_id), "client"))
        self._lock = threading.Lock()
        self._batch = Batch()
        self._step: int | None = None
        self._times: dict[str, int] = {}
        self._file_steps: dict[tuple[str, str], int] = {}
        self._taken = self._written = 0

    def capabilities(self) -> frozenset[str]:
        """Return what a run carries: scalars, raw histograms and texts. Clause: PROT-2."""
        return frozenset({"scalar", "raw_histogram", "text_manifest"})

    def emit_scalar(self, point: ScalarPoint) -> None:
        """Gather one metric. Clause: MLFLOW-1."""
        self._state.require_usable()
        require_metric_name(point.tag)
        value = storable_number(point)
        with self._lock:
            self._turn_to(point.step)
            self._batch.add_metric(point.tag, value, self._later_moment(point), point.step)
            self._count()

    def emit_histogram(self, point: HistogramPoint) -> None:
        """Gather one histogram as a file of JSON. Raises ``tracker_point_repeated`` as well. Clause: MLFLOW-1."""
        self._emit_file(point, HISTOGRAM, lambda: encode_histogram(point))

    def emit_text(self, point: TextPoint) -> None:
        """Gather one text as a file of UTF-8. Raises ``tracker_point_repeated`` as well. Clause: MLFLOW-1."""
        self._emit_file(point, TEXT, lambda: _utf8(point))

    def flush(self) -> None:
        """Write everything gathered; what it returns for survives the death of the process. Clause: PROT-6, PROT-10.

        Raises ``tracker_sink_write_failed``, ``tracker_sink_closed`` and ``tracker_sink_forked``.
        """
        self._state.require_usable()
        with self._lock:
            self._write()

    def close(self) -> None:
        """Write everything gathered and take nothing more; the run stays as it is. Again, it does nothing.

        Raises ``tracker_sink_write_failed``, and is closed all the same. In a forked child it only closes.
        Clause: PROT-6.
        """
        if self._state.close():
            with self._lock:
                self._write()

    def preflight_tags(self, tags: Iterable[str]) -> None:
        """Refuse ``tracker_tag_unsafe`` for what cannot be a metric or a folder of files. Clause: PROT-7, MLFLOW-1."""
        for tag in tags:
            require_artifact_folder(tag)

    def relay_state(self) -> RelayState:
        """Return ``emitted`` once something was taken: what MLflow's server does with it is not in sight.

        Clause: PROT-8.
        """
        evidence = f"{self._taken} points were taken for run {self._run_id}; MLflow has acknowledged {self._written}"
        return RelayState("emitted" if self._taken else "computed", evidence)

    def last_step(self) -> int | None:
        """Return the largest step of the run's metrics, or None for a run without any; files do not count.

        Raises ``tracker_sink_settings_invalid`` and ``tracker_sink_write_failed``. Clause: PROT-11.
        """
        if self._state.forked:
            return None
        if not self._state.closed:
            self.flush()
        run = _asked(lambda: self._client.get_run(self._run_id), "run_id")
        return max((metric.step for metric in _latest(run)), default=None)

    def _later_moment(self, point: ScalarPoint) -> int:
        """Return a millisecond that no number of the series has, at the point's step or at one that this sink wrote."""
        before = self._times.get(point.tag, -1)
        if point.step <= self._found_steps.get(point.tag, -1):
            history = self._attempt(lambda: self._client.get_metric_history(self._run_id, point.tag), 1)
            before = max([before, *(metric.timestamp for metric in history)])
            del self._found_steps[point.tag]
        moment = self._times[point.tag] = max(time.time_ns() // 1_000_000, before + 1)
        return moment

    def _require_active(self) -> Any:
        run = _asked(lambda: self._client.get_run(self._run_id), "run_id")
        if run.info.lifecycle_stage != "active":
            # MLflow takes artifacts of a deleted run without a word, and refuses its metrics.
            raise _settings_refusal("run_id", f"The run {self._run_id} is deleted.", "Restore it, or start another.")
        return run

    def _emit_file(self, point: HistogramPoint | TextPoint, kind: str, encoded: Callable[[], bytes]) -> None:
        self._state.require_usable()
        require_artifact_folder(point.tag)
        content = encoded()
        with self._lock:
            self._turn_to(point.step)
            self._require_new(point.tag, point.step, kind)
            self._batch.add_file(point.tag, point.step, kind, content)
            self._file_steps[point.tag, kind] = max(point.step, self._file_steps.get((point.tag, kind), -1))
            self._count()

    def _turn_to(self, step: int) -> None:
        # Asked again under the lock: another thread may have closed the sink meanwhile.
        self._state.require_usable()
        if step != self._step:
            if self._batch.is_due:
                self._write()
            self._step = step

    def _count(self) -> None:
        self._taken += 1
        if self._batch.is_full:
            self._write()

    def _require_new(self, tag: str, step: int, kind: str) -> None:
        """Refuse a file that is there: past the largest step of its series there is none, else the store is asked."""
        latest = self._file_steps.get((tag, kind))
        if latest is None and self._found_files:
            found = [parse_path(path) for path in self._paths_of(tag)]
            latest = max((file.step for file in found if file is not None and file.kind == kind), default=-1)
            self._file_steps[tag, kind] = latest
        if latest is None or step > latest:
            return
        path = f"{tag}/{file_name(step, kind)}"
        if path in self._batch or path in self._paths_of(tag):
            raise Refusal(
                "tracker_point_repeated",
                "MLflow keeps one file of a name, and would replace the first one without a word.",
                remedy="Log each text and histogram once a step; repeat a run in a run of its own.",
                tag=tag,
                step=step,
            )

    def _paths_of(self, tag: str) -> set[str]:
        listed = self._attempt(lambda: self._client.list_artifacts(self._run_id, tag), 1)
        return {item.path for item in listed}

    def _write(self) -> None:
        if not len(self._batch):
            return
        points = len(self._batch)
        try:
            self._attempt(lambda: self._batch.write(self._client, self._run_id, library=self._library), points)
        except Refusal:
            self._batch = Batch()
            raise
        # Not in a finally: what an interrupt kept from being written is written the next time.
        self._batch = Batch()
        self._written += points

    def _attempt(self, call: Callable[[], Any], points: int) -> Any:
        # MLflow raises exceptions of its own, of requests, of SQLAlchemy and OSError, by way and by version.
        try:
            return call()
        except Exception as error:
            raise Refusal(
                "tracker_sink_write_failed",
                f"MLflow did not do what it was asked: {_said(error)}",
                remedy="See that the store can be written and its server answers, and make a new sink.",
                run_id=self._run_id,
                points=points,
                error=type(error).__name__,
            ) from error


def _latest(run: Any) -> Iterable[Any]:
    """Return the metric of the largest step for each name; the public mapping has values only."""
    found: Iterable[Any] = getattr(run.data, "_metric_objs", ())
    return found


def _largest_steps(run: Any) -> dict[str, int]:
    return {**dict.fromkeys(run.data.metrics, LARGEST_STEP), **{metric.key: metric.step for metric in _latest(run)}}


def storable_number(point: ScalarPoint) -> float:
    """Return the float64 that stands for a scalar in MLflow.

    Raises ``tracker_value_unsupported`` for what MLflow would change. Clause: MLFLOW-1, POINT-3.
    """
    try:
        number = float(point.value)
    except OverflowError:
        raise _value_refusal(point, "MLflow stores float64, and this integer is beyond their range") from None
    if number != point.value and number == number:
        raise _value_refusal(point, f"MLflow stores float64, and this integer would become {number!r}")
    if isinf(number):
        raise _value_refusal(point, "MLflow's SQL stores make the largest float of an infinity")
    if number == 0 and copysign(1.0, number) < 0:
        raise _value_refusal(point, "MLflow's sqlite store makes 0.0 of -0.0")
    return number


def _utf8(point: TextPoint) -> bytes:
    require_encodable_text(point.text, tag=point.tag, store="MLflow")
    return point.text.encode()


def _run_of(module: ModuleType) -> str:
    run = module.active_run()
    if run is None:
        raise _settings_refusal("run_id", "MLflow has no active run, and a sink starts none.", "Call mlflow.start_run.")
    found: str = run.info.run_id
    return found


def _require_named_run(client: Any, run_id: str | None) -> str:
    if not all(callable(getattr(client, name, None)) for name in _CLIENT_METHODS):
        raise _settings_refusal(
            "client", f"A {type(client).__name__} is no MLflow client.", "Pass mlflow, an MlflowClient, or nothing."
        )
    if not isinstance(run_id, str) or not run_id:
        raise _settings_refusal("run_id", "A client needs the run that it logs to.", "Pass run_id=run.info.run_id.")
    return run_id


def _asked(call: Callable[[], Any], setting: str) -> Any:
    """Return what MLflow answers at attach; what it raises is refused by name."""
    try:
        return call()
    except Exception as error:
        raise _settings_refusal(
            setting,
            f"MLflow does not open the run: {_said(error)}",
            "Give the id of a run, a sqlite or server URI, and the same URI to mlflow.set_tracking_uri.",
        ) from error


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"


def _settings_refusal(setting: str, message: str, remedy: str) -> Refusal:
    return Refusal("tracker_sink_settings_invalid", message, remedy=remedy, setting=setting)


def _value_refusal(point: ScalarPoint, why: str) -> Refusal:
    return Refusal(
        "tracker_value_unsupported",
        f"{why}.",
        remedy="Log it as text, or use a sink that keeps it, JSONLSink for example.",
        tag=point.tag,
        # Python refuses to show integers of more than 4300 digits.
        value=repr(point.value) if isinstance(point.value, float) else f"{point.value.bit_length()} bits",
    )
