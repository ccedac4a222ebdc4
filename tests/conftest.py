"""What holds for every test: no tracker takes part in the process of the tests by itself."""

from __future__ import annotations

import os

from reference_sinks.comet_offline import QUIET

# transformers imports Comet when it is installed, and Comet then starts an experiment of its own with every MLflow run
# of the process (measured with comet_ml 3.58.8): an archive in the working directory, with source code and git patch.
os.environ.update(QUIET)
