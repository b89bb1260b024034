"""Whether baselines are good: each at its defaults, beside FedAvg, in the same virtual time.

    python tests/floors.py                      measures all floors, prints the table; exits with 1 below one
    python tests/floors.py --only ifca,cfl      of these alone; of situations by --only heterofl-lenet, too
    python tests/floors.py --when               of those below one: the conditions under which they meet it
    python tests/floors.py --mended COMMIT      what mending changed: at COMMIT and here, by situation
    python tests/floors.py --chosen             HeteroFL with and without its scaler, on validation rows
    python tests/floors.py --crowds writers     of some crowds alone
    python tests/floors.py --write FILE         puts the tables that were measured into a page, between marks;
                                                with --only, rows of others stay
    python tests/floors.py --count              says how many runs the first and the third of these take
    python tests/floors.py --out DIR            where runs are kept: what is there isn't run again

The design, written down before the first run:
- A baseline's defaults, and an experiment's: the MLP, SGD at 0.1, batches of 10, one epoch.
- Two crowds that can carry all of them: users with two to four devices each, below four edges, by a mobile
  fleet's speeds with links of 100 Mbit/s in the median, so that what is compared is learning per second of
  computing. `digits` is dealt to 14 users by Dirichlet(0.5); `har` is UCI HAR by its 21 people of the train
  split, whose devices hold their own windows.
- Systems are measured in a third one, too, which has no other rows: `writers` is MNIST by 30 of those who
  wrote it, whose devices hold 10 to 60 images of theirs; the server has 700. A system without another mode
  is there, too, but asynchronous ClassTer isn't: a run of it would take a minute.
- Everybody has the same seconds of virtual time: FedAvg holds about 180, 130 and 100 rounds in them.
- The score is the mean accuracy over devices, in the view that a device uses first, on its test rows, over
  the last five of twenty evaluations; then the mean over seeds 1, 2 and 3. Nothing is chosen by it.
- The floor is FedAvg's score less MARGIN. HeteroFL, whose devices can't all train the whole model, has the
  score of FedAvg with its smallest model, less MARGIN.
- A system whose defaults are its paper's isn't measured: they promise nothing here. One that was published
  with others (its two modes differ) joins, since its defaults are then those that keep its promise.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import fmean
from typing import NamedTuple

from pinned import checked_out, is_otherwise

HERE = Path(__file__).resolve().parent
MARGIN = 0.03
SEEDS = (1, 2, 3)
LAST = 5  # evaluations that the score is the mean of
SYSTEMS = ("auxo", "classter", "classter_async", "fedrac", "maverick", "shufflefl")


class Condition(NamedTuple):
    label: str
    settings: tuple[str, ...]
    met: bool = True  # whether its floor is met so: expected, then what came of it


# By crowd, who can't meet its floor, and the conditions under which it should: the page has what came of
# them. FedAvg has the same ones. Chosen from what each method spends its time on, and from validation rows at
# seeds 11 and 12 for SCAFFOLD (0.03: 90.8 %, FedAvg 89.5 %; 0.1: 63 %). HeteroFL's second one follows a look
# at validation rows (0.968 and 0.912 without the scaler at two seeds, FedAvg's smallest 0.952 and 0.936).
_ROUNDS = ("stop.seconds=1e6", "evaluate.seconds=1e6")
_LONGER = Condition("four times as long", ("stop.seconds=400", "evaluate.seconds=20"))
BELOW = {
    "digits": {
        "classter_async": (_LONGER,),
        "fedgs": (_LONGER,),
        "heterofl": (
            Condition("180 rounds of each", (*_ROUNDS, "stop.rounds=180", "evaluate.rounds=9"), met=False),
            Condition("without its scaler", ("algorithms.heterofl.scaler=false",), met=False),
        ),
    },
    "har": {
        "moon": (Condition("120 rounds of each", (*_ROUNDS, "stop.rounds=120", "evaluate.rounds=6")),),
        "scaffold": (Condition("rate 0.03", ("train.lr=0.03",)),),
    },
    "writers": {},
}
SMALLEST = {"heterofl": 0.0625}  # the width of the smallest model, where it is what a baseline is held to

CROWD = """
name = "floors"
algorithm = "fedavg"
seeds = [1, 2, 3]

[data]
source = "{source}"
partition = "user_devices"
users = {users}
devices_per_user = [2, 4]
alpha = 0.5
smallest = 10
server = {server}

[fleet]
edges = 4
down = 1e8

[stop]
seconds = {seconds}

[evaluate]
seconds = {every}

