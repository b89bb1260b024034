"""Training speed beside other simulators: workload W, ratios of seconds a round to a bare PyTorch loop.

Every pass runs every contestant once, in a process of its own, and the bare loop before and after them; the
next pass goes the other way round. A ratio is taken within its pass, and the median of the passes counts: a
busy machine is busy for all.
"""

import json
import statistics
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from rich import box
from rich.console import Console
from rich.table import Table

from bench import contestants
from bench.contestants import BARE, LIMITS, OTHERS, OURS, Contestant, FailedError
from bench.models import build, draw
from bench.workload import Floats, Workload, make

MODELS = {
    "lr": "LR",
    "lenet": "LeNet",
    "lstm": "LSTM",
    "transformer": "transformer",
    "resnet8": "ResNet-8",
}
ROUNDS = {"lr": 20, "lenet": 8, "lstm": 8, "transformer": 8, "resnet8": 3}  # timed ones
ABREAST = 3  # models in one table
WARMUP = 3  # rounds before: JAX compiles in them, Flower starts its actors
FAR = 0.5  # of the way that bare's weights went: who ends further from them has trained something else


@dataclass
class Line:
    """What came of one contestant on one model."""

    name: str
    model: str
    seconds: list[float] = field(default_factory=list)  # a round, the median of each pass
    ratios: list[float] = field(default_factory=list)  # to bare, of each pass
    samples: list[int] = field(default_factory=list)  # of the timed rounds
    loss: float | None = None  # of the last model, on rows of all classes
    apart: float | None = None  # how far its weights ended from bare's, in terms of the way that those went
    ways: list[str] = field(default_factory=list)  # how it trained in each pass, if it chose
    failed: str | None = None  # why it has no ratio of the last pass

    @property
    def ratio(self) -> float:
        return statistics.median(self.ratios) if self.ratios else float("inf")

    @property
    def rate(self) -> float:
        """Samples a second."""
        return statistics.mean(self.samples) / statistics.median(self.seconds)


def measure(
    workload: Workload, who: Sequence[Contestant], passes: int, rounds: dict[str, int] = ROUNDS
) -> list[Line]:
    """All passes over the bare loop and all others, and over the models of `rounds`."""
    lines = {(c.name, model): Line(c.name, model) for model in rounds for c in (BARE, *who)}
    drawn = {name: draw(name, 1) for name in rounds if name not in workload.weights}
    workload = replace(workload, weights=workload.weights | drawn)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "W.npz"
        workload.save(path)
        for number in range(passes):
            for model in rounds:
                for contestant in (BARE, *(who if number % 2 == 0 else reversed(who)), BARE):
                    line = lines[contestant.name, model]
                    _run(contestant, line, workload, path, rounds[model])
                    _tell(number, passes, line)
                bare = lines[BARE.name, model]
                if bare.failed is not None:
                    raise RuntimeError(f"bare, which all are compared with, failed: {bare.failed}")
                base = statistics.mean(bare.seconds[-2:])
                for line in lines.values():
                    if line.model == model and line.failed is None:
                        line.ratios.append(1.0 if line is bare else line.seconds[-1] / base)
        _compare(lines, workload, Path(folder))
    return list(lines.values())


def _run(who: Contestant, line: Line, workload: Workload, path: Path, rounds: int) -> None:
    saved = _saved(path.parent, line)
    asked = (str(path), line.model, "--warmup", str(WARMUP), "--rounds", str(rounds), "--save", str(saved))
    wanted = [sum(map(workload.size, workload.cohort(n))) for n in range(WARMUP, WARMUP + rounds)]
    try:
        answer = contestants.run(who, *asked)
        if answer["samples"] != wanted:
            raise FailedError(f"trained {sum(answer['samples'])} samples instead of {sum(wanted)}")
    except FailedError as error:
        line.failed = str(error)
    else:
        line.failed, line.samples = None, wanted
        line.seconds.append(statistics.median(answer["seconds"]))
        line.ways.append(answer["way"])


def _saved(folder: Path, line: Line) -> Path:
    return folder / f"{line.name.replace(' ', '_')}-{line.model}.npz"


