"""What a live page knows: what is new in logs, who is computed, how a race stands, whom it is served to."""

import http.client
import json
import os
import shutil
import threading
import time
from types import SimpleNamespace

import pytest

from potluck.cli import main
from potluck.core.errors import ConfigError, SnapshotError
from potluck.experiment import Experiment, compare, folder, pulse, run
from potluck.experiment.run_lock import is_locked, lock_run
from potluck.watch import live_run
from potluck.watch.board import Board
from potluck.watch.heard import SHOWN, Heard, thin
from potluck.watch.showing import clean, tell_standing
from potluck.watch.tail import PIECE, Tail
from potluck.watch.web import LOOPBACK, Page, open_socket

SMALL = Experiment(
    name="small",
    compare=["fedavg", "auxo"],
    seeds=[1, 2],
    data={"source": "synthetic", "rows": 300, "dimension": 4, "classes": 3, "clients": 8},
    model={"name": "mlp", "width": 0.1},
    stop={"rounds": 4},
    run={"executor": "loop"},
)


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A comparison that has ended."""
    place = tmp_path_factory.mktemp("made") / "small"
    compare(SMALL, out=place)
    return place


@pytest.fixture
def place(made, tmp_path):
    return shutil.copytree(made, tmp_path / "small")


def look(root):
    """What the page of a folder is told, by what it is about."""
    board = Board(root)
    board.look()
    board.look()
    return {key: json.loads(entry.text) for key, entry in board.entries.items()}


def find(told, **wanted):
    """The first thing that has these values."""
    return next(t for t in told.values() if all(t.get(key) == value for key, value in wanted.items()))


def unfinish(place, keep=None):
    """As if a run had been killed, after so many bytes of its records."""
    (place / "summary.json").unlink()
    if keep is not None:
        records = place / "records.jsonl"
        records.write_bytes(records.read_bytes()[:keep])


# ------------------------------------------------------------------------------------------------------ logs


def test_every_whole_line_is_read_once(tmp_path):
    log, tail = tmp_path / "log", Tail(tmp_path, "log")
    assert tail.read() == ([], False, False)  # it isn't there yet
    log.write_bytes(b"one\ntw")
    assert tail.read().lines == [b"one"]
    assert tail.read().lines == []
    with log.open("ab") as more:
        more.write(b"o\nthree\n")
    assert tail.read().lines == [b"two", b"three"]


def test_a_log_that_was_cut_or_replaced_is_read_anew(tmp_path):
    log, tail = tmp_path / "log", Tail(tmp_path, "log")
    log.write_bytes(b"one\ntwo\n")
    assert tail.read().lines == [b"one", b"two"]
    log.write_bytes(b"one\n")  # a run that was resumed
    assert tail.read() == ([b"one"], True, False)
    (tmp_path / "other").write_bytes(b"new\nand\nlonger\n")
    os.replace(tmp_path / "other", log)
    assert tail.read() == ([b"new", b"and", b"longer"], True, False)


def test_a_long_log_is_read_in_pieces_and_an_endless_line_is_refused(tmp_path):
    log, tail = tmp_path / "log", Tail(tmp_path, "log")
    log.write_bytes(b"x" * (PIECE - 2) + b"\ny\n")
    assert [len(line) for line in tail.read().lines] == [PIECE - 2]
    assert tail.read().lines == [b"y"]
    log.write_bytes(b"x" * (2 * PIECE))
    tail.forget()
    with pytest.raises(SnapshotError, match="longer than"):
        tail.read()


def test_links_are_not_followed(tmp_path):
    (tmp_path / "secret").write_text("x\n")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "log").symlink_to(tmp_path / "secret")
    with pytest.raises(SnapshotError, match="symbolic link"):
        Tail(tmp_path / "run", "log").read()


def line(metric, value, time=0.0, **whose):
    record = {"round": int(time), "time": time, "metric": metric, "value": value, **whose}
    return json.dumps(record, separators=(",", ":")).encode()


def test_curves_traffic_and_groups_are_as_recorded():
    heard = Heard({"tier": "tiers", "split": "tree"})
    for time_, accuracy, up in ((0.0, 0.1, 0), (5.0, 0.5, 100)):
        heard.hear(line("accuracy", 0.9, time_, node=3, view="mine"))  # of a device: not kept
        heard.hear(line("accuracy_mean", accuracy, time_, view="mine"))
        heard.hear(line("accuracy_mean", 0.7, time_, view="global"))  # isn't the headline
        heard.hear(line("bytes_up", up, time_, group="device"))
        heard.hear(line("bytes_down", 2 * up, time_, group="device"))
    assert [(p["time"], p["accuracy"], p["sent"]) for p in heard.points] == [(0.0, 0.1, 0), (5.0, 0.5, 300)]
    assert {r["metric"] for r in heard.kept} == {"accuracy_mean", "bytes_up", "bytes_down"}
    heard.hear(line("lost", 2, 5.0, group="late"))
    heard.hear(line("chosen", {"name": ""}, 5.0, node=0))
    heard.hear(line("chosen", {"name": "0"}, 6.0, node=0))
    heard.hear(line("tier", {"tier": 1}, 6.0, group=1))
    assert heard.lost == {"late": 2}
    assert {at: +count for at, count in heard.sizes.items()} == {5.0: {"all": 1}, 6.0: {"0": 1, "tier 1": 1}}
    heard.hear(line("split", {"into": ["0", "1"]}, 7.0, group=""))
    assert heard.splits == [{"time": 7.0, "group": "all", "into": ["0", "1"]}]
    heard.hear(line("train_loss", 0.25, 7.0, group=9))
    assert heard.numbers == {"train_loss": {9: 0.25}}
    for bad in (b"{", b"[]", line("accuracy_mean", "high")):
        with pytest.raises(SnapshotError):
            heard.hear(bad)


def test_long_curves_keep_their_ends():
    points = thin(range(10_000))
    assert (points[0], points[-1]) == (0, 9_999)
    assert SHOWN / 2 < len(points) <= SHOWN + 1
    assert thin(range(3)) == [0, 1, 2]


def test_what_a_browser_can_not_read_is_left_out():
    told = clean({"a\x1b": [float("nan"), float("inf"), 0.123456789, "x\x07"]})
    assert told == {"a\\x1b": [None, None, 0.123457, "x\\x07"]}


# ------------------------------------------------------------------------------------------------------ runs


def test_a_finished_comparison_has_its_verdict_and_its_colours(place):
    told = look(place)
    (group,) = (told[key] for key in told["page"]["groups"])
    assert group["done"] == 1.0
    assert len(group["runs"]) == 4
    assert "2 seeds" in group["verdict"]
    assert [(curve["name"], curve["colour"]) for curve in group["curves"]] == [
        ("fedavg", "#0072B2"),
        ("auxo", "#E69F00"),
    ]
    curve = group["curves"][0]["axes"]["time"]
    ends = [t["points"]["accuracy"][-1] for t in told.values() if t.get("arm") == "fedavg"]
    assert curve["runs"] == 2
    assert all(low <= y <= high for low, y, high in zip(curve["low"], curve["y"], curve["high"], strict=True))
    assert min(ends) - 100 <= curve["y"][-1] <= max(ends) + 100


def test_only_those_within_a_point_of_the_first_are_said_to_be():
    def race(**ends):
        runs = [
            SimpleNamespace(
                state="running",
                heard=SimpleNamespace(
                    points=[{"time": 0.0, "accuracy": 0.1}, {"time": 60.0, "accuracy": end}]
                ),
            )
            for end in ends.values()
        ]
        return tell_standing(SimpleNamespace(runs=runs, waiting=[], names=[*ends], arms=[*ends]))

    reached = "So far, after 1 min of virtual time, which every run that has begun has reached,"
    assert race(a=0.7, b=0.8).startswith(f"{reached} b is ahead: b 80.0 % and a 70.0 %. 0 of 2 runs have")
    assert race(a=0.7, b=0.8, c=0.795).startswith(f"{reached} b and c are within a point: b 80.0 %, c 79.5 %")


def test_a_killed_run_is_told_from_one_that_is_computed(place, monkeypatch):
    monkeypatch.setattr(live_run, "FRESH", 0.0)
    shutil.rmtree(place / "auxo-2")
    unfinish(place / "auxo-1", keep=(place / "auxo-1" / "records.jsonl").stat().st_size - 5)  # half a line
    told = look(place)
    group = find(told, title="small")
    assert find(told, arm="auxo")["state"] == "stopped"
    assert [(e["arm"], e["seed"]) for e in group["waiting"]] == [("auxo", 2)]
    assert group["verdict"].startswith("So far, after")
    goes_on = f"2 of 4 runs have ended and 1 is stopped: `potluck resume {place}` goes on."
    assert group["verdict"].endswith(goes_on)
    with lock_run(place / "auxo-1"):
        told = look(place)
        assert find(told, arm="auxo")["state"] == "running"
    verdict = find(told, title="small")["verdict"]
    assert verdict.endswith("2 of 4 runs have ended; the verdict comes when all have.")


def test_groups_are_called_what_they_are_in_colours_of_their_own(place):
    unfinish(place / "auxo-1")
    with (place / "auxo-1" / "records.jsonl").open("ab") as records:
        for time_, name in ((50.0, ""), (51.0, "0"), (52.0, "1")):
            records.write(line("chosen", {"name": name}, time_, node=int(name or 0)) + b"\n")
        records.write(line("split", {"into": ["0", "1"]}, 51.0, group="") + b"\n")
        records.write(line("cohort", {"wild": 2}, 52.0, group="1") + b"\n")
    told = find(look(place), path=str(place / "auxo-1"))
    assert [(s["name"], s["colour"]) for s in told["groups"]["series"]] == [
        ("cohort 0", "#44AA99"),  # as in its report
        ("cohort 1", "#CC6677"),
        ("all", "#808080"),
    ]
    assert told["splits"] == [{"time": 51.0, "group": "all", "into": ["cohort 0", "cohort 1"]}]
    wild = next(note for note in told["notes"] if note["what"] == "updates too long to tell sides by")
    assert wild["groups"]["cohort 1"] == 2


def test_runs_of_other_machines_are_known_by_their_signs_of_life(place):
    unfinish(place / "auxo-1")
    crowd = {"devices": 8, "online": 6, "working": 3, "tiers": {"cloud": 8}}
    beat = {
        "round": 2,
        "time": 9.0,
        "done": 0.5,
        **crowd,
        "tasks": 7,
        "lost": {"late": 1},
        "up": 1.0,
        "down": 2.0,
    }
    for ago, state in ((1.0, "running"), (1000.0, "silent")):
        (place / "auxo-1" / "pulse.jsonl").write_text(
            json.dumps({"at": time.time() - ago, "where": "elsewhere", **beat}) + "\n"
        )
        told = find(look(place), path=str(place / "auxo-1"))
        assert told["state"] == state
        assert "another machine" in told["why"]
        assert (told["crowd"]["working"], told["crowd"]["online"], told["lost"]) == ([3], [6], {"late": 1})


def test_damage_is_said_of_the_run_that_has_it_alone(place):
    unfinish(place / "auxo-1")
    (place / "auxo-1" / "records.jsonl").write_text("{}\n")
    (place / "fedavg-2" / "experiment.toml").write_text("x")
    told = look(place)
    assert find(told, arm="auxo", seed=1)["state"] == "damaged"
    assert find(told, arm="fedavg", seed=1)["state"] == "finished"
    assert len(told["page"]["spoiled"]) == 1


def test_a_folder_may_come_later_and_a_run_may_be_replaced(tmp_path, made, monkeypatch):
    monkeypatch.setattr("potluck.watch.board.SEARCH", float("-inf"))  # at every look, however long one takes
    board = Board(tmp_path / "later")
    board.look()
    assert json.loads(board.entries["page"].text)["there"] is False
    shutil.copytree(made / "fedavg-1", tmp_path / "later" / "one")
    board.look()
    (group,) = (e for key, e in board.entries.items() if key.startswith("g"))
    assert json.loads(group.text)["done"] == 1.0
    run(SMALL.with_values(compare=[], seeds=[], algorithm="auxo"), tmp_path / "later" / "one", force=True)
    board.look()
    (left,) = (json.loads(e.text) for key, e in board.entries.items() if key.startswith("r"))
    assert left["arm"] == "auxo"
    shutil.rmtree(tmp_path / "later")
    board.look()
    assert set(board.entries) == {"page"}


def test_a_run_shows_signs_of_life_that_change_nothing_else(tmp_path, monkeypatch):
    monkeypatch.setattr(pulse, "OFTEN", 0.0)
    monkeypatch.setattr(pulse, "COST", 1.0)
    monkeypatch.setattr(pulse.Pulse, "__call__", always := _beat_always(pulse.Pulse.__call__))
    one = SMALL.with_values(compare=[], seeds=[], stop={"rounds": 60})
    run(one, tmp_path / "with")
    assert always
    beats = [json.loads(text) for text in (tmp_path / "with" / "pulse.jsonl").read_text().splitlines()]
    assert beats
    assert all(b["devices"] == 8 == b["online"] and 0 <= b["working"] <= 8 for b in beats)
    assert beats[-1]["tiers"] == {"cloud": 8}
    monkeypatch.setattr(pulse.Pulse, "__call__", lambda self, progress: None)
    run(one, tmp_path / "without")
    assert not (tmp_path / "without" / "pulse.jsonl").exists()
    for name in ("records.jsonl", "devices.json"):
        assert (tmp_path / "with" / name).read_bytes() == (tmp_path / "without" / name).read_bytes()
    folder.check_links(tmp_path / "with")
    run(one, tmp_path / "with", force=True)  # a sign of life is Potluck's own


def test_the_last_sign_of_life_is_of_the_end(tmp_path):
    done = run(SMALL.with_values(compare=[], seeds=[]), tmp_path / "one")
    last = json.loads((tmp_path / "one" / "pulse.jsonl").read_text().splitlines()[-1])
    assert last["done"] == 1.0
    assert last["tasks"] == done.summary["tasks"] > 0


def _beat_always(call):
    def beat(self, progress):
        self.due, self.spoke = 0.0, -1e9
        call(self, progress)

    return beat


def test_who_looks_at_a_lock_keeps_nobody_out(tmp_path):
    assert is_locked(tmp_path) is False
    with lock_run(tmp_path):
        assert is_locked(tmp_path) is True
    ended = threading.Event()
    looking = threading.Thread(target=lambda: [is_locked(tmp_path) for _ in iter(ended.is_set, True)])
    looking.start()
    try:
        for _ in range(100):
            with lock_run(tmp_path):
                pass
    finally:
        ended.set()
        looking.join()


# ------------------------------------------------------------------------------------------------ the server


@pytest.fixture
def served(place):
    """Asks a real server: status, headers, text."""
    at = open_socket(LOOPBACK, 0)
    page = Page(at, Board(place), LOOPBACK)
    thread = threading.Thread(target=page.run)
    thread.start()

    def ask(path, host="localhost", method="GET"):
        call = http.client.HTTPConnection(LOOPBACK, at.getsockname()[1], timeout=60)
        call.putrequest(method, path, skip_host=True)
        call.putheader("Host", host)
        call.endheaders()
        answer = call.getresponse()
        text = (
            answer.fp.readline() + answer.fp.readline() + answer.fp.readline()
            if path == "/events"
            else answer.read()
        )
        call.close()
        return answer.status, answer.headers, text.decode()

    yield ask
    page.end()
    thread.join()


@pytest.mark.parametrize(
    ("host", "status"),
    [
        ("localhost:1", 200),
        ("127.0.0.1:8484", 200),
        ("[::1]:8484", 200),
        ("10.0.0.7", 200),
        ("evil.example.org", 421),
        ("localhost.evil.org:8484", 421),
        ("127.0.0.1.evil.org", 421),
        ("", 421),
    ],
)
def test_only_names_of_this_machine_are_answered(served, host, status):
    """A page from elsewhere may bend its own name to this address; an address can't be bent."""
    assert served("/", host)[0] == status
    assert served("/nothing", host)[0] == (404 if status == 200 else 421)


