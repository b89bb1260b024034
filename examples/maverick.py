"""Maverick's edges judge devices that lie: python examples/maverick.py [KEY=VALUE ...]"""

import sys
from pathlib import Path

import potluck
from potluck.report.anomalies import measure_precision, measure_recall, read_anomalies


def main(*settings: str, out: str = "runs/maverick") -> None:
    experiment = potluck.Experiment.from_file(Path(__file__).with_suffix(".toml")).with_overrides(settings)
    compared = potluck.compare(experiment, out=out, force=True)
    for row in compared.rows:
        print(f"{row.algorithm:18} {row.accuracy.mean:6.1%} mean accuracy, {row.bytes.mean / 1e6:.0f} MB")

    run = compared.of("maverick")[0]
    views = run.records.query("metric == 'accuracy_mean'").groupby("view", sort=False)["value"].last()
    print("views: " + ", ".join(f"{name} {value:.1%}" for name, value in views.items()))
    odd, right, found = read_anomalies(run), measure_precision(run), measure_recall(run)
    print(f"refused {sum(len(at.nodes) for at in odd)} updates in {len(odd)} rounds of edges", end="")
    print("" if right is None else f": {right:.0%} of them of devices that lie, {found:.0%} of all theirs")
    print(f"report: {potluck.write_report(compared, Path(out) / 'report.html')}")


if __name__ == "__main__":
    main(*sys.argv[1:])
