"""Run all benchmarks, or those named."""

import platform
import sys
from datetime import UTC, datetime

import torch

from bench import engine, population

BENCHMARKS = {"engine": engine.main, "population": population.main}


def main() -> None:
    unknown = [name for name in sys.argv[1:] if name not in BENCHMARKS]
    if unknown:
        sys.exit(f"bench: no benchmark {unknown[0]!r}; known: {', '.join(BENCHMARKS)}")
    machine = f"{platform.machine()}, Python {platform.python_version()}, torch {torch.__version__}"
    print(f"{datetime.now(UTC):%Y-%m-%d}, {machine}, seed 1")
    for name in sys.argv[1:] or BENCHMARKS:
        print(f"\n== {name}")
        BENCHMARKS[name]()


if __name__ == "__main__":
    main()