@pytest.mark.parametrize(
    "path",
    [
        *("/../../../etc/passwd", "/..%2f..%2fetc/passwd", "//etc/passwd", "/watch.css/../web.py", "/web.py"),
        *(
            "/report/../../etc/passwd",
            "/report/",
            "/report/%2e%2e",
            "/small/experiment.toml",
            "/report/fedavg-1",
        ),
    ],
)
def test_no_path_leads_out(served, path):
    status, _, text = served(path)
    assert status == 404
    assert text.startswith("potluck: there is no such ")


def test_events_reports_and_policies(served, made):
    status, headers, text = served("/events")
    assert status == 200
    assert headers["Content-Type"] == "text/event-stream"
    told = json.loads(text.partition("data: ")[2])
    for key in find(told, title="small")["runs"][:1] * 2:  # drawn once
        status, headers, page = served(f"/report/{key}")
        assert status == 200
        assert page.startswith("<!doctype html>")
        assert headers["Content-Security-Policy"].startswith("sandbox allow-scripts")
    assert not (made / "fedavg-1" / "report.html").exists()  # nothing is written
    status, headers, _ = served("/")
    assert "default-src 'none'" in headers["Content-Security-Policy"]
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert served("/", method="POST")[0] == 501


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["file"], ["DIR = file: a file", "name the folder"]),
        (["no/where"], ["no/where", "neither it nor no is there"]),
        (["--port", "70000"], ["--port 70000", "to 65535"]),
        (["--host", "no such host"], ["--host no such host", "127.0.0.1"]),
        (["--host", "192.0.2.1"], ["--host 192.0.2.1", "address of this machine"]),
    ],
)
def test_mistakes_are_one_line(tmp_path, monkeypatch, capsys, arguments, words):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").touch()
    with pytest.raises(SystemExit) as ended:
        main(["watch", *arguments])
    said = capsys.readouterr()
    assert ended.value.code == 2
    assert said.err.count("\n") == 1
    assert all(word in said.err for word in words), said.err


def test_a_port_that_is_taken_is_named():
    with (
        open_socket(LOOPBACK, 0) as taken,
        pytest.raises(ConfigError, match=r"--port \d+: can't be had on 127"),
    ):
        open_socket(LOOPBACK, taken.getsockname()[1])
    with open_socket(LOOPBACK, None) as one, open_socket(LOOPBACK, None) as other:
        assert one.getsockname() != other.getsockname()


def test_a_command_shows_its_page_until_it_ends(tmp_path, monkeypatch, capsys):
    """The page is there at once, tells the last state, and its process goes with the command."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(SMALL.with_values(compare=[], seeds=[]).to_toml())
    with pytest.raises(SystemExit) as ended:
        main(["run", "small.toml", "--watch"])
    assert not ended.value.code
    address = capsys.readouterr().err.partition("potluck: watch it at ")[2].split()[0]
    host, _, port = address.removeprefix("http://").rstrip("/").partition(":")
    with pytest.raises(ConnectionRefusedError):
        http.client.HTTPConnection(host, int(port), timeout=5).request("GET", "/")
