"""The HTTPS port, the server's end: parcels wait here until their devices fetch them.

GET  /v1/next      held until there is a parcel; what its device has by now is forgotten
GET  /v1/blobs/... a large body, by its sha256; a broken download goes on where it was
PUT  /v1/parts/... a piece of a large report
PUT  /v1/reports/. a report on a key; 410: nobody waits for it
POST /v1/leave     an orderly end
POST /v1/join      the only one without a client's certificate: a new device has its key certified

Nothing here has to last: the conductor posts again whatever was under way. The hub has a thread and a loop of
its own; who talks is told by the certificate alone, and everybody sees only what is theirs. What one device
can make the hub hold is bounded: connections (doors), parcels, one body at a time, one report in pieces.
"""

import asyncio
import hashlib
import queue
import secrets
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from math import inf
from pathlib import Path

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from potluck.core.errors import ConfigError, PotluckError
from potluck.core.messages import Node
from potluck.deploy import parcels
from potluck.deploy.https.blobs import Blobs, Pieces
from potluck.deploy.https.boxes import GRACE, Box, Parcel
from potluck.deploy.https.doors import Connection, Doors, Sparing
from potluck.deploy.members import pki
from potluck.deploy.port import Incoming, Outgoing

HOLD = 20.0  # seconds that a request for the next parcel is held
SMALL = 64 << 10  # bytes of a body that travels with its head
PART = 4 << 20  # bytes of a piece of a large report
MARGIN = 1 << 20
READERS = 64  # bodies that are read at the same time
SLOW = 120.0  # seconds that one may take
JOINING = 64 << 10  # bytes of a request to join
NODE = web.RequestKey("node", int)
Joining = Callable[[bytes], tuple[int, bytes]]  # what a new device says; a status, and what it is told


