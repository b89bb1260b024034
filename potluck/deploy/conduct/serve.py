"""The process of a server: it conducts one run over HTTPS."""

from collections.abc import Callable
from pathlib import Path

from potluck.deploy.conduct.deployment import Deployment
from potluck.deploy.conduct.server import Watch
from potluck.deploy.conduct.whole_run import Say, conduct
from potluck.deploy.https.hub import Hub
from potluck.deploy.members import joining
from potluck.experiment.schema.experiment import Experiment
from potluck.experiment.summary import Summary

BLOBS = "blobs"  # in a run's folder: large bodies that wait for devices


def serve(
    home: Path,
    experiment: Experiment,
    out: Path,
    *,
    listen: str | None = None,
    progress: Watch | None = None,
    until: Callable[[], bool] = lambda: False,
    say: Say = lambda line: None,
) -> Summary | None:
    """Conduct a run, or go on with it; None if it was ended before its time."""
    members = joining.Members(home, say)

    def open_hub(deployment: Deployment) -> Hub:
        host, _, port = (listen or deployment.roster.server.address).rpartition(":")
        return Hub(
            (host, int(port)),
            home,
            out / BLOBS,
            members.find,
            largest=deployment.terms.limits.bytes,
            join=joining.Registrar(home).admit,
            say=say,
        )

    return conduct(home, members.roster, experiment, out, open_hub, progress=progress, until=until, say=say)
