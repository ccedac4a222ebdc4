"""An offline ClearML task that records what it is given and nothing else, for measurements and tests (CLEARML-1)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

CONFIG_FILE = Path(__file__).with_name("clearml_offline.conf")
"""Settings that make an offline session quick: no server, and a reporter that is a thread."""

FRAMEWORKS = (
    *("matplotlib", "tensorflow", "pytorch", "megengine", "xgboost", "scikit", "detect_repository", "fastai"),
    *("lightgbm", "hydra", "jsonargparse", "joblib", "catboost", "gradio", "tfdefines"),
)
"""What ClearML hooks into unless it is given as False; detect_repository asks a host for updates in a thread."""


def offline_environment(place: Path) -> Mapping[str, str]:
    """Return the environment variables that keep ClearML offline and its sessions under ``place``/cache.

    They must be set before clearml is imported: it reads its settings then, and 2.1.0 logs in, before anyone can call
    ``set_offline``.
    """
    return {
        "CLEARML_CACHE_DIR": str(place / "cache"),
        "CLEARML_CONFIG_FILE": str(CONFIG_FILE),
        "CLEARML_OFFLINE_MODE": "1",
    }


def start_offline_task(name: str, *, tensorboard: bool = False, **continuing: Any) -> Any:
    """Start an offline task that captures nothing by itself, or continue one.

    Args:
        name: The task's name.
        tensorboard: Whether it captures what TensorBoard's writers write.
        continuing: Arguments of ``Task.init`` that say which task is continued, and how; none starts a new one.
    """
    from clearml import Task

    Task.set_offline(True)
    return Task.init(
        project_name="conformance",
        task_name=name,
        auto_connect_arg_parser=False,
        auto_connect_frameworks={"tensorboard": tensorboard, **dict.fromkeys(FRAMEWORKS, False)},
        auto_resource_monitoring=False,
        auto_connect_streams=False,
        **(continuing or {"reuse_last_task_id": False}),
    )
