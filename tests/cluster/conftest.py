"""A Ray cluster of this machine alone: a head without cores, and nodes of one core, which tests may kill."""

import os
import signal
import subprocess
from contextlib import contextmanager
from pathlib import Path

import pytest
from apart import until

STORE = 100 << 20  # bytes
ENVIRONMENT = {  # deaths are noticed in seconds, and workers are as important as anybody
    "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0",  # all of it listens on 127.0.0.1
    "RAY_worker_niceness": "0",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_failure_threshold": "5",
}


class Machines:
    """The nodes of the cluster."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.address = cluster.address
        self.nodes = [self.add(), self.add()]

    def add(self, num_cpus=1):
        return self.cluster.add_node(
            num_cpus=num_cpus, object_store_memory=STORE, node_ip_address="127.0.0.1"
        )

    @contextmanager
    def adding(self, num_cpus, **settings):
        """One more for a while, with settings of Ray's."""
        with pytest.MonkeyPatch.context() as patch:
            for name, value in settings.items():
                patch.setenv(name, value)
            node = self.add(num_cpus)
        try:
            yield
        finally:
            self.cluster.remove_node(node)

    def find(self, run):
        """The node that computes a run."""
        for node in self.nodes:
            if any(f"ray::{run}" in name for name in list_names(find_raylet(node))):
                return node
        return None

    def list_spawned(self):
        """Children that compute runs, whoever started them."""
        told = subprocess.run(["ps", "-ww", "-eo", "pid=,stat=,args="], capture_output=True, text=True).stdout
        lines = [line.split(None, 2) for line in told.splitlines()]
        return [int(pid) for pid, stat, args in lines if "spawn_main" in args and not stat.startswith("Z")]

    def kill(self, node):
        """As if its power went; another one takes its place."""
        os.kill(find_raylet(node), signal.SIGKILL)
        self.nodes.remove(node)
        self.cluster.remove_node(node, allow_graceful=False)
        self.nodes.append(self.add())


def find_raylet(node):
    return node.all_processes["raylet"][0].process.pid


def list_names(parent):
    """What the children of a process are called."""
    told = subprocess.run(["ps", "-ww", "-o", "args=", "--ppid", str(parent)], capture_output=True, text=True)
    return told.stdout.splitlines()


@pytest.fixture(scope="session")
def machines(tmp_path_factory):
    room = tmp_path_factory.mktemp("node")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in ENVIRONMENT.items():
            patch.setenv(name, value)
        patch.setenv("RAY_TMPDIR", "/tmp")  # paths of its sockets must be short
        patch.setenv("TMPDIR", str(room))
        patch.setenv("POTLUCK_CACHE", str(room / "cache"))
        patch.setenv("POTLUCK_DATA", str(room / "data"))  # there is none
        patch.setenv("OMP_NUM_THREADS", "1")
        ray = pytest.importorskip("ray")  # reads its settings when it is imported
        from ray.cluster_utils import Cluster

        head = {"num_cpus": 0, "object_store_memory": STORE, "include_dashboard": False}
        cluster = Cluster(True, head_node_args={**head, "node_ip_address": "127.0.0.1"})
        try:
            found = Machines(cluster)
            found.rooms = room / f"potluck-afar-{os.getuid()}"
            yield found
        finally:
            ray.shutdown()
            cluster.shutdown()


@pytest.fixture(autouse=True)
def nothing_is_left(machines):
    """No child goes on after its test."""
    yield
    until(lambda: not machines.list_spawned(), seconds=30)


@pytest.fixture
def code(tmp_path):
    path = tmp_path / "own.py"
    path.write_text(Path(__file__).with_name("own_code.py").read_text())
    return path
