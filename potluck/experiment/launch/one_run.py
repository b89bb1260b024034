"""One run, computed by a process that was started for it, into its folder; others hear of it by `tell`."""

from collections.abc import Sequence

from potluck.execute.tune.autotune import PlanChoice
from potluck.experiment import runs
from potluck.experiment.launch import execution_plan
from potluck.experiment.launch.child import Tell
from potluck.experiment.launch.follower import Done, Missing
from potluck.experiment.prepare import Setting
from potluck.experiment.run_events import Callback, Ended, Evaluated, Noted, RoundDone, Started
from potluck.federation import Federation


class RelayStart(Callback):
    """Tells the parent where a run begins or goes on."""

    def __init__(self, tell: Tell) -> None:
        self.tell = tell

    def on_start(self, event: Started) -> None:
        self.tell(event)


class Relay(RelayStart):
    """Sends what happens to the parent, whose callbacks hear it there."""

    def on_round(self, event: RoundDone) -> None:
        self.tell(event)

    def on_evaluate(self, event: Evaluated) -> None:
        self.tell(event)

    def on_note(self, event: Noted) -> None:
        self.tell(event)

    def on_end(self, event: Ended) -> None:
        self.tell(event)


def compute_run(
    run: Missing,
    choice: PlanChoice | None,
    federation: Federation,
    beside: bool,
    relay: Sequence[Callback],
    tell: Tell,
) -> Done:
    """Begin it, or go on with it; `beside`: others are computed on the same cores."""

    def choose(setting: Setting) -> PlanChoice:
        chosen = choice or execution_plan.choose_plan(setting)
        return execution_plan.drop_workers(chosen) if beside else chosen

    if run.state == "begun":
        done = runs.resume(
            run.place, tell, federation=federation, callbacks=relay, name=run.name, lenient=True
        )
    else:
        done = runs.run(
            run.experiment,
            run.place,
            tell,
            federation=federation,
            force=run.state == "other",
            callbacks=relay,
            name=run.name,
            choose=choose,
            lenient=True,
        )
    return Done(done.summary["accuracy_mean"], done.summary["wall_seconds"], done.notices, done.failed)
