"""Training runs are started here and read with `run`, like every other run."""

from tools.context import Context
from tools.registry import Traits, operation
from tools.start import Start, StartResult, start, start_text


@operation("train", "start", Traits(), text=start_text)
async def start_training(context: Context, request: Start) -> StartResult:
    """Start a training run (reinforcement on scored attempts) or a supervised one.

    `num_batches x tasks x trials_per_task` is the number of planned trial slots: not distinct
    tasks, optimizer steps or checkpoints. Optimizer state is fresh unless the plan says
    `"optimizer_initialization": "resume"`. With `--dry-run` nothing is started.
    """
    return await start(context, request, "train")
