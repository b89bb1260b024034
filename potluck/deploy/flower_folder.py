"""The folder of a Flower app: what `flwr run` takes. It holds no key and no row; every node is sent it."""

import re
from pathlib import Path

import tomli_w

from potluck.core.errors import ConfigError
from potluck.deploy.conduct.deployment import settle
from potluck.deploy.conduct.whole_run import count_rows, load_server_rows
from potluck.deploy.members import roster
from potluck.experiment.schema.experiment import Experiment

EXPERIMENT = "experiment.toml"
RUN = "potluck-run"  # of the run's config: its folder, on the SuperLink's machine
SERVER_APP = '''"""The server of a Potluck run on Flower."""

from pathlib import Path

from potluck.deploy.flower import make_server

app = make_server(Path(__file__).parent)
'''
CLIENT_APP = '''"""A device of a Potluck run on Flower."""

from potluck.deploy.flower import make_client

app = make_client()
'''


def write_app(home: Path, experiment: Experiment, out: Path, run: Path) -> None:
    """Write an app's folder; what can't be deployed is refused here. `run`: the run's folder."""
    if out.exists() and any(out.iterdir()):
        raise ConfigError(f"out = {str(out)!r}: exists already; name another folder, or delete it")
    found = roster.read(home)
    settle(experiment, found, count_rows(load_server_rows(home, found)))
    plain = roster.hide_certificates(found)
    place = plain.server.data
    if place is not None and place.endswith(".npz"):
        server = plain.server.model_copy(update={"data": str((home / place).resolve())})
        plain = plain.model_copy(update={"server": server})
    out.mkdir(parents=True, exist_ok=True)
    (out / "pyproject.toml").write_text(tomli_w.dumps(_describe(found.federation.name, run.resolve())))
    (out / "server_app.py").write_text(SERVER_APP)
    (out / "client_app.py").write_text(CLIENT_APP)
    (out / EXPERIMENT).write_text(experiment.to_toml())
    roster.write(out, plain)


def _describe(name: str, run: Path) -> dict[str, object]:
    """pyproject.toml; dependencies are installed beside flwr, on each machine, by whoever owns it."""
    plain = re.sub(r"[^A-Za-z0-9]+", "-", name).strip("-")[:30]
    return {
        "project": {
            "name": f"potluck-{plain}".strip("-"),
            "version": "1.0.0",
            "description": "A run of Potluck's, with the nodes of a SuperLink",
            "dependencies": [],
        },
        "tool": {
            "flwr": {
                "app": {
                    "publisher": "potluck",
                    "components": {"serverapp": "server_app:app", "clientapp": "client_app:app"},
                    "config": {RUN: str(run)},
                }
            }
        },
    }
