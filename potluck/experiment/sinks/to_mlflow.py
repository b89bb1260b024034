"""A run in MLflow's store, wherever MLflow is told to keep it (MLFLOW_TRACKING_URI)."""

import re
import time
from itertools import islice
from pathlib import Path

from potluck.execute.tune.cache import find_path
from potluck.experiment.run_events import Callback, Ended, Evaluated, Started
from potluck.experiment.run_lock import take_turns
from potluck.experiment.sinks.log_folder import flatten, make_log_folder, read_id, write_id

SERIAL = "evaluation"  # the metric that says which evaluations are there
LONGEST = 500  # characters of a value that every version of MLflow takes
MANY = 100  # settings that may be written at once


class MlflowLog(Callback):
    """Settings as parameters, evaluations as metrics over rounds; one run, also after it was resumed."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.known: set[int] = set()  # evaluations that are there

    def on_start(self, event: Started) -> None:
        import mlflow
        from mlflow.entities import Param

        make_log_folder(self.root)
        self.run = read_id(self.root, "mlflow")
        with take_turns(find_path().parent):  # two runs that make the tables of one store spoil them
            self.client = mlflow.MlflowClient()
            place = self._find_experiment(event.experiment)
        if self.run is not None:  # it was begun before
            try:
                points = self.client.get_metric_history(self.run, SERIAL)
                self.client.update_run(self.run, status="RUNNING")
                self.known = {int(point.value) for point in points}
            except mlflow.MlflowException:  # another store: it is a new run there
                self.run = None
        if self.run is None:
            made = self.client.create_run(
                place,
                run_name=event.run,
                tags={"potluck.folder": str(self.root), "potluck.algorithm": event.algorithm},
            )
            self.run = str(made.info.run_id)
            write_id(self.root, "mlflow", self.run)
            settings = iter(Param(key, str(value)[:LONGEST]) for key, value in flatten(event.settings))
            while some := list(islice(settings, MANY)):
                self.client.log_batch(self.run, params=some)
        for each in event.history:
            self.on_evaluate(each)

    def on_evaluate(self, event: Evaluated) -> None:
        from mlflow.entities import Metric

        if event.number in self.known:
            return
        self.known.add(event.number)
        numbers = {**event.numbers, "virtual_seconds": event.time, SERIAL: event.number}  # that one last
        now = int(1000 * time.time())
        self.client.log_batch(
            self.run, metrics=[Metric(_spell(name), n, now, event.round) for name, n in numbers.items()]
        )

    def on_end(self, event: Ended) -> None:
        if event.summary is not None:
            remarks = "; ".join(remark["text"] for remark in event.summary["remarks"])
            self.client.set_tag(self.run, "potluck.remarks", remarks or event.failed or "none")
        status = "FINISHED" if event.failed is None else "FAILED" if event.summary is not None else "KILLED"
        self.client.set_terminated(self.run, status)

    def _find_experiment(self, name: str) -> str:
        known = self.client.get_experiment_by_name(name)
        if known is None:
            return str(self.client.create_experiment(name))
        return str(known.experiment_id)


def _spell(name: str) -> str:
    """A name as MLflow takes it."""
    return re.sub(r"[^\w\-./ ]", "-", name)
