"""The server's own machine as one of a port's nodes: its work is done here, beside the network's."""

import queue
import threading
import time
from collections.abc import Mapping, Sequence

from potluck.core.messages import Node
from potluck.deploy.port import Incoming, Outgoing, Port
from potluck.deploy.work.device import Device

_END = Outgoing(-1, "", b"", b"")


class WithServer:
    """A port whose last node is this machine; a thread of its own works for it."""

    def __init__(self, port: Port, root: Node, device: Device) -> None:
        self.port, self.root, self.device = port, root, device
        self.todo: queue.SimpleQueue[Outgoing] = queue.SimpleQueue()
        self.done: queue.SimpleQueue[Incoming] = queue.SimpleQueue()
        self.failed: BaseException | None = None
        self.thread = threading.Thread(target=self._work, daemon=True)
        self.thread.start()

    def nodes(self) -> Mapping[Node, str]:
        return self.port.nodes()

    def post_all(self, parcels: Sequence[Outgoing]) -> None:
        for parcel in parcels:
            if parcel.to == self.root:
                self.todo.put(parcel)
        away = [parcel for parcel in parcels if parcel.to != self.root]
        if away:
            self.port.post_all(away)

    def poll(self, wait: float) -> list[Incoming]:
        if self.failed is not None:
            raise self.failed
        heard = self._take_done()
        return heard + self.port.poll(0.0 if heard else wait)

    def close(self) -> None:
        self.todo.put(_END)
        self.thread.join()

    def _take_done(self) -> list[Incoming]:
        heard = []
        while not self.done.empty():
            heard.append(self.done.get())
        return heard

    def _work(self) -> None:
        try:
            while (parcel := self.todo.get()) is not _END:
                began = time.monotonic()
                answer = self.device.answer(parcel.head + parcel.body)
                if answer:
                    self.done.put(Incoming(self.root, parcel.key, answer, time.monotonic() - began))
        except BaseException as error:  # shown by whoever polls: this thread has nobody to tell
            self.failed = error
