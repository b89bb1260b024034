import contextlib
import errno
import fcntl
import hashlib
import http.server
import io
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from potluck.cli import main
from potluck.core.errors import ConfigError, DataError
from potluck.data import SOURCES, load
from potluck.data.sources import catalogue, fetch
from potluck.data.sources.catalogue import File, Public

ROOT = str(Path(__file__).resolve().parents[2])
CONTENT = os.urandom(300_000)


class Server(http.server.ThreadingHTTPServer):
    """Serves CONTENT at /whole, with Range, and faults at other paths; remembers what was asked."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.ranges, self.slow = [], False
        threading.Thread(target=self.serve_forever, args=(0.01,), daemon=True).start()

    def url(self, path="whole"):
        return f"http://127.0.0.1:{self.server_address[1]}/{path}"


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        asked = self.headers.get("Range")
        self.server.ranges.append(asked)
        start = int(re.fullmatch(r"bytes=(\d+)-", asked)[1]) if asked else 0
        path = self.path.strip("/")
        body = CONTENT
        if path == "absent":
            return self.send_error(404)
        if path == "corrupt":
            body = CONTENT[:-1] + b"!"
        if path == "longer":
            body = CONTENT + b"!"
        if path == "without-range":
            asked, start = None, 0
        if start >= len(body):
            self.send_response(416)
            self.send_header("Content-Range", f"bytes */{len(body)}")
            self.send_header("Content-Length", "0")
            return self.end_headers()
        self.send_response(206 if asked else 200)
        if asked:
            first = start + 1 if path == "another-part" else start
            self.send_header("Content-Range", f"bytes {first}-{len(body) - 1}/{len(body)}")
        if path not in ("unsized", "endless"):
            self.send_header("Content-Length", str(len(body) - start))
        self.end_headers()
        rest = body[start:]
        if path == "halves":  # as a link that breaks in the middle
            rest = rest[: max(1, len(rest) // 2)]
        if path == "endless":
            rest = body + body
        if self.server.slow:
            self.wfile.write(rest[:1000])
            self.wfile.flush()
            time.sleep(60)
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            self.wfile.write(rest)

    def log_message(self, *args):
        pass


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    server = Server()
    yield server
    server.shutdown()
    server.server_close()


def file(*addresses, size=len(CONTENT), content=CONTENT):
    return File("set.bin", hashlib.sha256(content).hexdigest(), addresses, size)


def test_download_and_again(tmp_path, server):
    seen = []
    wanted = file(server.url())
    assert fetch.fetch(wanted, tmp_path / "new" / "folder", lambda *have: seen.append(have))
    assert (tmp_path / "new" / "folder" / "set.bin").read_bytes() == CONTENT
    assert os.listdir(tmp_path / "new" / "folder") == ["set.bin"]
    assert seen[0] == (0, len(CONTENT))
    assert seen[-1] == (len(CONTENT), len(CONTENT))
    assert not fetch.fetch(wanted, tmp_path / "new" / "folder")
    assert server.ranges == [None]


@pytest.mark.parametrize("size", [len(CONTENT), None])
def test_resume_after_an_interruption(tmp_path, server, size):
    with pytest.raises(
        DataError, match=r"broke off after 150,000 of 300,000 bytes; the 150,000 bytes .* kept"
    ):
        fetch.fetch(file(server.url("halves"), size=size), tmp_path)
    assert (tmp_path / "set.bin.partial").read_bytes() == CONTENT[:150_000]
    assert not (tmp_path / "set.bin").exists()
    assert fetch.fetch(file(server.url(), size=size), tmp_path)
    assert server.ranges == [None, "bytes=150000-"]
    assert (tmp_path / "set.bin").read_bytes() == CONTENT
    assert not (tmp_path / "set.bin.partial").exists()


@pytest.mark.parametrize("path", ["without-range", "unsized", "whole"])
def test_servers_differ(tmp_path, server, path):
    (tmp_path / "set.bin.partial").write_bytes(CONTENT[:1000])
    assert fetch.fetch(file(server.url(path)), tmp_path)
    assert (tmp_path / "set.bin").read_bytes() == CONTENT


def test_partial_files_that_are_whole(tmp_path, server):
    (tmp_path / "set.bin.partial").write_bytes(CONTENT)
    assert fetch.fetch(file(server.url()), tmp_path)
    assert server.ranges == []  # nothing to ask for
    (tmp_path / "set.bin").rename(tmp_path / "set.bin.partial")
    assert fetch.fetch(file(server.url(), size=None), tmp_path)
    assert server.ranges == ["bytes=300000-"]


def test_corrupt_files_are_refused_and_removed(tmp_path, server):
    with pytest.raises(DataError, match=r"SHA-256 [0-9a-f]{64}, not [0-9a-f]{64}, and was removed"):
        fetch.fetch(file(server.url("corrupt")), tmp_path)
    assert os.listdir(tmp_path) == []
    (tmp_path / "set.bin.partial").write_bytes(b"of something else")
    with pytest.raises(DataError, match="was removed"):
        fetch.fetch(file(server.url()), tmp_path)
    assert fetch.fetch(file(server.url()), tmp_path)


@pytest.mark.parametrize(
    ("path", "message"),
    [
        ("absent", r"http://127\.0\.0\.1:\d+/absent answers 404 Not Found"),
        ("longer", "sends 300,001 bytes instead of 300,000"),
        ("endless", "sends more than 300,000 bytes"),
    ],
)
def test_servers_that_fail(tmp_path, server, path, message):
    with pytest.raises(DataError, match=message):
        fetch.fetch(file(server.url(path)), tmp_path)
    assert os.listdir(tmp_path) == []


def test_another_part_than_was_asked_for(tmp_path, server):
    (tmp_path / "set.bin.partial").write_bytes(CONTENT[:1000])
    with pytest.raises(DataError, match=r"sends another part .* the 1,000 bytes so far are kept"):
        fetch.fetch(file(server.url("another-part")), tmp_path)


def test_mirrors_go_on_where_others_broke_off(tmp_path, server):
    assert fetch.fetch(file(server.url("absent"), server.url("halves"), server.url()), tmp_path)
    assert server.ranges == [None, None, "bytes=150000-"]
    with pytest.raises(DataError, match=r"404 Not Found; http.*/absent answers 404"):
        fetch.fetch(file(server.url("absent"), server.url("absent")), tmp_path / "b")


def test_no_network(tmp_path, server):
    address = server.url()
    server.shutdown()
    server.server_close()
    with pytest.raises(DataError, match=r"can't be reached \(Connection refused\); is there a network"):
        fetch.fetch(file(address), tmp_path)


def test_silent_servers_are_left(tmp_path, server, monkeypatch):
    server.slow = True
    monkeypatch.setattr(fetch, "_TIMEOUT", 0.2)
    with pytest.raises(
        DataError, match=r"broke off after 1,000 bytes \(timed out\); the 1,000 bytes so far are"
    ):
        fetch.fetch(file(server.url()), tmp_path)


def test_full_disks_are_told(tmp_path, server, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(fetch.shutil, "disk_usage", lambda path: type("Usage", (), {"free": 1000}))
        with pytest.raises(DataError, match=r"set\.bin\.partial: the disk is full; make room"):
            fetch.fetch(file(server.url()), tmp_path)
    written = []

    class Full(io.FileIO):
        def write(self, block):
            if len(written) == 2:
                raise OSError(errno.ENOSPC, "No space left on device")
            written.append(block)
            return super().write(block[:10])  # a raw file may write less than it is given

    monkeypatch.setattr(fetch, "open", lambda path, mode, buffering: Full(path, mode), raising=False)
    with pytest.raises(DataError, match=r"set\.bin\.partial: the disk is full"):
        fetch.fetch(file(server.url()), tmp_path)
    assert (tmp_path / "set.bin.partial").read_bytes() == CONTENT[:20]


def test_folders_that_cant_be_written(tmp_path, server):
    (tmp_path / "taken").write_text("a file")
    with pytest.raises(DataError, match=r"taken.*: can't be written"):
        fetch.fetch(file(server.url()), tmp_path / "taken" / "mnist")
    (tmp_path / "set.bin").write_text("my own")
    with pytest.raises(DataError, match="is there already, but isn't the published file"):
        fetch.fetch(file(server.url()), tmp_path)
    assert (tmp_path / "set.bin").read_text() == "my own"


def test_two_at_once(tmp_path, server):
    with open(tmp_path / "set.bin.partial", "ab") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with pytest.raises(DataError, match="another process is downloading it"):
            fetch.fetch(file(server.url()), tmp_path)


def test_the_catalogue():
    for name, public in catalogue.PUBLIC.items():
        assert name in (*SOURCES, "qmnist")
        for each in public.files:
            assert re.fullmatch(r"[0-9a-f]{64}", each.sha256)
            assert each.addresses
            assert all(address.endswith(f"/{each.name}") for address in each.addresses)
    assert len({each.sha256 for public in catalogue.PUBLIC.values() for each in public.files}) == 13
    with pytest.raises(ConfigError, match="did you mean 'mnist'"):
        fetch.find_public("mnst")


@pytest.fixture
def listed(server, monkeypatch, tmp_path):
    """A catalogue of one set on the local server, and a home of one's own."""
    wanted = file(server.url("whole"))
    monkeypatch.setitem(catalogue.PUBLIC, "mine", Public("random bytes", "example.org", "own", (wanted,)))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return server


