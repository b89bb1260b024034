"""What a device's process loads: torch and its own side, and nothing of the server's."""

import os
import re
import subprocess
import sys

import pytest

from potluck.core import codec
from potluck.core.job import ModelSpec
from potluck.deploy import demo, parcels
from potluck.deploy.https.hub import Hub
from potluck.deploy.members import joining, roster
from potluck.deploy.port import Outgoing
from potluck.deploy.sample import make_sample
from potluck.experiment.prepare import prepare
from potluck.jobs import Train

pytestmark = pytest.mark.slow
HEAVY = ("aiohttp", "matplotlib", "pandas", "plotly", "pydantic", "scipy", "sklearn")
SERVERS = ("deploy.conduct", "experiment", "rules", "simulate")


def test_a_device_that_works_loads_nothing_of_the_servers(tmp_path):
    setting = prepare(make_sample().with_overrides(["data.clients=1", "algorithms.fedavg.clients=1"]))
    (name,) = demo.lay_out(setting, tmp_path)
    home = tmp_path / demo.HOME
    host, port = roster.read(home).server.address.split(":")
    hub = Hub((host, int(port)), home, tmp_path / "blobs", joining.Members(home).find)
    command = [sys.executable, "-X", "importtime", "-m", "potluck", "deploy", "device", str(tmp_path / name)]
    job, params = Train(ModelSpec("mlp")), setting.models[ModelSpec("mlp")].init(0)
    work = parcels.pack(parcels.Work("run/1/0", job, 1, None, None, 0))
    with open(tmp_path / "log", "wb") as log:
        env = {**os.environ, "OMP_NUM_THREADS": "1"}
        process = subprocess.Popen(command, stdout=log, stderr=log, env=env)
    try:
        hub.post_all([Outgoing(0, "run/1/0", work, codec.encode({"params": params}))])
        (heard,) = hub.poll(90.0)
    finally:
        process.terminate()
        process.wait(20)
        hub.close()
    told, _ = parcels.unpack_report(heard.parcel)
    assert isinstance(told, parcels.Done), told
    loaded = re.findall(r"^import time: .* \| +(\S+)$", (tmp_path / "log").read_text(), re.MULTILINE)
    assert "torch" in loaded
    unwanted = (*HEAVY, *(f"potluck.{name}" for name in SERVERS))
    assert [m for m in loaded if any(m == u or m.startswith(f"{u}.") for u in unwanted)] == []
