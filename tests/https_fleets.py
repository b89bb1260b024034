"""Devices of a stage over real HTTPS: a hub, wires, certificates of their own; some of them lie."""

import socket
import ssl
import threading
from contextlib import contextmanager
from types import MappingProxyType

from potluck.deploy.conduct.here import WithServer
from potluck.deploy.https.hub import Hub
from potluck.deploy.https.wire import Wire
from potluck.deploy.members import keyfiles, pki
from potluck.deploy.work.agent import Agent


def found_federation(home, names):
    """An authority, a server's certificate and some devices', in folders of their own."""
    pki.make_authority(home, "test")
    pki.make_server(home, "127.0.0.1")
    for name in names:
        (home / name).mkdir()
        request = pki.make_request(home / name, name)
        (home / name / keyfiles.DEVICE).write_bytes(pki.certify(home, name, request))
        (home / name / keyfiles.CA).write_bytes((home / keyfiles.CA).read_bytes())
    return home


class Liar(Agent):
    """A device that sends something else than it has computed, as its script says."""

    def __init__(self, device, wire, say, node, script):
        super().__init__(device, wire, say)
        self.node, self.script, self.count, self.send = node, script, 0, wire.report
        wire.report = self.report

    def report(self, key, report, give_up=lambda: False):
        if not key.startswith("hello") and "/e" not in key:
            report, self.count = self.script(self.node, self.count, report), self.count + 1
        return self.send(key, report, give_up)

    def _tell(self, report):
        """It keeps to itself what it does."""


class Fleet:
    """The stage's devices, each with a thread and a wire; its server with a hub."""

    def __init__(self, stage, keys, folder, scripts):
        self.known = {
            pki.find_fingerprint((keys / str(n) / keyfiles.DEVICE).read_bytes()): n for n in range(3)
        }
        self.said, self.told = [], {n: [] for n in range(3)}  # by the server, and by devices
        largest = stage.terms.limits.bytes
        self.hub = Hub(
            ("127.0.0.1", 0), keys, folder / "blobs", self.find, largest=largest, say=self.said.append
        )
        stage.server.say = self.said.append
        self.address, self.keys = f"127.0.0.1:{self.hub.address[1]}", keys
        self.agents = [self.make_agent(stage, n, scripts.get(n)) for n in range(3)]
        self.threads = [threading.Thread(target=agent.run, daemon=True) for agent in self.agents]
        self.port = WithServer(self.hub, 3, stage.devices[3])
        stage.server.poster.port = self.port
        for thread in self.threads:
            thread.start()

    def find(self, fingerprint):
        return self.known.get(fingerprint)

    def make_agent(self, stage, n, script):
        wire, say = Wire(self.address, self.keys / str(n)), self.told[n].append
        if script is not None:
            return Liar(stage.devices[n], wire, say, n, script)
        return Agent(stage.devices[n], wire, say)

    def connect(self, certificate=None):
        """A bare connection; the server's certificate is verified."""
        context = ssl.create_default_context(cafile=self.keys / keyfiles.CA)
        if certificate is not None:
            context.load_cert_chain(certificate / keyfiles.DEVICE, certificate / keyfiles.DEVICE_KEY)
        raw = socket.create_connection(self.hub.address, timeout=5)
        return context.wrap_socket(raw, server_hostname="127.0.0.1")

    def close(self):
        for agent in self.agents:
            agent.end()
        self.hub.close()
        self.port.close()
        for thread in self.threads:
            thread.join(10)


@contextmanager
def fleet(stage, keys, folder, scripts=MappingProxyType({})):
    """Three devices that work; `scripts`: by device, what it sends for its work."""
    made = Fleet(stage, keys, folder, scripts)
    try:
        yield made
    finally:
        made.close()
