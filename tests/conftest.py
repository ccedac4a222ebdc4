"""What holds for every test: no tracker takes part in the process of the tests by itself."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

from reference_sinks.comet_offline import QUIET

# transformers imports Comet when it is installed, and Comet then starts an experiment of its own with every MLflow run
# of the process (measured with comet_ml 3.58.8): an archive in the working directory, with source code and git patch.
os.environ.update(QUIET)

# The same examples every time, and no clock decides: a failure is one of the code. `--hypothesis-profile explore` looks
# further.
settings.register_profile("same", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("explore", deadline=None, max_examples=1000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("same")