def potluck(*arguments):
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    return ended.value.code or 0


def test_the_command(listed, tmp_path, capsys):
    assert potluck("data", "get", "mine") == 0
    said = capsys.readouterr()
    place = tmp_path / "cache" / "potluck" / "own"
    assert said.out == f"mine: random bytes, in {place} (terms: example.org)\n"
    assert said.err == "set.bin: downloaded, verified\n"
    assert (place / "set.bin").read_bytes() == CONTENT
    assert potluck("data", "get", "mine") == 0
    assert "there already" in capsys.readouterr().err
    assert potluck("data", "get", "mine", "--root", "here", "--quiet") == 0
    assert capsys.readouterr() == ("", "")
    assert (tmp_path / "here" / "own" / "set.bin").exists()
    assert potluck("data", "get", "mine", "--root", "here") == 0
    assert "data.root = 'here'" in capsys.readouterr().out
    assert potluck("data", "get", "cifar") == 2
    said = capsys.readouterr()
    assert said.err.startswith("potluck: data get 'cifar': no such public set; did you mean")
    assert potluck("data", "get", "--help") == 0
    told = capsys.readouterr().out
    assert all(name in told for name in catalogue.PUBLIC if name != "mine")


def test_a_bar_on_a_terminal(listed, monkeypatch, capsys):
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    assert potluck("data", "get", "mine") == 0
    assert "downloaded, verified" in capsys.readouterr().err


