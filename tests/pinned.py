"""Whether runs compute what they computed: two checkouts compared to the bit, or this one with stored values.

    python tests/pinned.py --against COMMIT               every algorithm, here and at COMMIT
    python tests/pinned.py --against COMMIT --only fedavg,auxo
    python tests/pinned.py --against-path DIR             the same with a checkout that is there
    python tests/pinned.py --write FILE, --check FILE     digests to keep, for this machine alone
    python tests/pinned.py --renew fedavg,auxo            stored values of these, or of "all"

Exits with 1 if anything differs. Work that means to change results renews what it names, in a commit of its
own.

Modules, classes and functions move between commits, so everything goes through `python -m potluck` and the
files of a run's folder. For each checkout one process lists its algorithms and forks one for each run (loop
executor, one thread). Compared are
- served: the models that the cloud serves, by view;
- kept: what devices remember, from keep.log. Snapshots are taken at the beginning and the end only, so the
  log holds every memory once. It is read as one safetensors blob after another, and blobs are compared as a
  sorted list: who owns which is said in the snapshot alone, whose form may change;
- recorded: records.jsonl, devices.json and summary.json, without times of the wall clock.
Leaves (tensors, numbers, texts) are compared in their order; names of classes, fields and containers aren't,
nor how the codec wrote them. A digest holds for one machine: others' instructions sum in another order.
`test_pinned.py` compares the same runs in float64 with pinned_values.json, to a relative 1e-7.
"""

import argparse
import hashlib
import json
import os
import re
import runpy
import struct
import subprocess
import sys
import tempfile
from contextlib import contextmanager, redirect_stdout
from io import StringIO
from pathlib import Path

HERE = Path(__file__).resolve().parent
VALUES = HERE / "pinned_values.json"
PARTS = ("served", "kept", "recorded")
NOT_COMPARED = ("wall_seconds", "finished", "remarks")  # of a summary

EXPERIMENT = """
name = "pinned"
seed = 3

[data]
source = "synthetic"
rows = 900
classes = 5
dimension = 8
partition = "user_devices"
users = 7
devices_per_user = [2, 4]
smallest = 10
server = 0.1

[model]
width = 0.05

[fleet]
edges = 3
memory = [2_000, 20_000]

[stop]
rounds = 30

[evaluate]
rounds = 10

[run]
executor = "loop"
snapshot_every = 1e9
"""

_GROUPS = 'data.groups={kind="permutation",count=2}'
# Parameters are the defaults, but where nothing would happen in so small a crowd.
SETTINGS = {
    "auxo": (_GROUPS, "algorithms.auxo.force=[12]", "algorithms.auxo.first_split=10"),
    "cfl": (_GROUPS, "algorithms.cfl.eps1=100.0", "algorithms.cfl.eps2=0.0", "algorithms.cfl.min_round=9"),
    "classter_async": ("stop.rounds=150", "evaluate.rounds=50"),
    "fedasync": ("stop.rounds=200", "evaluate.rounds=50"),
    "fedgs": ("stop.rounds=2", "evaluate.rounds=1", "algorithms.fedgs.clients=4"),  # of 50 syncs each
    "fedrac": ("stop.rounds=80", "evaluate.rounds=20"),  # the leader has 50, then followers learn
    "flexcfl": (_GROUPS,),
    "flhc": (_GROUPS,),
    "ifca": (_GROUPS,),
    "share": ("stop.rounds=4", "evaluate.rounds=2"),  # of many rounds at edges each
    "shufflefl": ("stop.rounds=7", "evaluate.rounds=3"),
    "tifl": ("stop.rounds=45",),
}
# What no algorithm does at its defaults: other parts of the house that move. NAME: algorithm and settings.
VARIANTS = {
    "auxo authors": ("auxo", (*SETTINGS["auxo"], 'algorithms.auxo.criterion="authors"')),
    "cfl relative": ("cfl", (_GROUPS, "algorithms.cfl.rest=0.4", "algorithms.cfl.min_round=9")),
    "fedavg private": ("fedavg", ("train.privacy={clip=0.5,sigma=0.1}",)),
    "fedavg attacked": ("fedavg", ('robust={kind="krum"}', 'fleet.attack={kind="sign_flip",share=0.2}')),
    "fedavg late": ("fedavg", ("algorithms.fedavg.deadline=0.3", "algorithms.fedavg.overcommit=1.5")),
    "fedprox late": ("fedprox", ("algorithms.fedprox.deadline=0.3",)),
    "fedbuff on and off": (
        "fedbuff",
        ('fleet.availability="on_off"', "fleet.period=2.0", "fleet.jitter={every=0.5,compute=0.5}"),
    ),
    "flexcfl changes": ("flexcfl", ('data.changes=[{at=3.0,kind="labels",share=0.5}]',)),
    "scaffold forgets": ("scaffold", ("fleet.forget=0.3", "fleet.stragglers={share=0.2,slower=3.0}")),
    "fedadam adam": ("fedadam", ('train.optimizer="adam"', "data.flip={share=0.2}", "data.shift=0.5")),
}


