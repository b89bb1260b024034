"""The HTTPS port, the server's end: parcels wait here until their devices fetch them.

GET  /v1/next      held until there is a parcel; what its device has by now is forgotten
GET  /v1/blobs/... a large body, by its sha256; a broken download goes on where it was
PUT  /v1/parts/... a piece of a large report
PUT  /v1/reports/. a report on a key; 410: nobody waits for it
POST /v1/leave     an orderly end
POST /v1/join      the only one without a client's certificate: a new device has its key certified

Nothing here has to last: the conductor posts again whatever was under way. The hub has a thread and a loop of
its own; who talks is told by the certificate alone, and everybody sees only what is theirs.
"""

import asyncio
import hashlib
import os
import queue
import secrets
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from pathlib import Path

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from potluck.core.errors import ConfigError
from potluck.core.messages import Node
from potluck.deploy.members import keyfiles, pki
from potluck.deploy.port import Incoming, Outgoing

HOLD = 20.0  # seconds that a request for the next parcel is held
GRACE = 5.0  # seconds that somebody counts as there after its last word
SMALL = 64 << 10  # bytes of a body that travels with its head
PART = 4 << 20  # bytes of a piece of a large report
MARGIN = 1 << 20
NODE = web.RequestKey("node", int)
Joining = Callable[[bytes], tuple[int, bytes]]  # what a new device says; a status, and what it is told