class Hub:
    """A port over HTTPS with mutual TLS."""

    def __init__(
        self,
        address: tuple[str, int],
        keys: Path,  # the folder with the server's certificate and key
        blobs: Path,  # a folder for large bodies; what is in it is this hub's
        find: Callable[[str], Node | None],  # who has a certificate; asked at every request
        *,
        largest: int = 512 << 20,
        join: Joining | None = None,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.find, self.largest, self.join, self.say = find, largest, join, Sparing(say)
        self.epoch, self.serial = secrets.token_hex(8), 0  # of this process: serials begin anew with it
        self.boxes: dict[Node, Box] = {}
        self.members: dict[str, Node] = {}  # who was let in, by fingerprint
        self.heard: queue.SimpleQueue[Incoming] = queue.SimpleQueue()
        self.bytes, self.lock = 0, threading.Lock()  # that were heard and not taken yet
        self.came = threading.Event()  # something was heard
        self.refused = 0  # requests and connections
        self.blobs = Blobs(blobs)
        self.doors = Doors(lambda found: self.find(pki.find_fingerprint(found)) is not None, self._refuse)
        self.loop = asyncio.new_event_loop()
        self.failed: BaseException | None = None
        self.closing = False
        self.address = address
        ready = threading.Event()
        self.thread = threading.Thread(target=self._run, args=(keys, ready), daemon=True)
        self.thread.start()
        ready.wait()
        if self.failed is not None:
            raise ConfigError(f"address = {address[0]}:{address[1]}: can't listen there ({self.failed})")

    # -------------------------------------------------------------------------------------------- as a port

    def nodes(self) -> Mapping[Node, str]:
        now = time.monotonic()
        return {node: box.session for node, box in list(self.boxes.items()) if box.is_there(now)}

    def post_all(self, parcels: Sequence[Outgoing]) -> None:
        made = [self._wrap(parcel) for parcel in parcels]
        self.loop.call_soon_threadsafe(self._put_all, made)

    def poll(self, wait: float) -> list[Incoming]:
        if self.heard.empty() and wait > 0:
            self.came.wait(wait)
        self.came.clear()
        found = []
        while not self.heard.empty():
            found.append(self.heard.get())
        with self.lock:
            self.bytes -= sum(len(heard.parcel) for heard in found)
        return found

    def close(self) -> None:
        """Let go of everybody; whoever waits is told at once."""
        asyncio.run_coroutine_threadsafe(self._close(), self.loop).result(10)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(10)

    def _wrap(self, parcel: Outgoing) -> Parcel:
        blob, line, data = "", "", parcel.head + parcel.body
        if len(parcel.body) > SMALL:
            blob, data = self.blobs.store(parcel.body), parcel.head
            line = f"{blob} {len(parcel.body)}"
        return Parcel(parcel.to, parcel.key, line.encode() + b"\n" + data, blob, parcel.wanted)

    def _put_all(self, made: list[Parcel]) -> None:
        for parcel in made:
            self.serial += 1
            self._find_box(parcel.to).put(self.serial, parcel)
        posted = [parcel.blob for parcel in made if parcel.blob]
        if posted:
            waiting = {parcel.blob for box in self.boxes.values() for parcel in box.parcels.values()}
            self.blobs.forget(posted, waiting)

    def _find_box(self, node: Node) -> Box:
        if node not in self.boxes:
            self.boxes[node] = Box(Pieces(self.blobs.folder, node, self.largest))
        return self.boxes[node]

    # ------------------------------------------------------------------------------------------ the listener

    def _run(self, keys: Path, ready: threading.Event) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.set_exception_handler(self._tell)
        try:
            self.loop.run_until_complete(self._listen(keys))
        except (OSError, ssl.SSLError) as error:
            self.failed = error
            ready.set()
            return
        ready.set()
        self.loop.run_forever()
        self.loop.close()

    async def _listen(self, keys: Path) -> None:
        context = self.doors.make_context(keys)
        app = web.Application(client_max_size=PART + MARGIN, middlewares=[self._make_doorman()])
        app.add_routes(
            [
                web.get("/v1/next", self._next),
                web.get("/v1/blobs/{name:[0-9a-f]{64}}", self._blob),
                web.put("/v1/parts/{name:[0-9a-f]{64}}", self._part),
                web.put("/v1/reports/{key:.+}", self._report),
                web.post("/v1/leave", self._leave),
                web.post("/v1/join", self._join),
            ]
        )
        self.readers = asyncio.Semaphore(READERS)
        self.runner = web.AppRunner(app, handler_cancellation=True, shutdown_timeout=1.0)
        await self.runner.setup()
        server = self.runner.server
        assert server is not None
        self.server = await self.loop.create_server(
            lambda: Connection(self.doors, server, self.loop),
            *self.address,
            ssl=context,
            ssl_handshake_timeout=10.0,
            backlog=1024,
            reuse_address=True,
        )
        self.address = self.server.sockets[0].getsockname()[:2]

    async def _close(self) -> None:
        self.closing = True
        self.server.close()
        for box in self.boxes.values():
            box.awake.set()
        await self.runner.cleanup()

    def _make_doorman(self) -> "Middleware":
        @web.middleware
        async def stand_at_door(request: web.Request, handler: Handler) -> web.StreamResponse:
            return await self._let_in(request, handler)

        return stand_at_door

    async def _let_in(self, request: web.Request, handler: "Handler") -> web.StreamResponse:
        if request.path == "/v1/join":
            return await handler(request)
        node = self._find_node(request)
        self._find_box(node).hear()
        request[NODE] = node
        return await handler(request)

    def _find_node(self, request: web.Request) -> Node:
        """Who asks; whoever may not is told, or put out."""
        encrypted = request.get_extra_info("ssl_object")
        certificate = None if encrypted is None else encrypted.getpeercert(True)
        if certificate is None:
            self._refuse(f"closed a connection of {request.remote}: no certificate")
            if request.transport is not None:
                request.transport.abort()
            raise web.HTTPForbidden
        whose = pki.find_fingerprint(certificate)
        node = self.find(whose)
        if node is None:
            if whose in self.members:
                self._find_box(self.members.pop(whose)).shut()
            why = "a certificate that isn't in federation.toml, or isn't any more"
            self._refuse(f"refused {request.remote}: {why}")
            raise web.HTTPForbidden(text="this certificate isn't in the federation, or isn't any more")
        self.members[whose] = node
        return node

    def _refuse(self, line: str) -> None:
        self.refused += 1
        self.say(line)

    def _tell(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        """What went wrong with a connection, in one line; a fault of ours with its traceback."""
        error = context.get("exception")
        if isinstance(error, OSError | asyncio.IncompleteReadError):
            self._refuse(f"closed a connection: {error}")
        else:
            loop.default_exception_handler(context)

    # ---------------------------------------------------------------------------------------------- routes

    async def _next(self, request: web.Request) -> web.StreamResponse:
        box = self._find_box(request[NODE])
        session, epoch, after = (request.query.get(name, "") for name in ("session", "epoch", "after"))
        good = session.isascii() and session.isalnum() and after.isascii() and after.isdigit()
        if not good or len(session) > 64 or len(after) > 18:
            raise web.HTTPBadRequest(text="give session and after")
        if box.is_taken(session):
            self._refuse(f"refused {request.remote}: a second process with the same certificate")
            raise web.HTTPConflict(text="another process with this certificate is here")
        box.session = session
        if epoch == self.epoch:
            box.forget(int(after))
        box.seen = inf
        try:
            if not box.parcels and not self.closing:
                box.awake.clear()
                try:
                    async with asyncio.timeout(HOLD):
                        await box.awake.wait()
                except TimeoutError:
                    pass
                self._find_node(request)  # it may have been revoked meanwhile
            if not box.parcels:
                return web.Response(status=204, headers={"epoch": self.epoch})
            serial = min(box.parcels)
            headers = {"epoch": self.epoch, "serial": str(serial), "key": box.parcels[serial].key}
            return web.Response(body=box.parcels[serial].data, headers=headers)
        except (asyncio.CancelledError, web.HTTPForbidden):  # its connection broke, or nobody knows it now
            box.seen = box.held = time.monotonic() - GRACE
            raise
        finally:
            if box.seen == inf:
                box.seen = box.held = time.monotonic()

    async def _blob(self, request: web.Request) -> web.StreamResponse:
        box, path = self._find_box(request[NODE]), self.blobs.find(request.match_info["name"])
        box.held = time.monotonic()  # its next request comes later
        if path is None:
            raise web.HTTPNotFound
        return web.FileResponse(path)

    async def _part(self, request: web.Request) -> web.StreamResponse:
        box, name = self._find_box(request[NODE]), request.match_info["name"]
        data = await self._read(request, box)
        if hashlib.sha256(data).hexdigest() != name:
            raise web.HTTPUnprocessableEntity(text="other bytes than it says")
        try:
            fits = box.pieces.add(name, data)
        except OSError as error:
            self._refuse(f"a piece of a report can't be written ({error.strerror}); make room")
            raise web.HTTPInsufficientStorage from None
        if not fits:
            raise web.HTTPRequestEntityTooLarge(self.largest, self.largest + len(data))
        return web.Response(status=204)

    async def _report(self, request: web.Request) -> web.StreamResponse:
        node, key = request[NODE], request.match_info["key"]
        box = self._find_box(node)
        if key not in box.wanted:
            self.refused += 1
            raise web.HTTPGone(text="nobody waits for this")
        names = [name for name in request.headers.get("parts", "").split(",") if name]
        try:
            data, size = await self._read(request, box), 0
            if names and not box.pieces.spilled and any(name not in box.pieces.sizes for name in names):
                raise web.HTTPConflict(text="a piece is missing: send all of them again")
            size = len(data) + sum(box.pieces.sizes.get(name, 0) for name in names)
        except web.HTTPRequestEntityTooLarge:
            data, size = b"", self.largest + 1
        large = size > self.largest or bool(names and box.pieces.spilled)
        if large:  # the conductor is told: it need not wait
            data = parcels.pack(parcels.Failed(key, "bad", f"more than {self.largest} bytes"))
        elif self.bytes and self.bytes + size > self.largest:
            raise web.HTTPServiceUnavailable(text="many reports at once: try again")
        elif names:
            data = b"".join([data, *box.pieces.read(names)])
        box.pieces.clear()
        since = box.wanted.pop(key, None)
        if since is None:
            self.refused += 1
            raise web.HTTPGone(text="nobody waits for this")
        box.drop(key)
        with self.lock:
            self.bytes += len(data)
        self.heard.put(Incoming(node, key, data, time.monotonic() - since))
        self.came.set()
        if large:
            raise web.HTTPRequestEntityTooLarge(self.largest, size)
        return web.Response(status=204)

    async def _read(self, request: web.Request, box: Box) -> bytes:
        """The body of a request, one at a time of each device."""
        if box.sends:
            raise web.HTTPServiceUnavailable(text="one after another: try again")
        box.sends = True
        try:
            async with self.readers, asyncio.timeout(SLOW):
                return await request.read()
        except TimeoutError:
            raise web.HTTPServiceUnavailable(text=f"took longer than {SLOW:g} s: try again") from None
        finally:
            box.sends = False

    async def _leave(self, request: web.Request) -> web.StreamResponse:
        self._find_box(request[NODE]).shut()
        return web.Response(status=204)

    async def _join(self, request: web.Request) -> web.StreamResponse:
        if self.join is None:
            raise web.HTTPNotFound
        if request.content_length is None or request.content_length > JOINING:
            raise web.HTTPRequestEntityTooLarge(JOINING, request.content_length or 0)
        try:
            status, told = await asyncio.to_thread(self.join, await request.read())
        except (OSError, PotluckError) as error:  # a folder that can't be read or written
            status, told = 503, b"the server can't certify anybody now"
            self._refuse(f"nobody can join: {error}")
        if status != 200:
            self._refuse(f"refused {request.remote}: {told.decode()}")
        return web.Response(status=status, body=told)