def _tell(number: int, passes: int, line: Line) -> None:
    said = line.failed or f"{line.seconds[-1]:.4f} s a round {line.ways[-1]}".rstrip()
    print(
        f"pass {number + 1} of {passes}, {MODELS[line.model]}: {line.name}: {said}",
        file=sys.stderr,
        flush=True,
    )


def _compare(lines: dict[tuple[str, str], Line], workload: Workload, folder: Path) -> None:
    """See that all have trained the same: by the loss, and by where their weights are."""
    x, y = torch.from_numpy(workload.x[:5000]), torch.from_numpy(workload.y[:5000])
    for model in {line.model for line in lines.values()}:
        way = _way(_saved(folder, lines[BARE.name, model]), workload.weights[model])
        for line in lines.values():
            if line.model != model or not line.ratios:
                continue
            saved = _saved(folder, line)
            with torch.no_grad():
                line.loss = float(F.cross_entropy(build(model, _weights(saved))(x), y))
            went = _way(saved, workload.weights[model])
            line.apart = float(np.linalg.norm(went - way) / np.linalg.norm(way))
            if line.apart > FAR and line.name not in {limit.name for limit in LIMITS}:
                line.failed = f"its model is another one than bare's ({line.apart:.0%} of the way apart)"
                line.ratios = []


def _weights(saved: Path) -> list[Floats]:
    with np.load(saved) as file:
        return [file[f"arr_{i}"] for i in range(len(file.files))]


def _way(saved: Path, start: list[Floats]) -> Floats:
    """From the first weights to the last, as one vector."""
    return np.concatenate([(a - b).ravel() for a, b in zip(_weights(saved), start, strict=True)])


def table(lines: Sequence[Line]) -> Table:
    """Ratios to bare, lower is faster; in Markdown, for docs/performance.md."""
    shown = Table(box=box.MARKDOWN)
    shown.add_column("", no_wrap=True)
    models = list(dict.fromkeys(line.model for line in lines))
    for model in models:
        for column in (f"{MODELS[model]}: ratio", "of passes", "s a round", "samples/s"):
            shown.add_column(column, justify="right")
    rows: dict[str, list[Line]] = {}
    for line in lines:
        rows.setdefault(line.name, []).append(line)
    ours = [rows[c.name] for c in OURS if c.name in rows]
    if ours:
        best = [min(found, key=lambda line: line.ratio) for found in zip(*ours, strict=True)]
        rows["**Potluck**, the best of its lines"] = best
    for name, found in rows.items():
        why = [f": not available: {line.failed}" for line in found if not line.ratios]
        shown.add_row(name + "".join(why[:1]), *(cell for line in found for cell in _cells(line)))
    return shown


def _cells(line: Line) -> list[str]:
    if not line.ratios:
        return [""] * 4
    spread = f"{min(line.ratios):.2f}-{max(line.ratios):.2f}"
    return [f"{line.ratio:.2f}", spread, f"{statistics.median(line.seconds):.4f}", f"{line.rate:,.0f}"]


def main(
    passes: int = 3,
    out: Path | None = None,
    header: str = "",
    peers: bool = True,
    models: Sequence[str] = tuple(MODELS),
) -> None:
    who = [c for c in (*OURS, *OTHERS, *LIMITS) if c.home is None or peers]
    if absent := [c.name for c in who if c.missing()]:
        print(f"not there: {', '.join(absent)}. `make peers` installs them; this run is without them.")
    lines = measure(make(), who, passes, {model: ROUNDS[model] for model in models})
    print(f"Seconds a round as ratios to the bare loop, lower is faster: median and span of {passes} passes")
    for first in range(0, len(models), ABREAST):
        some = models[first : first + ABREAST]
        # As wide as it is: a wrapped row is no Markdown.
        Console(width=300).print(table([line for line in lines if line.model in some]))
    apart = [line.apart for line in lines if line.apart is not None and "central" not in line.name]
    print(f"All models but central's ended within {max(apart):.0%} of the way that bare's went.")
    if out is not None:
        results = [{**asdict(line), "ratio": line.ratio if line.ratios else None} for line in lines]
        out.write_text(json.dumps({"about": header, "passes": passes, "results": results}, indent=1) + "\n")