[run]
executor = "stacked"
graphs = false
"""
CROWDS = {
    "digits": CROWD.format(source="digits", users=14, server=0.05, seconds=100, every=5),
    "har": CROWD.format(source="har", users=21, server=0.05, seconds=2000, every=100),
    "writers": CROWD.format(source="mnist", users=30, server=0.01, seconds=400, every=20),
}
TABLES = {"floors": ("digits", "har"), "writers": ("writers",)}  # of the page

_KINDS = 'data.groups={kind="rotation",count=4}'
_TWO = 'data.groups={kind="permutation",count=2}'
_FLIP = 'fleet.attack={kind="sign_flip",share=0.2}'
_AWAY = ('fleet.availability="on_off"', "fleet.period=10.0", "fleet.share=0.5")
# Where each mend shows, on digits: what it is called, the algorithm, and settings. FedAvg has the same ones
# but for those of [robust] and of the algorithm itself.
SITUATIONS = {
    "HeteroFL": ("heterofl", ()),
    "HeteroFL, LeNet": ("heterofl", ('model.name="lenet5"',)),
    "FedGS": ("fedgs", ()),
    "HybridFL": ("hybridfl", ()),
    "HybridFL, devices come and go": ("hybridfl", _AWAY),
    "IFCA, four kinds, four models": ("ifca", (_KINDS, "algorithms.ifca.models=4")),
    "FedProx, deadline of 0.2 s": ("fedprox", ("algorithms.fedprox.deadline=0.2",)),
    "PyramidFL": ("pyramidfl", ()),
    "TiFL, 60 rounds": ("tifl", ("stop.rounds=60", "evaluate.rounds=3")),
    "FLAME": ("flame", ()),
    "Oort": ("oort", ()),
    "DM-PFL, 60 rounds": ("dmpfl", ("stop.rounds=60", "evaluate.rounds=3")),
    "CFL, two kinds": ("cfl", (_TWO,)),
    "CFL, two kinds, momentum 0.9": ("cfl", (_TWO, "train.momentum=0.9", "train.lr=0.03")),
    "Krum, nobody attacks": ("fedavg", ('robust={kind="krum"}',)),
    "Krum, 20 % flip signs": ("fedavg", ('robust={kind="krum"}', _FLIP)),
    "Multi-Krum, nobody attacks": ("fedavg", ('robust={kind="multi_krum"}',)),
    "Multi-Krum, 20 % flip signs": ("fedavg", ('robust={kind="multi_krum"}', _FLIP)),
}
# What HeteroFL's scaler does where gradients are clipped: accuracy on validation rows in its first view, at
# seeds of no floor. What it does without the clip is in the table of mends, `before`.
CHOOSING = (11, 12)
CHOICES = {"scaler": (), "no scaler": ("algorithms.heterofl.scaler=false",)}
CHOSEN_IN = {
    "digits": ("digits", ()),
    "digits, LeNet": ("digits", ('model.name="lenet5"',)),
    "har": ("har", ()),
}


# ----------------------------------------------------------------------------------------------- running


def potluck(checkout, *arguments):
    """The command line of a checkout, in a process of its own."""
    env = os.environ | {"PYTHONPATH": str(checkout), "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-m", "potluck", *arguments]
    return subprocess.run(command, cwd=checkout, env=env, capture_output=True, text=True, check=False)


def list_baselines(checkout):
    listed = json.loads(potluck(checkout, "algorithms", "--json").stdout)
    changed = {each["name"] for each in listed if any(map(is_otherwise, each["parameters"]))}
    return [each["name"] for each in listed if each["name"] not in SYSTEMS or each["name"] in changed]


def list_measured(checkout, crowd):
    """Whom a crowd measures."""
    if crowd != "writers":
        return list_baselines(checkout)
    return ["fedavg", *(name for name in SYSTEMS if name != "classter_async")]


def count_runs(checkout):
    """How many runs floors and conditions take."""
    whole = [(crowd, name) for crowd in CROWDS for name in list_measured(checkout, crowd)]
    mine = [
        (crowd, n, c) for crowd, below in BELOW.items() for n, conditions in below.items() for c in conditions
    ]
    plain = {("", crowd, SMALLEST[name]) for crowd, name in whole if name in SMALLEST}
    plain |= {(c.label, crowd, SMALLEST.get(name)) for crowd, name, c in mine}
    return len(SEEDS) * (len(whole) + len(mine) + len(plain))


def compare(checkout, out, crowd, names, settings=(), seeds=SEEDS):
    """Scores by algorithm and seed in one crowd; runs that a folder holds already aren't done again."""
    out.mkdir(parents=True, exist_ok=True)
    runs = out / "runs"
    if runs.exists():
        done = potluck(checkout, "resume", str(runs), "--quiet")
    else:
        file = out / "crowd.toml"
        file.write_text(CROWDS[crowd])
        changes = [part for setting in (f"seeds={[*seeds]}", *settings) for part in ("--set", setting)]
        listed = ("--algorithms", ",".join(names))
        done = potluck(checkout, "compare", str(file), *listed, *changes, "--out", str(runs), "--quiet")
    scores = {name: [score(out / "runs" / f"{name}-{seed}") for seed in seeds] for name in names}
    if any(None in found for found in scores.values()):
        print(f"{out}: {(done.stderr or done.stdout).strip()[-400:]}", file=sys.stderr)
    return scores


