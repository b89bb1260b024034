"""A run for Weights & Biases in the folder `log`: for `wandb sync`, unless WANDB_MODE says otherwise."""

import os
import shutil
import uuid
from pathlib import Path

from potluck.experiment.run_events import Callback, Ended, Evaluated, Started
from potluck.experiment.sinks.log_folder import make_log_folder, read_id, write_id


class WandbLog(Callback):
    """Settings as configuration, evaluations over rounds; a resumed run has the same id.

    Offline it begins its folder anew then, with all that was before; online it adds what isn't there.
    """

    def __init__(self, root: Path) -> None:
        self.root = root

    def on_start(self, event: Started) -> None:
        import wandb

        place, mode = make_log_folder(self.root), os.environ.get("WANDB_MODE", "offline")
        known = read_id(self.root, "wandb")
        name = known or uuid.uuid4().hex[:8]
        if known is None:
            write_id(self.root, "wandb", name)
        for old in place.glob(f"wandb/offline-run-*-{name}"):
            shutil.rmtree(old)
        self.log = wandb.init(
            project=event.experiment,
            name=event.run,
            id=name,
            dir=place,
            config=dict(event.settings),
            mode=mode,
            resume="allow" if mode == "online" else None,
            reinit="create_new",
            settings=wandb.Settings(silent=True, console="off"),
        )
        self.log.define_metric("*", step_metric="round")
        self.first = self.log.starting_step if mode == "online" else 0
        for each in event.history:
            self.on_evaluate(each)

    def on_evaluate(self, event: Evaluated) -> None:
        if event.number >= self.first:
            numbers = {**event.numbers, "virtual_seconds": event.time, "round": event.round}
            self.log.log(numbers, step=event.number)

    def on_end(self, event: Ended) -> None:
        if event.summary is not None:
            self.log.summary["remarks"] = [remark["text"] for remark in event.summary["remarks"]]
        self.log.finish(exit_code=0 if event.failed is None else 1)
