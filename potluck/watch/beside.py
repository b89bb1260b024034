"""The page beside a command: a process of its own, which ends with the command and tells the end before.

Its socket is opened by the command, so that the address is known at once; it ends when its input does,
however the command came to its end.
"""

import contextlib
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from potluck.watch.web import LOOPBACK, open_socket, tell_address

PATIENCE = 10.0  # seconds to tell the end
_SERVE = "from potluck.watch.beside import serve; serve()"


@contextlib.contextmanager
def watch_beside(folder: Path) -> Iterator[str]:
    """Serve the page of a folder, which may not exist yet, while something runs; gives its address."""
    at = open_socket(LOOPBACK, None)
    address = tell_address(at)
    command = [sys.executable, "-c", _SERVE, str(folder.absolute()), str(at.fileno())]
    with at:
        page = subprocess.Popen(
            command, stdin=subprocess.PIPE, pass_fds=[at.fileno()], start_new_session=True
        )
    try:
        yield address
    finally:
        assert page.stdin is not None
        with contextlib.suppress(OSError):
            page.stdin.close()
        try:
            page.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            page.kill()
            page.wait()


def serve() -> None:
    """What that process does."""
    import os
    import threading

    from potluck.watch.board import Board
    from potluck.watch.web import Page

    signal.signal(signal.SIGINT, signal.SIG_IGN)
    os.nice(5)  # it may be late, and what it watches not
    folder, number = sys.argv[1:]
    page = Page(socket.socket(fileno=int(number)), Board(Path(folder)), LOOPBACK)

    def wait() -> None:
        sys.stdin.buffer.read()
        page.end()

    threading.Thread(target=wait, daemon=True).start()
    page.run()