def score(folder):
    """Mean accuracy over devices and the last evaluations, in the view used first; None of a failed run."""
    if not (folder / "summary.json").is_file():
        return None
    view = json.loads((folder / "summary.json").read_text())["view"]
    by_time = {}
    with (folder / "records.jsonl").open() as lines:
        for line in lines:
            if '"metric":"accuracy"' not in line:
                continue
            record = json.loads(line)
            if record.get("view") == view and "node" in record:
                by_time.setdefault(record["time"], []).append(record["value"])
    means = [fmean(by_time[time]) for time in sorted(by_time)]
    return fmean(means[-LAST:]) if means else None


# ---------------------------------------------------------------------------------------------- measuring


def measure_plain(checkout, out, crowd, settings=(), width=None, seeds=SEEDS):
    """Scores of FedAvg with the settings that concern it, and with a model of some width."""
    own = [s for s in settings if not s.startswith(("robust", "algorithms."))]
    place = out / "fedavg"
    if width is not None:
        own, place = [*own, f"model.width={width}"], out / f"fedavg-{width:g}"
    return compare(checkout, place, crowd, ["fedavg"], own, seeds)["fedavg"]


def measure_floors(checkout, out, crowd, only=()):
    """By baseline: its score, that of what it is held to, and by how much it is above its floor."""
    names = [name for name in list_measured(checkout, crowd) if not only or name in only]
    scores = compare(checkout, out / crowd, crowd, ["fedavg", *(n for n in names if n != "fedavg")])
    found = {}
    for name in names:
        held = scores["fedavg"]
        if name in SMALLEST:
            held = measure_plain(checkout, out / f"{crowd}-smallest", crowd, width=SMALLEST[name])
        found[name] = {"scores": scores[name], "held": held}
    return found


def is_above(row):
    """Whether a baseline is above its floor: one that failed isn't."""
    return None not in row["scores"] and fmean(row["scores"]) >= fmean(row["held"]) - MARGIN


def measure_when(checkout, out, crowd, only=()):
    """As `measure_floors`, of those below their floors: each under its conditions."""
    found = {}
    for name, conditions in BELOW[crowd].items():
        for label, settings, met in conditions if not only or name in only else ():
            place = out / "when" / f"{crowd}-{spell(label)}"
            scores = compare(checkout, place / name, crowd, [name], settings)[name]
            held = measure_plain(checkout, place, crowd, settings, SMALLEST.get(name))
            found[f"`{name}` on {crowd}, {label}"] = {"scores": scores, "held": held, "met": met}
    return found


def measure_mended(here, there, out, only=()):
    """By situation: FedAvg's scores, those of the baseline before and after."""
    found = {}
    for label, (name, settings) in SITUATIONS.items():
        if only and not {name, spell(label)}.intersection(only):
            continue
        place = out / "mended" / spell(label)
        found[label] = {
            "fedavg": measure_plain(here, place, "digits", settings),
            "before": compare(there, place / "before", "digits", [name], settings)[name],
            "after": compare(here, place / "after", "digits", [name], settings)[name],
        }
        if name in SMALLEST:
            found[label]["smallest"] = measure_plain(here, place, "digits", settings, SMALLEST[name])
        print(label, *map(show, found[label].values()), flush=True)
    return found


def measure_choices(checkout, out):
    """By crowd and model: HeteroFL's scores on validation rows by what is on, and its floor's FedAvg."""
    found = {}
    for label, (crowd, more) in CHOSEN_IN.items():
        settings = ('evaluate.on="validation"', *more)
        place = out / "chosen" / spell(label)
        found[label] = {
            choice: compare(checkout, place / spell(choice), crowd, ["heterofl"], (*settings, *own), CHOOSING)
            for choice, own in CHOICES.items()
        }
        found[label] = {choice: scores["heterofl"] for choice, scores in found[label].items()}
        found[label]["smallest"] = measure_plain(
            checkout, place, crowd, settings, SMALLEST["heterofl"], CHOOSING
        )
        print(label, *map(show, found[label].values()), flush=True)
    return found


def spell(label):
    """As a folder is called."""
    return re.sub(r"\W+", "-", label).strip("-").lower()


# ----------------------------------------------------------------------------------------------- telling


def show(scores):
    if None in scores:
        return "failed"
    return f"{100 * fmean(scores):.1f} ({', '.join(f'{100 * s:.1f}' for s in scores)})"


