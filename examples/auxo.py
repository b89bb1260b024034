"""Auxo finds two hidden kinds of devices: python examples/auxo.py [KEY=VALUE ...], such as data.clients=90"""

import sys
from pathlib import Path

import potluck
from potluck.report.cohorts import count_cohorts, measure_final_agreement


def main(*settings: str, out: str = "runs/auxo") -> None:
    experiment = potluck.Experiment.from_file(Path(__file__).with_suffix(".toml")).with_overrides(settings)
    compared = potluck.compare(experiment, out=out, force=True)
    for row in compared.rows:
        print(f"{row.algorithm:18} {row.accuracy.mean:6.1%}, the worst tenth {row.worst.mean:6.1%}")

    run = compared.of("auxo")[0]
    for _, split in run.records.query("metric == 'split'").iterrows():
        print(f"cohort {split['group'] or 'of all'} split after {split['value']['round']} rounds")
    fits = measure_final_agreement(run, seen=False)  # None: no cohort has split yet
    told = ""
    if fits is not None:
        told = f"; choices of {fits.devices} devices fit the hidden kinds, Rand index {fits.rand:.2f}"
    print(f"{count_cohorts(run):.0f} cohorts at the end{told}")
    print(f"report: {potluck.write_report(compared, Path(out) / 'report.html')}")


if __name__ == "__main__":
    main(*sys.argv[1:])
