"""A federation on loopback, to measure: keys, devices that only echo or only wait, and a relay.

Run as a process of its own: `python -m bench.loopback echo|wait HOST:PORT FOLDER`.
"""

import asyncio
import os
import queue
import shutil
import socket
import ssl
import subprocess
import sys
import threading
from pathlib import Path

from potluck.deploy import parcels
from potluck.deploy.https.wire import Wire
from potluck.deploy.members import keyfiles, pki, roster

HOST = "127.0.0.1"
AT_ONCE = 20  # connections that are made at the same time
COMMON = {"name": "bench", "shape": [1, 8, 8], "classes": 10, "dtype": "float32"}


def found(home: Path, devices: int) -> list[Path]:
    """Keys and a roster for so many devices; the folder of each."""
    home.mkdir()
    pki.make_authority(home, "bench")
    pki.make_server(home, HOST)
    folders, seats = [], []
    for i in range(devices):
        own = home / f"device-{i}"
        own.mkdir()
        certificate = pki.certify(home, own.name, pki.make_request(own, own.name))
        (own / keyfiles.DEVICE).write_bytes(certificate)
        shutil.copy(home / keyfiles.CA, own / keyfiles.CA)
        seats.append(roster.Seat(name=own.name, certificate=pki.find_fingerprint(certificate)))
        folders.append(own)
    common = roster.Common.model_validate(COMMON)
    made = roster.Roster(federation=common, server=roster.Home(address=f"{HOST}:1"), devices=seats)
    roster.write(home, made)
    return folders


def start(role: str, port: int, folder: Path) -> subprocess.Popen[bytes]:
    """A process of devices; whoever starts it ends it."""
    command = [sys.executable, "-m", "bench.loopback", role, f"{HOST}:{port}", str(folder)]
    root = Path(__file__).resolve().parents[1]
    return subprocess.Popen(command, cwd=root, env={**os.environ, "OMP_NUM_THREADS": "1"})


class Relay:
    """Passes bytes on between a device and a hub, and counts them."""

    def __init__(self, port: int) -> None:
        self.to, self.up, self.down = port, 0, 0
        self.listener = socket.create_server((HOST, 0))
        self.port = int(self.listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self.listener.close()

    def _accept(self) -> None:
        while True:
            try:
                device, _ = self.listener.accept()
            except OSError:
                return  # closed
            hub = socket.create_connection((HOST, self.to))
            for sender, receiver, way in ((device, hub, "up"), (hub, device, "down")):
                threading.Thread(target=self._pass_on, args=(sender, receiver, way), daemon=True).start()

    def _pass_on(self, sender: socket.socket, receiver: socket.socket, way: str) -> None:
        try:
            while data := sender.recv(1 << 16):
                setattr(self, way, getattr(self, way) + len(data))
                receiver.sendall(data)
            receiver.shutdown(socket.SHUT_WR)
        except OSError:
            sender.close()


# ---------------------------------------------------------------------------------- as a process of its own


def echo(address: str, folder: Path) -> None:
    """A device at a real wire that reports whatever it is sent; it listens meanwhile, as all devices do."""
    wire, todo = Wire(address, folder), queue.SimpleQueue()

    def work() -> None:
        while True:
            received = todo.get()
            wire.report(received.key, received.parcel)

    threading.Thread(target=work, daemon=True).start()
    while True:
        received = wire.receive()
        if received is not None:
            todo.put(received)


async def wait(address: str, folders: list[Path]) -> None:
    """Devices that say what they hold when they are asked, and then have nothing to do."""
    turns = asyncio.Semaphore(AT_ONCE)
    present = parcels.pack(parcels.Present(parcels.PROTOCOL, "bench", {"train": 100}, [10] * 10, {}))
    await asyncio.gather(*(_wait_at(address, folder, turns, present) for folder in folders))


async def _wait_at(address: str, folder: Path, turns: asyncio.Semaphore, present: bytes) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(folder / keyfiles.CA)
    context.load_cert_chain(folder / keyfiles.DEVICE, folder / keyfiles.DEVICE_KEY)
    host, _, port = address.rpartition(":")
    async with turns:
        reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
    epoch, after = "", 0
    while True:
        path = f"/v1/next?session={folder.name.replace('-', '')}&epoch={epoch}&after={after}"
        headers = await _ask(reader, writer, f"GET {path}", address, b"")
        epoch = headers["epoch"]
        if "key" in headers:
            after = int(headers["serial"])
            await _ask(reader, writer, f"PUT /v1/reports/{headers['key']}", address, present)


async def _ask(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, what: str, host: str, body: bytes
) -> dict[str, str]:
    writer.write(f"{what} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = {name.lower(): text for name, _, text in (line.partition(": ") for line in lines[1:])}
    await reader.readexactly(int(headers.get("content-length", "0")))
    return headers


if __name__ == "__main__":
    role, address, folder = sys.argv[1:]
    if role == "echo":
        echo(address, Path(folder))
    else:  # all below a federation's folder
        asyncio.run(wait(address, sorted(Path(folder).glob("device-*"))))
