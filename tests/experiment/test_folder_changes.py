"""A run's folder, as it comes over in pieces: what is there is what was here, whenever one looks."""

import os
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from potluck.core.errors import SnapshotError
from potluck.engine import snapshot
from potluck.experiment.launch.folder_changes import Changes, FolderChanges, read_all, write_changes

STEPS = (
    "record",
    "remember",
    "compact",
    "pulse",
    "rewrite",
    "snapshot",
    "half",
    "look",
    "look",
    "go elsewhere",
)


class Running:
    """A run that writes into its folder as runs do, and a folder that is told of it."""

    def __init__(self, root):
        self.place, self.far, self.serial, self.log, self.sent = root / "0", root / "far", 0, 0, 0
        self.place.mkdir()
        self.far.mkdir()
        self.changes = FolderChanges(self.place)

    def do(self, step, content):
        log = f"keep.{self.log}.log" if self.log else "keep.log"
        if step in ("record", "remember", "pulse"):
            name = {"record": "records.jsonl", "remember": log, "pulse": "pulse.jsonl"}[step]
            with open(self.place / name, "ab") as file:
                file.write(content)
        elif step == "compact":
            (self.place / log).unlink(missing_ok=True)
            self.log += 1
            (self.place / f"keep.{self.log}.log").write_bytes(content)
        elif step == "rewrite":
            snapshot.safe_files.write_file(self.place, "models/all.safetensors", content)
        elif step == "snapshot":
            self.serial += 1
            snapshot.write(self.place, self.serial, len(content))
        elif step == "half":
            (self.place / ".plan.json.partial").write_bytes(content)
        elif step == "look":
            self.look()
        else:
            self.go_elsewhere(content)

    def look(self):
        told = self.changes.list_new()
        self.sent += sum(len(content) for _, content in told.files.values())
        write_changes(self.far, told)

    def go_elsewhere(self, content):
        """Another machine has what came over; the run cuts its logs there, and may write other bytes."""
        self.place = self.place.with_name(str(int(self.place.name) + 1))
        self.place.mkdir()
        self.changes = FolderChanges(self.place)
        write_changes(self.place, read_all(self.far))
        self.changes.mark_sent()
        self.serial = max([int(Path(name).stem) for name in snapshot.list_all(self.far)], default=0)
        logs = [path.name for path in self.place.glob("keep*.log")]
        self.log = max([int(name.split(".")[1]) for name in logs if name.count(".") == 2], default=0)
        for name in ("records.jsonl", *logs):
            if (self.place / name).exists():
                size = (self.place / name).stat().st_size
                os.truncate(self.place / name, size // 2)
                with open(self.place / name, "ab") as file:
                    file.write(content[::-1] * 2)


def list_content(place):
    found = {str(p.relative_to(place)): p.read_bytes() for p in place.rglob("*") if p.is_file()}
    snapshots = sorted(name for name in found if name.startswith("snapshots/"))
    return {
        name: content
        for name, content in found.items()
        if not name.startswith(".") and name not in snapshots[:-1]
    }


@settings(max_examples=60, deadline=None)
@example(steps=[("remember", b"x"), ("look", b""), ("go elsewhere", b""), ("compact", b"y")])
@given(steps=st.lists(st.tuples(st.sampled_from(STEPS), st.binary(max_size=9)), max_size=25))
def test_whoever_is_told_has_all_that_there_is(steps, tmp_path_factory):
    run = Running(tmp_path_factory.mktemp("run"))
    for step, content in steps:
        run.do(step, content)
        if step == "look":
            assert list_content(run.far) == list_content(run.place)
    run.look()
    assert list_content(run.far) == list_content(run.place)
    assert len(snapshot.list_all(run.far)) <= snapshot.KEPT
    sent, run.sent = run.sent, 0
    run.look()
    assert (run.sent, sent >= 0) == (0, True)  # nothing is told twice


@pytest.mark.parametrize("name", ["../plan.json", "/etc/passwd", "models/../../x", ""])
def test_names_that_lead_out_of_the_folder_are_refused(tmp_path, name):
    (tmp_path / "run").mkdir()
    for changes in (Changes({name: (0, b"")}), Changes({}, (name,))):
        with pytest.raises(SnapshotError, match="is no name of a file in it"):
            write_changes(tmp_path / "run", changes)


def test_a_log_that_was_cut_meanwhile_is_no_log_to_go_on_with(tmp_path):
    (tmp_path / "records.jsonl").write_bytes(b"{}\n")
    with pytest.raises(SnapshotError, match=r"records\.jsonl: was cut while its run was computed"):
        write_changes(tmp_path, Changes({"records.jsonl": (9, b"{}\n")}))


def test_a_link_is_not_written_through(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "elsewhere").write_bytes(b"mine")
    (tmp_path / "run" / "records.jsonl").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(SnapshotError, match="symbolic link"):
        write_changes(tmp_path / "run", Changes({"records.jsonl": (0, b"theirs")}))
    assert (tmp_path / "elsewhere").read_bytes() == b"mine"