def test_ctrl_c_says_how_to_go_on(listed, tmp_path):
    listed.slow = True
    code = (
        "from potluck.data.sources import catalogue; from potluck.data.sources.catalogue import *; "
        f"catalogue.PUBLIC['mine'] = {catalogue.PUBLIC['mine']!r}; "
        "from potluck.cli import main; main(['data', 'get', 'mine', '--root', 'my data'])"
    )
    env = {**os.environ, "PYTHONPATH": ROOT}
    child = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.PIPE, text=True, env=env)
    partial = Path("my data/own/set.bin.partial")
    for _ in range(600):
        if child.poll() is not None or (partial.exists() and partial.stat().st_size):
            break
        time.sleep(0.05)
    child.send_signal(2)
    assert "interrupted; go on with: potluck data get mine --root 'my data'" in child.communicate()[1]
    assert child.returncode == 130
    assert partial.read_bytes() == CONTENT[:1000]
    listed.slow = False
    assert potluck("data", "get", "mine", "--root", "my data") == 0
    assert listed.ranges[-1] == "bytes=1000-"


def test_loading_never_downloads(monkeypatch, tmp_path):
    def refuse(*_, **__):
        raise AssertionError("asked the network")

    monkeypatch.setattr("socket.socket.connect", refuse)
    for name in ("mnist", "fashion-mnist", "cifar-10", "cifar-100", "har", "shakespeare"):
        with pytest.raises(DataError):
            load(name, root=tmp_path)