def settings_of(name):
    """The algorithm of a pinned run, and what it is told."""
    if name in VARIANTS:
        return VARIANTS[name]
    algorithm, _, mode = name.partition(" ")
    own = (f"algorithms.{algorithm}.mode={mode}",) if mode else ()
    return algorithm, (*SETTINGS.get(algorithm, ()), *own)


# ----------------------------------------------------------------------------------------------- running


def call(*arguments):
    """The command line, in this process; its exit code."""
    before, sys.argv = sys.argv, ["potluck", *arguments]
    try:
        runpy.run_module("potluck", run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return 0 if end.code is None else end.code
    finally:
        sys.argv = before
    return 0


def list_algorithms():
    """By name; as they were published too, where that is something else: `auxo published`."""
    with redirect_stdout(StringIO()) as out:
        call("algorithms", "--json")
    listed = {each["name"]: each["parameters"] for each in json.loads(out.getvalue())}
    return [*listed, *(f"{name} published" for name, own in listed.items() if any(map(is_otherwise, own)))]


def is_otherwise(p):
    """Whether the paper has another value for a parameter; an older checkout knows no modes."""
    return p["name"] != "mode" and p.get("published") not in (None, p["default"])


def run(name, folder, *more):
    """A pinned run into a folder, by the potluck that this process imports; its exit code."""
    algorithm, settings = settings_of(name)
    folder.mkdir(parents=True)
    file = folder / "pinned.toml"
    file.write_text(EXPERIMENT)
    changes = [part for setting in (*settings, *more) for part in ("--set", setting)]
    return call("run", str(file), "--algorithm", algorithm, "--out", str(folder / "run"), "--quiet", *changes)


def run_side(out, only, more):
    """In a process of one checkout: run all that is asked for, each in a fork, into `out`/NAME."""
    algorithms = list_algorithms()
    import potluck

    assert Path(potluck.__file__).is_relative_to(Path.cwd()), f"{potluck.__file__} isn't of this checkout"
    names = [*algorithms, *VARIANTS]
    (out / "names.json").write_text(json.dumps(names))
    for name in (name for name in names if not only or name in only):
        child = os.fork()
        if not child:
            code = 1
            try:
                with open(out / f"{name}.log", "w") as log:
                    os.dup2(log.fileno(), 1)
                    os.dup2(log.fileno(), 2)
                code = run(name, out / name, *more)
            finally:
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(code)
        os.waitpid(child, 0)


def start_side(checkout, out, only, more=()):
    """A process that runs everything with the potluck of a checkout."""
    out.mkdir()
    here = {"PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1", "POTLUCK_CACHE": str(out / "cache")}
    command = [sys.executable, str(Path(__file__).resolve()), "--side", str(out), "--only", ",".join(only)]
    return subprocess.Popen([*command, "--more", *more], cwd=checkout, env=os.environ | here)


@contextmanager
def checked_out(commit, at):
    """A worktree of a commit, while it is needed."""
    git = ["git", "-C", str(HERE)]
    subprocess.run([*git, "worktree", "add", "--quiet", "--detach", str(at), commit], check=True)
    try:
        yield at
    finally:
        subprocess.run([*git, "worktree", "remove", "--force", str(at)], check=True)


# ----------------------------------------------------------------------------------------------- reading


def read_blobs(data):
    """All that was written by safetensors, one after another: their metadata and their tensors."""
    at = 0
    while at < len(data):
        (length,) = struct.unpack_from("<Q", data, at)
        header = json.loads(data[at + 8 : at + 8 + length])
        about, start = header.pop("__metadata__", {}), at + 8 + length
        tensors = {
            name: (t["dtype"], t["shape"], data[start + t["data_offsets"][0] : start + t["data_offsets"][1]])
            for name, t in header.items()
        }
        yield about, tensors
        at = start + max((t["data_offsets"][1] for t in header.values()), default=0)


def find_leaves(value, shared, tensors):
    """The leaves of what the codec wrote, in order: plain ones, and (dtype, shape, bytes) of tensors.

    Names of values and their fields are left out, and None; so are keys that could be names of fields.
    """
    if value is None:
        return
    if isinstance(value, list):
        for each in value:
            yield from find_leaves(each, shared, tensors)
        return
    if not isinstance(value, dict):
        yield value
        return
    tag = next((key for key in value if key.startswith("$")), None)
    content = value.get(tag)
    if tag == "$s":
        yield from find_leaves(shared[content], shared, tensors)
    elif tag == "$v":
        fields = value["f"]
        yield from find_leaves(list(fields.values()) if isinstance(fields, dict) else fields, shared, tensors)
    elif tag == "$x":
        yield tensors[str(content)]
    elif tag == "$n":
        yield value["dtype"], value["shape"], tensors[str(content)][2]
    elif tag in ("$t", "$d", "$r"):
        yield from find_leaves(content, shared, tensors)
    elif tag in ("$e", "$f"):  # ordered by their names, perhaps
        entries = [list(find_leaves(each, shared, tensors)) for each in content]
        yield from (leaf for entry in sorted(entries, key=repr) for leaf in entry)
    elif tag == "$b":
        yield content
    elif tag is not None:
        raise SystemExit(f"pinned.py: the codec writes {tag}, which is not known here: teach `find_leaves`")
    else:
        for key, each in value.items():
            if not re.fullmatch(r"[A-Za-z_][\w.]*", key):
                yield key
            yield from find_leaves(each, shared, tensors)


def read_run(folder):
    """What a run has served, kept and recorded: (view, tensors by name), lists of leaves, records."""
    served = {}
    for path in sorted((folder / "models").glob("*.safetensors")):
        ((about, tensors),) = read_blobs(path.read_bytes())
        served[about["view"]] = dict(sorted(tensors.items()))
    kept = []
    for about, tensors in read_blobs((folder / "keep.log").read_bytes()):
        content = json.loads(about["potluck"])
        kept.append(list(find_leaves(content["root"], content["shared"], tensors)))
    recorded = [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]
    for file in ("devices.json", "summary.json"):
        found = json.loads((folder / file).read_text())
        value = {key: each for key, each in found.items() if key not in NOT_COMPARED}
        recorded.append({"metric": file, "value": value})
    return served, kept, recorded


def hash_text(text):
    return hashlib.sha256(text.encode()).hexdigest()


def spell(leaf):
    """A leaf as text: a tensor by its digest."""
    if not isinstance(leaf, tuple):
        return json.dumps(leaf)
    dtype, shape, data = leaf
    return f"{dtype} {shape} {hashlib.sha256(data).hexdigest()}"


def describe(folder):
    """What is compared of a run: lines by part."""
    served, kept, recorded = read_run(folder)
    return {
        "served": [f"{view} {name} {spell(t)}" for view, ts in served.items() for name, t in ts.items()],
        "kept": sorted(hash_text("\n".join(map(spell, leaves))) for leaves in kept),
        "recorded": [json.dumps(record, sort_keys=True) for record in recorded],
    }


def read_side(out, name):
    """A run's lines by part, or why there are none."""
    if not (out / name / "run" / "summary.json").is_file():
        log = out / f"{name}.log"
        return (log.read_text().strip() or "failed")[-300:] if log.is_file() else "no such algorithm"
    return describe(out / name / "run")


def digest(parts):
    return {part: hash_text("\n".join(lines)) for part, lines in parts.items()}


# --------------------------------------------------------------------------------------------- comparing


def explain(one, other):
    """Where two runs differ, in words; nothing if they don't."""
    failed = [
        f"{where}: {side}" for where, side in (("here", one), ("there", other)) if isinstance(side, str)
    ]
    if failed:
        return "; ".join(failed)
    parts = [part for part in PARTS if one[part] != other[part]]
    if not parts:
        return ""
    first = parts[-1]
    pairs = [(a, b) for a, b in zip(one[first], other[first], strict=False) if a != b]
    a, b = pairs[0] if pairs else (f"{len(one[first])} lines", f"{len(other[first])} lines")
    return f"{', '.join(parts)}\n    here:  {a[:160]}\n    there: {b[:160]}"


def show(name, difference):
    print(f"{name:20} {'differs: ' + difference if difference else 'equal'}", flush=True)
    return bool(difference)


def listed(out, only):
    return [name for name in json.loads((out / "names.json").read_text()) if not only or name in only]


def compare(checkout, only):
    """Both checkouts at the same time, one a core; whether anything differs."""
    with tempfile.TemporaryDirectory() as place:
        here, there = Path(place, "here"), Path(place, "there")
        sides = [start_side(HERE.parent, here, only), start_side(checkout, there, only)]
        for side in sides:
            side.wait()
        if any(side.returncode for side in sides):
            raise SystemExit("pinned.py: a checkout can't list its algorithms; see above")
        names = dict.fromkeys([*listed(here, only), *listed(there, only)])
        if not names:
            raise SystemExit(f"pinned.py: --only {','.join(only)}: neither checkout has any of these")
        differing = [
            name for name in names if show(name, explain(read_side(here, name), read_side(there, name)))
        ]
        print(f"{len(names) - len(differing)} of {len(names)} equal")
        return bool(differing)


@contextmanager
def finished_here(only, *more):
    """This checkout's runs: their folder, and their names."""
    with tempfile.TemporaryDirectory() as place:
        out = Path(place, "here")
        side = start_side(HERE.parent, out, only, more)
        if side.wait():
            raise SystemExit("pinned.py: this checkout can't list its algorithms; see above")
        yield out, listed(out, only)


def write(file, only):
    with finished_here(only) as (out, names):
        found = {name: digest(read_side(out, name)) for name in names}
    Path(file).write_text(json.dumps(found, indent=1) + "\n")
    return False


def check(file, only):
    stored = json.loads(Path(file).read_text())
    with finished_here(only) as (out, names):
        found = {name: read_side(out, name) for name in names}
    differs = False
    for name in dict.fromkeys([*names, *(name for name in stored if not only or name in only)]):
        now, then = found.get(name, "no such algorithm"), stored.get(name)
        if isinstance(now, str) or then is None:
            difference = now if isinstance(now, str) else "not stored"
        else:
            difference = ", ".join(part for part in PARTS if digest(now)[part] != then[part])
        differs |= show(name, difference)
    return differs


def renew(names):
    """Store anew the float64 values of these runs, and of no others."""
    sys.path.insert(0, str(HERE / "project"))
    from test_pinned import measure

    stored = json.loads(VALUES.read_text()) if VALUES.is_file() else {}
    with finished_here([] if names == ["all"] else names, "run.dtype=float64") as (out, found):
        if unknown := set(names) - {"all", *found}:
            raise SystemExit(f"pinned.py: --renew {', '.join(sorted(unknown))}: no such run")
        for name in found:
            if isinstance(told := read_side(out, name), str):
                raise SystemExit(f"pinned.py: {name}: {told}")
            stored[name] = measure(out / name / "run")
    lines = [f"{json.dumps(name)}: {json.dumps(stored[name])}" for name in sorted(stored)]
    VALUES.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    return False


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--against", metavar="COMMIT")
    what.add_argument("--against-path", metavar="DIR", type=Path)
    what.add_argument("--write", metavar="FILE")
    what.add_argument("--check", metavar="FILE")
    what.add_argument("--renew", metavar="NAMES")
    what.add_argument("--side", type=Path, help=argparse.SUPPRESS)  # a process of one checkout
    parser.add_argument("--only", metavar="NAMES", default="", help="of algorithms or variants, by commas")
    parser.add_argument("--more", nargs="*", default=[], help=argparse.SUPPRESS)
    asked = parser.parse_args()
    only = [name for name in asked.only.split(",") if name]
    if asked.side:
        return run_side(asked.side, only, asked.more)
    if asked.write or asked.check:
        return write(asked.write, only) if asked.write else check(asked.check, only)
    if asked.renew:
        return renew(asked.renew.split(","))
    if asked.against_path:
        return compare(asked.against_path.resolve(), only)
    with tempfile.TemporaryDirectory() as place, checked_out(asked.against, Path(place, "there")) as checkout:
        return compare(checkout, only)


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