@dataclass
class _Box:
    """What waits for one node, and whether it is there."""

    parcels: dict[int, tuple[str, bytes]] = field(default_factory=dict)  # by serial: key, and how it travels
    wanted: dict[str, float] = field(default_factory=dict)  # keys that it may report on, since when
    parts: dict[str, bytes] = field(default_factory=dict)  # pieces of a report
    session: str = ""
    seen: float = -inf  # when it was last heard; inf while its request is held
    awake: asyncio.Event = field(default_factory=asyncio.Event)


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
        self.find, self.largest, self.join, self.say, self.blobs = find, largest, join, say, blobs
        self.epoch, self.serial = secrets.token_hex(8), 0  # of this process: serials begin anew with it
        self.boxes: dict[Node, _Box] = {}
        self.heard: queue.SimpleQueue[Incoming] = queue.SimpleQueue()
        self.came = threading.Event()  # something was heard
        self.refused = 0  # requests
        blobs.mkdir(parents=True, exist_ok=True)
        for old in blobs.iterdir():
            old.unlink()
        self.stored: dict[str, None] = {}
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
        return {node: box.session for node, box in list(self.boxes.items()) if box.seen + GRACE > now}

    def post_all(self, parcels: Sequence[Outgoing]) -> None:
        made = [(parcel.to, parcel.key, self._wrap(parcel)) for parcel in parcels]
        self.loop.call_soon_threadsafe(self._put_all, made)

    def poll(self, wait: float) -> list[Incoming]:
        if self.heard.empty() and wait > 0:
            self.came.wait(wait)
        self.came.clear()
        found = []
        while not self.heard.empty():
            found.append(self.heard.get())
        return found

    def close(self) -> None:
        """Let go of everybody; whoever waits is told at once."""
        asyncio.run_coroutine_threadsafe(self._close(), self.loop).result(10)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(10)

    def _wrap(self, parcel: Outgoing) -> bytes:
        """As it travels: a line that tells where its body is, then its head, then a small body."""
        if len(parcel.body) <= SMALL:
            return b"\n" + parcel.head + parcel.body
        name = hashlib.sha256(parcel.body).hexdigest()
        if name not in self.stored:
            partial = self.blobs / f".{name}.partial"
            partial.write_bytes(parcel.body)
            os.replace(partial, self.blobs / name)
            self.stored[name] = None
            while len(self.stored) > 64:  # devices that ask for an older one are posted their work again
                oldest = next(iter(self.stored))
                del self.stored[oldest]
                (self.blobs / oldest).unlink(missing_ok=True)
        return f"{name} {len(parcel.body)}\n".encode() + parcel.head

    def _put_all(self, made: list[tuple[Node, str, bytes]]) -> None:
        for to, key, data in made:
            box = self.boxes.setdefault(to, _Box())
            for serial in [n for n, (other, _) in box.parcels.items() if other == key]:
                del box.parcels[serial]  # it was posted before
            self.serial += 1
            box.parcels[self.serial] = (key, data)
            box.wanted[key] = time.monotonic()
            while len(box.wanted) > 1000:
                del box.wanted[next(iter(box.wanted))]
            box.awake.set()

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
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        context.verify_mode = ssl.CERT_OPTIONAL  # who has none may join, and nothing else
        context.load_verify_locations(keys / keyfiles.CA)
        context.load_cert_chain(keys / keyfiles.SERVER, keys / keyfiles.SERVER_KEY)
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
        self.runner = web.AppRunner(app, access_log=None, handler_cancellation=True, shutdown_timeout=1.0)
        await self.runner.setup()
        site = web.TCPSite(self.runner, *self.address, ssl_context=context, backlog=1024, reuse_address=True)
        await site.start()
        server = site._server
        assert isinstance(server, asyncio.Server)
        self.address = server.sockets[0].getsockname()[:2]

    async def _close(self) -> None:
        self.closing = True
        for box in self.boxes.values():
            box.awake.set()
        await self.runner.cleanup()

    def _make_doorman(self) -> "Middleware":
        @web.middleware
        async def stand_at_door(request: web.Request, handler: Handler) -> web.StreamResponse:
            return await self._let_in(request, handler)

        return stand_at_door

    async def _let_in(self, request: web.Request, handler: "Handler") -> web.StreamResponse:
        encrypted = request.get_extra_info("ssl_object")
        certificate = None if encrypted is None else encrypted.getpeercert(True)
        if request.path == "/v1/join":
            return await handler(request)
        if certificate is None:
            self._refuse(request, "no certificate")
            assert request.transport is not None
            request.transport.abort()
            raise web.HTTPForbidden
        node = self.find(pki.find_fingerprint(certificate))
        if node is None:
            self._refuse(request, "a certificate that isn't in federation.toml, or isn't any more")
            raise web.HTTPForbidden(text="this certificate isn't in the federation, or isn't any more")
        request[NODE] = node
        return await handler(request)

    def _refuse(self, request: web.Request, why: str) -> None:
        self.refused += 1
        self.say(f"refused {request.remote}: {why}")

    def _tell(self, loop: asyncio.AbstractEventLoop, context: dict[str, object]) -> None:
        """What went wrong with a connection, in one line; a fault of ours with its traceback."""
        error = context.get("exception")
        if isinstance(error, OSError | ssl.SSLError | asyncio.IncompleteReadError):
            self.refused += 1
            self.say(f"a connection was closed: {error}")
        else:
            loop.default_exception_handler(context)

    # ---------------------------------------------------------------------------------------------- routes

    async def _next(self, request: web.Request) -> web.StreamResponse:
        box = self.boxes.setdefault(request[NODE], _Box())
        session, epoch = request.query.get("session", ""), request.query.get("epoch", "")
        after = request.query.get("after", "")
        if not (session.isalnum() and len(session) <= 64 and after.isdigit() and len(after) <= 18):
            raise web.HTTPBadRequest(text="give session and after")
        if box.seen == inf and box.session != session:
            self._refuse(request, "a second process with the same certificate")
            raise web.HTTPConflict(text="another process with this certificate is here")
        box.session = session
        if epoch == self.epoch:
            for serial in [n for n in box.parcels if n <= int(after)]:
                del box.parcels[serial]
        box.seen = inf
        try:
            if not box.parcels and not self.closing:
                box.awake.clear()
                try:
                    async with asyncio.timeout(HOLD):
                        await box.awake.wait()
                except TimeoutError:
                    pass
            if not box.parcels:
                return web.Response(status=204, headers={"epoch": self.epoch})
            serial = min(box.parcels)
            headers = {"epoch": self.epoch, "serial": str(serial), "key": box.parcels[serial][0]}
            return web.Response(body=box.parcels[serial][1], headers=headers)
        except asyncio.CancelledError:  # its connection broke
            box.seen = time.monotonic() - GRACE
            raise
        finally:
            if box.seen == inf:
                box.seen = time.monotonic()

    async def _blob(self, request: web.Request) -> web.StreamResponse:
        path = self.blobs / request.match_info["name"]
        if not path.is_file():
            raise web.HTTPNotFound
        return web.FileResponse(path)

    async def _part(self, request: web.Request) -> web.StreamResponse:
        box, name = self.boxes.setdefault(request[NODE], _Box()), request.match_info["name"]
        data = await request.read()
        if hashlib.sha256(data).hexdigest() != name:
            raise web.HTTPUnprocessableEntity(text="other bytes than it says")
        if sum(map(len, box.parts.values())) + len(data) > self.largest:
            box.parts.clear()
            raise web.HTTPRequestEntityTooLarge(self.largest, self.largest + len(data))
        box.parts[name] = data
        return web.Response(status=204)

    async def _report(self, request: web.Request) -> web.StreamResponse:
        node, key = request[NODE], request.match_info["key"]
        box = self.boxes.setdefault(node, _Box())
        if key not in box.wanted:
            self.refused += 1
            raise web.HTTPGone(text="nobody waits for this")
        data = await request.read()
        names = [name for name in request.headers.get("parts", "").split(",") if name]
        if any(name not in box.parts for name in names):
            raise web.HTTPConflict(text="a piece is missing: send all of them again")
        data += b"".join(box.parts[name] for name in names)
        box.parts.clear()
        if len(data) > self.largest:
            raise web.HTTPRequestEntityTooLarge(self.largest, len(data))
        since = box.wanted.pop(key, None)
        if since is None:
            raise web.HTTPGone(text="nobody waits for this")
        box.parcels = {n: parcel for n, parcel in box.parcels.items() if parcel[0] != key}
        self.heard.put(Incoming(node, key, data, time.monotonic() - since))
        self.came.set()
        return web.Response(status=204)

    async def _leave(self, request: web.Request) -> web.StreamResponse:
        box = self.boxes.setdefault(request[NODE], _Box())
        box.seen, box.session = -inf, ""
        return web.Response(status=204)

    async def _join(self, request: web.Request) -> web.StreamResponse:
        if self.join is None:
            raise web.HTTPNotFound
        status, told = await asyncio.to_thread(self.join, await request.read())
        if status != 200:
            self._refuse(request, told.decode())
        return web.Response(status=status, body=told)
