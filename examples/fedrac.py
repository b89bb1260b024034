"""Fed-RAC's tiers of phones: python examples/fedrac.py [KEY=VALUE ...]"""

import sys
from collections import Counter
from pathlib import Path

import potluck
from potluck.algorithms.fedrac.results import find_members, list_moves


def main(*settings: str, out: str = "runs/fedrac") -> None:
    experiment = potluck.Experiment.from_file(Path(__file__).with_suffix(".toml")).with_overrides(settings)
    compared = potluck.compare(experiment, out=out, force=True)
    for row in compared.rows:
        print(f"{row.algorithm:18} {row.accuracy.mean:6.1%}, the worst tenth {row.worst.mean:6.1%}")

    run = compared.of("fedrac")[0]
    made = run.records.query("metric == 'tiers'")["value"].iloc[0]
    helpers = run.records.query("metric == 'shared'")["value"].iloc[-1]["helpers"]
    where = find_members(run)
    phones = Counter(where.values())
    for tier, (width, size) in enumerate(zip(made["scales"], made["bytes"], strict=True)):
        work = f"{phones[tier]} phones and {helpers[tier]} of richer tiers"
        print(f"tier {tier}: {work}, width {width:g}, a model of {size / 1000:.0f} kB")
    print(f"moved after they had been placed: {len(list_moves(run)) - len(where)}")
    print(f"report: {potluck.write_report(compared, Path(out) / 'report.html')}")


if __name__ == "__main__":
    main(*sys.argv[1:])
