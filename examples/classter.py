"""ClassTer on classes that devices never saw: python examples/classter.py [KEY=VALUE ...]"""

import sys
from pathlib import Path

import potluck
from potluck.metrics import series
from potluck.report.per_device import read_at_shift


def main(*settings: str, out: str = "runs/classter") -> None:
    experiment = potluck.Experiment.from_file(Path(__file__).with_suffix(".toml")).with_overrides(settings)
    compared = potluck.compare(experiment, out=out, force=True)
    for run in compared.runs:
        known, new = read_at_shift(run, 0.0), read_at_shift(run, 1.0)
        print(
            f"{run.summary['algorithm']:18} {known:6.1%} on classes that devices hold, {new:6.1%} on others"
        )

    run = compared.of("classter")[0]
    counts = run.records.query("metric == 'updates'")["value"].iloc[-1]
    uneven = series(run.lines, "imbalance")[-1].value
    print(f"detectors were trained {counts} times, class by class; imbalance {uneven:.2f}")
    distilled = run.records.query("metric == 'distilled'")["time"]
    print(f"a general model was distilled {len(distilled)} times, first at {distilled.min():.0f} s")
    print(f"report: {potluck.write_report(compared, Path(out) / 'report.html')}")


if __name__ == "__main__":
    main(*sys.argv[1:])
