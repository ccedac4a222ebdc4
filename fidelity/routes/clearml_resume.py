"""How an offline task of ClearML is ended and continued, natively and through its relay (bug report 24).

ClearML adds an offset to the iterations of a continued task: the last iteration it knows of, plus one. A server keeps
that number. An offline session does not, so the offset is 1 here; an offset of 0, and the one that a server would give,
can be asked for.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from reference_sinks.clearml_offline import start_offline_task
from reference_sinks.readers import ReadResult

from ..probes import RESUME_STEPS
from ..received import Received, Refused
from .resuming import NotOffered, Resume, Send, Way, begun_run_id, continue_run, keep_run_id

NO_OFFSET, SERVERS_OFFSET = 0, RESUME_STEPS[0][-1] + 1
"""The offset that leaves steps alone, and the one that a server would give to the run that is measured."""

_DEFAULT = "continue_last_task=<task id>"
_NAME = "continued"


def resume_of(
    log: Callable[..., list[Refused]],
    read: Callable[[ReadResult], Received],
    *,
    tensorboard: bool,
    offsets: Sequence[int] = (NO_OFFSET,),
) -> Resume:
    """Return how a route of ClearML is continued.

    Args:
        log: ``log(points, place, start=...)``: start a task, give it the points, close it, and return what was refused.
        read: Arranges what the session's reader gave.
        tensorboard: Whether the task captures what TensorBoard's writers write.
        offsets: Offsets that are asked for beside the default one.
    """

    def start(place: Path) -> Any:
        task = start_offline_task(_NAME, tensorboard=tensorboard)
        keep_run_id(place, task.id)
        return task

    def continuing(**how: Any) -> Send:
        return partial(log, start=partial(_continue_task, tensorboard=tensorboard, how=how))

    ways = [Way(_DEFAULT, continuing())]
    ways += [Way(f"continue_last_task={offset}", continuing(continue_last_task=offset)) for offset in offsets]
    return Resume(partial(log, start=start), tuple(ways), partial(_read_task, read=read))


def _continue_task(place: Path, *, tensorboard: bool, how: dict[str, Any]) -> Any:
    run_id = begun_run_id(place)
    # An id alone says both which task and that it is continued.
    arguments = {**how, "reuse_last_task_id": run_id} if how else {"continue_last_task": run_id}
    task = continue_run(lambda: start_offline_task(_NAME, tensorboard=tensorboard, **arguments))
    if task.id != run_id:
        offset = task.get_initial_iteration()
        task.close()
        raise NotOffered(f"offline ClearML started another task instead (with an offset of {offset})")
    return task


def _read_task(place: Path, *, read: Callable[[ReadResult], Received]) -> Received:
    from reference_sinks.readers import read_clearml

    return read(read_clearml(place / "cache" / "offline" / begun_run_id(place)))