def table_floors(measured):
    """A row a baseline: its score in each crowd, by seed, and how far that is from its floor."""
    lines = ["| Baseline | " + " | ".join(f"{crowd} | above its floor by" for crowd in measured) + " |"]
    lines.append("| --- |" + " ---: | ---: |" * len(measured))
    for name in next(iter(measured.values())):
        cells = []
        for crowd in measured:
            row = measured[crowd][name]
            above = 0.0 if None in row["scores"] else fmean(row["scores"]) - fmean(row["held"]) + MARGIN
            cells += [show(row["scores"]), f"{'' if is_above(row) else '**below** '}{100 * above:+.1f}"]
        lines.append(f"| `{name}` | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def table_when(measured):
    lines = ["| Who, and when | it | FedAvg | above its floor by |", "| --- | ---: | ---: | ---: |"]
    for label, row in measured.items():
        above = 0.0 if None in row["scores"] else fmean(row["scores"]) - fmean(row["held"]) + MARGIN
        said = f"{'' if is_above(row) else '**below** '}{100 * above:+.1f}"
        lines.append(f"| {label} | {show(row['scores'])} | {show(row['held'])} | {said} |")
    return "\n".join(lines)


def table_mended(measured):
    lines = ["| Situation, on digits | FedAvg | before | after |", "| --- | ---: | ---: | ---: |"]
    for label, row in measured.items():
        plain = show(row["fedavg"])
        if "smallest" in row:
            plain += f"; with the smallest model {show(row['smallest'])}"
        lines.append(f"| {label} | {plain} | {show(row['before'])} | {show(row['after'])} |")
    return "\n".join(lines)


def table_choices(measured):
    lines = ["| HeteroFL, on validation rows | " + " | ".join(CHOICES) + " | FedAvg, smallest model |"]
    lines.append("| --- |" + " ---: |" * (len(CHOICES) + 1))
    lines += [f"| {label} | " + " | ".join(map(show, row.values())) + " |" for label, row in measured.items()]
    return "\n".join(lines)


def write_page(page, tables, merge=False):
    """Each table between its two marks; to merge is to keep the rows there that weren't measured now."""
    text = page.read_text()
    for name, table in tables.items():
        start, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
        head, _, rest = text.partition(start)
        assert rest, f"{page}: has no mark {start}"
        old, _, rest = rest.partition(end)
        told = merge_rows(old.split("\n"), table.split("\n")) if merge else table
        text = f"{head}{start}\n\n{told}\n\n{end}{rest}"
    page.write_text(text)


def merge_rows(old, new):
    """A table's rows, with those that were measured now in their places; further ones come last."""
    rows = {row.split("|")[1]: row for row in [*old, *new] if row.startswith("|")}
    assert len({row.count("|") for row in rows.values()}) == 1, "the page's table has other columns"
    return "\n".join(rows.values())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--only", type=lambda text: text.split(","), default=[])
    parser.add_argument("--crowds", type=lambda text: text.split(","), default=[*CROWDS])
    parser.add_argument("--when", action="store_true")
    parser.add_argument("--mended", metavar="COMMIT")
    parser.add_argument("--chosen", action="store_true")
    parser.add_argument("--count", action="store_true")
    parser.add_argument("--write", type=Path, metavar="FILE")
    parser.add_argument("--out", type=Path)
    asked = parser.parse_args()
    if asked.count:
        print(count_runs(HERE.parent))
        return 0
    with tempfile.TemporaryDirectory() as place:
        out = (asked.out or Path(place)).resolve()
        out.mkdir(parents=True, exist_ok=True)
        tables, below = measure(asked, out, Path(place))
    print(*tables.values(), sep="\n\n")
    if asked.write:
        write_page(asked.write, tables, merge=bool(asked.only))
    for crowd, name in below:
        print(f"{name} is below its floor on {crowd}")
    return 1 if below else 0


def measure(asked, out, place):
    """Tables by their marks in the page, and who is below its floor where."""
    here = HERE.parent
    if asked.mended:
        with checked_out(asked.mended, place / "there") as there:
            return {"mended": table_mended(measure_mended(here, there, out, asked.only))}, []
    if asked.chosen:
        return {"chosen": table_choices(measure_choices(here, out))}, []
    if asked.when:
        measured = [measure_when(here, out, crowd, asked.only) for crowd in asked.crowds]
        return {"when": table_when({label: row for rows in measured for label, row in rows.items()})}, []
    measured = {crowd: measure_floors(here, out, crowd, asked.only) for crowd in asked.crowds}
    below = [(crowd, n) for crowd, rows in measured.items() for n, row in rows.items() if not is_above(row)]
    tables = {}
    for mark, crowds in TABLES.items():
        if mine := {crowd: measured[crowd] for crowd in crowds if measured.get(crowd)}:
            tables[mark] = table_floors(mine)
    return tables, below


if __name__ == "__main__":
    sys.exit(main())
