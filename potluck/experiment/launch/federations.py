"""Data, devices and models, which runs share that differ in the rest only."""

from potluck.core.errors import error_context
from potluck.data import Pool
from potluck.experiment import build, toml
from potluck.experiment.schema.experiment import Experiment
from potluck.experiment.schema.settings import dump_all
from potluck.federation import Federation

KEPT = 2  # at a time: they may be large, and runs come seed by seed
NOT_FEDERATION = (
    *("name", "algorithm", "algorithms", "compare", "seeds"),
    *("train", "robust", "stop", "evaluate", "tune", "log"),
)


class Federations:
    """Those that were built last; `pool` holds their data, if no file does."""

    def __init__(self, pool: Pool | None = None) -> None:
        self.pool = pool
        self._built: dict[str, Federation] = {}

    def find(self, full: Experiment) -> Federation:
        """That of a resolved experiment."""
        tables = {key: value for key, value in dump_all(full).items() if key not in NOT_FEDERATION}
        shifts = dump_all(full.evaluate).get("shifts", [])  # test rows are laid out for them
        key = toml.write({**tables, "shifts": shifts})
        if key not in self._built:
            while len(self._built) >= KEPT:
                self._built.pop(next(iter(self._built)))
            with error_context(full.source):
                self._built[key] = build.build_federation(full, self.pool)
        return self._built[key]
