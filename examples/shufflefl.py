"""ShuffleFL moves rows within users: python examples/shufflefl.py [KEY=VALUE ...]"""

import sys
from pathlib import Path

import potluck
from potluck.report.holding_figures import measure_skews


def main(*settings: str, out: str = "runs/shufflefl") -> None:
    experiment = potluck.Experiment.from_file(Path(__file__).with_suffix(".toml")).with_overrides(settings)
    compared = potluck.compare(experiment, out=out, force=True)
    for row in compared.rows:
        print(f"{row.algorithm:18} {row.accuracy.mean:6.1%} mean accuracy, {row.rounds.mean:.0f} rounds")

    run = compared.of("shufflefl")[0]
    moved = run.records.query("metric == 'rows_moved'")["value"]
    users = experiment.algorithms["shufflefl"]["users"]
    print(f"{moved.sum():.0f} rows moved in all, {moved.iloc[:users].sum():.0f} of them in the first round")
    before, after = measure_skews(run)
    print(f"distance of devices' labels from everybody's mix: {before:.2f} before, {after:.2f} after")
    print(f"report: {potluck.write_report(compared, Path(out) / 'report.html')}")


if __name__ == "__main__":
    main(*sys.argv[1:])
