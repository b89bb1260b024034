"""The folder of a deployed run: opened anew, or with the same run in it; what it says of its federation."""

import json
import secrets
from pathlib import Path
from typing import TypedDict

from potluck.core import safe_files
from potluck.core.errors import ConfigError, SnapshotError
from potluck.deploy.conduct.deployment import Deployment, settle
from potluck.deploy.members import roster
from potluck.execute.plan import ExecutionPlan
from potluck.experiment import code, folder
from potluck.experiment.launch import execution_plan

ABOUT = "federation.json"  # what all members had in common
OWN = "own"  # the server's own memory


class About(TypedDict):
    """What a run was begun with, beside its experiment."""

    roster: dict[str, object]  # without certificates
    server: dict[str, int]  # its own rows, by part
    run: str


def open_folder(out: Path, deployment: Deployment, server: dict[str, int]) -> str:
    """A run's folder, new or with the same run in it; the run's name among all."""
    if out.exists() and folder.is_run(out):
        if not safe_files.has_file(out, ABOUT):
            raise ConfigError(f"out = {str(out)!r}: holds a simulated run; name another folder")
        if folder.experiment(out).to_toml() != deployment.experiment.to_toml():
            raise SnapshotError(
                f"{out}: the run of another experiment; put the old file back, or name another folder"
            )
        return read_about(out)["run"]
    run = secrets.token_hex(16)
    plain = roster.hide_certificates(deployment.roster).model_dump(mode="json")
    about: About = {"roster": plain, "server": server, "run": run}
    files = {
        folder.EXPERIMENT: deployment.experiment.to_toml(),
        folder.PLAN: execution_plan.dump_plan(ExecutionPlan(), "each device computes for itself"),
        ABOUT: json.dumps(about, indent=2) + "\n",
        **code.record(),
    }
    folder.create(out, files, force=False)
    (out / OWN).mkdir()
    return run


def read_about(out: Path) -> About:
    """What a deployed run's folder says of its federation."""
    try:
        found: About = json.loads(safe_files.read_file(out, ABOUT))
        return {"roster": found["roster"], "server": found["server"], "run": found["run"]}
    except (ValueError, KeyError, TypeError):
        raise SnapshotError(f"{out / ABOUT}: damaged; put the old file back") from None


def load_deployment(out: Path) -> Deployment:
    """A run's terms, from its folder."""
    about = read_about(out)
    found = roster.Roster.model_validate(about["roster"])
    return settle(folder.experiment(out), found, about["server"])
