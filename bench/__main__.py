"""Run all benchmarks, or those named."""

import argparse
import platform
from collections.abc import Callable
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import torch

from bench import (
    advice,
    asynchronous,
    cluster,
    deploy,
    engine,
    host,
    matching,
    memory,
    overheads,
    planner,
    population,
    training,
)
from potluck.experiment.launch.hardware import describe_machine


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Performance, measured in one run.")
    speed = (
        "engine",
        "host",
        "population",
        "matching",
        "planner",
        "memory",
        "overheads",
        "asynchronous",
        "training",
    )
    known = (*speed, "advice", "deploy", "cluster")
    parser.add_argument(
        "names",
        nargs="*",
        metavar="name",
        help=f"which: {', '.join(known)}; all but advice, deploy and cluster, if none",
    )
    parser.add_argument(
        "--passes",
        type=int,
        default=3,
        help="of asynchronous, advice and cluster, and of training over all contestants (3)",
    )
    parser.add_argument("--no-peers", action="store_true", help="training without the other simulators")
    parser.add_argument(
        "--models",
        nargs="+",
        choices=training.MODELS,
        default=list(training.MODELS),
        help="of training (all)",
    )
    parser.add_argument("--out", type=Path, help="also write training's results here, as JSON")
    asked = parser.parse_args()
    for name in asked.names:
        if name not in known:
            parser.error(f"no benchmark {name!r}; known: {', '.join(known)}")
    if asked.out is not None and not asked.out.parent.is_dir():
        parser.error(f"--out {asked.out}: there is no folder {asked.out.parent}; make it first")
    python = f"Python {platform.python_version()}, torch {torch.__version__}"
    header = f"{datetime.now(UTC):%Y-%m-%d}, {describe_machine()}, {python}, seed 1"
    print(header)
    benchmarks: dict[str, Callable[[], None]] = {
        "engine": engine.main,
        "host": host.main,
        "population": population.main,
        "matching": matching.main,
        "planner": planner.main,
        "memory": memory.main,
        "overheads": overheads.main,
        "asynchronous": partial(asynchronous.main, asked.passes),
        "advice": partial(advice.main, asked.passes),
        "deploy": deploy.main,
        "cluster": partial(cluster.main, asked.passes),
        "training": partial(training.main, asked.passes, asked.out, header, not asked.no_peers, asked.models),
    }
    for name in asked.names or speed:
        print(f"\n== {name}", flush=True)
        benchmarks[name]()


if __name__ == "__main__":
    main()
