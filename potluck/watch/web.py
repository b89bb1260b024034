"""The page over HTTP: a few fixed addresses, and nothing that a path in a request could lead to.

Whoever may read the page may read all runs of the watched folder, so it listens on this machine alone unless
told otherwise, and answers only to names of this machine: a page from elsewhere whose name was bent to this
address (DNS rebinding) is refused by its Host header. Reports are shown in a sandbox, since anybody may have
made the folder.
"""

import ipaddress
import json
import re
import socket
import threading
import time
from contextlib import suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.resources import files
from typing import ClassVar

from potluck.core.errors import ConfigError, PotluckError
from potluck.core.plain_text import show_controls
from potluck.watch.board import Board
from potluck.watch.drawn import Reports

LOOPBACK = "127.0.0.1"
USUAL = 8484  # where it is free; a page that is open finds the next one
MOST = 64  # browsers that are told at a time
BEAT = 5.0  # seconds without news, after which a browser hears that there are none
PATIENCE = 30.0  # seconds that a request may take to arrive, or an answer to leave
_SHIPPED = {
    "/": ("page.html", "text/html; charset=utf-8"),
    "/watch.css": ("watch.css", "text/css; charset=utf-8"),
    "/watch.js": ("watch.js", "text/javascript; charset=utf-8"),
    "/panels.js": ("panels.js", "text/javascript; charset=utf-8"),
    "/charts.js": ("charts.js", "text/javascript; charset=utf-8"),
}
_OWN = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_SANDBOX = (
    "sandbox allow-scripts allow-downloads; default-src 'none'; script-src 'unsafe-inline'; "
    "style-src 'unsafe-inline'; img-src data: blob:; font-src data:"
)


def open_socket(host: str, port: int | None) -> socket.socket:
    """Where the page is served: at a port that is free, unless told which."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    for wanted in (USUAL, 0) if port is None else (port,):
        at = socket.socket(family, socket.SOCK_STREAM)
        at.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            at.bind((host, wanted))
            at.listen(MOST)
            return at
        except socket.gaierror:
            at.close()
            raise ConfigError(
                f"--host {host}: no address; give one of this machine, such as {LOOPBACK}"
            ) from None
        except OSError as error:
            at.close()
            if port is not None:
                fix = "name another, or leave it out for one that is free"
                raise ConfigError(
                    f"--port {port}: can't be had on {host} ({error.strerror}); {fix}"
                ) from None
            if wanted == 0:
                fix = f"give an address of this machine, such as {LOOPBACK}"
                raise ConfigError(f"--host {host}: can't be listened on ({error.strerror}); {fix}") from None
    raise AssertionError("the last port is tried or told of")


def tell_address(at: socket.socket) -> str:
    """What to type into a browser on this machine."""
    host, port = at.getsockname()[:2]
    host = {"0.0.0.0": LOOPBACK, "::": "::1"}.get(host, host)
    return f"http://{f'[{host}]' if ':' in host else host}:{port}/"


class Page(ThreadingHTTPServer):
    """Serves what a board shows until it is told to end."""

    daemon_threads = True

    def __init__(self, at: socket.socket, board: Board, host: str) -> None:
        super().__init__(at.getsockname()[:2], Handler, bind_and_activate=False)
        self.socket.close()
        self.socket = at
        self.board, self.reports, self.ending = board, Reports(board), threading.Event()
        self.told = threading.BoundedSemaphore(MOST)
        self.names = {"localhost", host.lower(), socket.gethostname().lower(), socket.getfqdn().lower()}

    def knows(self, header: str | None) -> bool:
        """Whether a request is for this machine: by an address, which can't be bent, or by its own name."""
        name = re.sub(r":\d+$", "", (header or "").strip().lower())
        try:
            ipaddress.ip_address(name.strip("[]"))
        except ValueError:
            return name.rstrip(".") in self.names
        return True

    def run(self) -> None:
        """Look and serve until `end` is called or somebody interrupts, and tell a last look then."""
        looking = threading.Thread(target=self.board.follow, args=(self.ending,), daemon=True)
        serving = threading.Thread(target=self.serve_forever, args=(0.1,), daemon=True)
        looking.start()
        serving.start()
        with suppress(KeyboardInterrupt):
            self.ending.wait()
        self.ending.set()
        looking.join()
        time.sleep(0.2)  # so that browsers hear of it
        self.shutdown()
        self.server_close()

    def end(self) -> None:
        self.ending.set()


class Handler(BaseHTTPRequestHandler):
    """One request; nothing of it but its path, which is looked up, and its Host header is believed."""

    server: Page
    timeout = PATIENCE
    protocol_version = "HTTP/1.1"
    server_version, sys_version = "potluck", ""
    shipped: ClassVar[dict[str, bytes]] = {}

    def do_GET(self) -> None:
        if not self.server.knows(self.headers.get("Host")):
            self._refuse(HTTPStatus.MISDIRECTED_REQUEST, "this is another machine's name: use its address")
            return
        path = self.path.partition("?")[0]
        if path in _SHIPPED:
            name, kind = _SHIPPED[path]
            if name not in self.shipped:
                self.shipped[name] = files("potluck.watch").joinpath(name).read_bytes()
            self._answer(HTTPStatus.OK, self.shipped[name], kind)
        elif path == "/events":
            self._tell()
        elif path.startswith("/report/"):
            self._report(path.removeprefix("/report/"))
        else:
            self._refuse(HTTPStatus.NOT_FOUND, "there is no such page")

    def log_message(self, format: str, *args: object) -> None:
        """Nothing is printed of requests."""

    def _tell(self) -> None:
        """What changes, as it changes, as server-sent events."""
        if not self.server.told.acquire(blocking=False):
            self._refuse(HTTPStatus.SERVICE_UNAVAILABLE, f"{MOST} browsers look already; close one")
            return
        try:
            self._begin(HTTPStatus.OK, "text/event-stream", None, _OWN)
            board, since, ended = self.server.board, 0, False
            self._write(b"retry: 2000\n\n")
            while not ended:
                since, news, ended = board.changes(since, BEAT)
                text = ",".join(f"{json.dumps(key)}:{value}" for key, value in news.items())
                self._write(f"data: {{{text}}}\n\n".encode())
            self._write(b"event: end\ndata: {}\n\n")
        except OSError:
            pass  # the browser has gone
        finally:
            self.server.told.release()
            self.close_connection = True

    def _report(self, key: str) -> None:
        try:
            text = self.server.reports.find(key)
        except (PotluckError, OSError) as error:
            self._refuse(HTTPStatus.CONFLICT, " ".join(str(error).split()))
            return
        if text is None:
            self._refuse(HTTPStatus.NOT_FOUND, "there is no such run")
            return
        self._answer(HTTPStatus.OK, text, "text/html; charset=utf-8", _SANDBOX)

    def _refuse(self, status: HTTPStatus, why: str) -> None:
        self._answer(status, f"potluck: {show_controls(why)}\n".encode(), "text/plain; charset=utf-8")
        self.close_connection = True

    def _answer(self, status: HTTPStatus, body: bytes, kind: str, policy: str = _OWN) -> None:
        try:
            self._begin(status, kind, len(body), policy)
            self._write(body)
        except OSError:
            self.close_connection = True  # the browser has gone

    def _begin(self, status: HTTPStatus, kind: str, length: int | None, policy: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        if length is None:
            self.send_header("Connection", "close")
        else:
            self.send_header("Content-Length", str(length))
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Security-Policy", policy)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        self.end_headers()

    def _write(self, body: bytes) -> None:
        self.wfile.write(body)
        self.wfile.flush()
