"""Judges one script: what each operation did, and the rows that came, against the model of the step law."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..model import Finding
from .looking import data_rows, finding, is_run_row
from .observation import ACKNOWLEDGED, REFUSED, Event, Observed, Row
from .step_model import ANY_REFUSAL, Op, Scope, StepModel, may_sample, must_sample

_SHOWN = 14


def script_text(ops: Sequence[Op]) -> str:
    """Return a script as a person writes it."""
    shown = "; ".join(map(str, ops[:_SHOWN]))
    return shown if len(ops) <= _SHOWN else f"{shown}; and {len(ops) - _SHOWN} more"


def judge_script(observed: Observed) -> list[Finding]:
    """Return what is wrong: the first operation that did what it must not, else the rows. Clause: STEP-1..4, STEP-7."""
    model = StepModel()
    ops: Sequence[Op] = observed.facts["ops"]
    during: dict[int, Scope | None] = {}
    for number, (op, event) in enumerate(zip(ops, observed.events[1:]), start=1):
        allowed = model.allowed(op)
        if not _is_allowed(event, allowed):
            return [_wrong_operation(observed.case, ops[:number], event, allowed)]
        before = model.open
        model.apply(op, event.code)
        during[number] = model.open or before
    closing = max(during, default=0)
    return [
        *_rows_of_scopes(observed, ops, model, during, closing),
        *_heartbeat(observed, ops, model),
        *_skips(observed, ops, model),
    ]


def _is_allowed(event: Event, allowed: set[str | None]) -> bool:
    if event.outcome == ACKNOWLEDGED:
        return None in allowed
    return event.outcome == REFUSED and (event.code in allowed or ANY_REFUSAL in allowed)


def _wrong_operation(case: str, ops: Sequence[Op], event: Event, allowed: set[str | None]) -> Finding:
    wanted = " or ".join(sorted("it returns" if code is None else f"{code}" for code in allowed))
    seen = "it returned" if event.outcome == ACKNOWLEDGED else f"{event.code or event.outcome}: {event.exception}"
    loss = "coerced" if event.outcome == ACKNOWLEDGED else "refused" if event.outcome == REFUSED else "crashed"
    return finding(f"{ops[-1]} did not do what the step law says.", wanted, seen, loss, f"{case}: {script_text(ops)}")


def _rows_of_scopes(
    observed: Observed, ops: Sequence[Op], model: StepModel, during: dict[int, Scope | None], closing: int
) -> list[Finding]:
    where = f"{observed.case}: {script_text(ops)}"
    found = []
    by_scope: dict[int, list[Row]] = {}
    for row in observed.first_rows:
        scope = during.get(row.during)
        last = model.scopes[-1].step if model.scopes else 0
        right = scope.step if scope is not None else last
        if ops[row.during - 1].what == "close" and scope is None:
            right = last
        elif scope is None:
            found.append(
                finding("A row came while no step was open.", "no row", f"{row.tag} at {row.step}", "coerced", where)
            )
            continue
        if type(row.step) is not int or row.step != right:
            text = f"step {row.step!r} for {row.tag}"
            found.append(finding("A row does not carry the caller's step.", f"step {right}", text, "coerced", where))
        if scope is not None:
            by_scope.setdefault(id(scope), []).append(row)
    for index, scope in enumerate(model.scopes):
        rows = by_scope.get(id(scope), [])
        found += _one_scope(scope, model.scopes[:index], rows, where)
    return found


def _one_scope(scope: Scope, earlier: Sequence[Scope], rows: Sequence[Row], where: str) -> list[Finding]:
    data = data_rows(rows)
    found = []
    if must_sample(scope) and not data:
        found.append(
            finding("A step that is due has no data row.", f"rows at {scope.step}", "none", "dropped silently", where)
        )
    if data and not may_sample(scope, earlier):
        seen = f"{len(data)} rows"
        found.append(
            finding("A step that is not due has data rows.", f"no row at {scope.step}", seen, "coerced", where)
        )
    twice = [tag for (tag, _), number in Counter((row.tag, row.kind) for row in data).items() if number > 1]
    if twice:
        found.append(
            finding("A series has two points at one step.", "one point", f"{twice[0]} twice", "coerced", where)
        )
    last = [row.value for row in rows if is_run_row(row, "last_step")]
    if data and last != [scope.step]:
        wanted = f"one row of value {scope.step}"
        found.append(
            finding("torchlens/run/last_step does not ride the block.", wanted, f"{last}", "dropped silently", where)
        )
    return found


def _heartbeat(observed: Observed, ops: Sequence[Op], model: StepModel) -> list[Finding]:
    rows = observed.first_rows
    beats = [index for index, row in enumerate(rows) if is_run_row(row, "attached")]
    data = [index for index, row in enumerate(rows) if data_rows([row])]
    first = model.scopes[0].step if model.scopes else 0
    wanted = f"one row at step {first}, before the data"
    where = f"{observed.case}: {script_text(ops)}"
    if len(beats) != 1 and not any(op.new_segment for op in ops):
        return [finding("The heartbeat is not one row.", wanted, f"{len(beats)} rows", "dropped silently", where)]
    # A run without data may write it at close, at the last seen step.
    steps = {first} if data or model.last is None else {first, model.last}
    if beats and (rows[beats[0]].step not in steps or (data and data[0] < beats[0])):
        seen = f"row {beats[0]} at step {rows[beats[0]].step}, first data row {data[0] if data else 'none'}"
        return [finding("The heartbeat does not ride the first seen step.", wanted, seen, "coerced", where)]
    return []


def _skips(observed: Observed, ops: Sequence[Op], model: StepModel) -> list[Finding]:
    if observed.report is None:
        return []
    named = set(observed.report.skips)
    return [
        finding(
            "A step that the scaler left out is not named.",
            f"amp_skipped at {scope.step}",
            f"{sorted(map(str, named)) or 'no named skip'}",
            "dropped silently",
            f"{observed.case}: {script_text(ops)}",
        )
        for scope in model.scopes
        if scope.overflow and scope.left and not scope.failed and not scope.boundary
        if ("amp_skipped", scope.step) not in named
    ]
