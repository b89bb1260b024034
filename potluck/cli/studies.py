"""Fair comparisons: tune settings alike, and run studies, the tables and figures of a paper."""

from pathlib import Path
from typing import Annotated

import typer

from potluck.cli.options import (
    AsJson,
    Code,
    File,
    Force,
    Jobs,
    On,
    PartOf,
    Quiet,
    Settings,
    check_part,
    read_jobs,
    split_names,
)
from potluck.cli.output import computing_part, explain_resuming, open_screen, print_json, print_part
from potluck.cli.watch import Watched, watching
from potluck.core.echo import echo
from potluck.core.errors import ConfigError

Again = Annotated[
    Path | None,
    typer.Option(
        "--out",
        metavar="DIR",
        help="A folder for the results; the same command resumes what it holds.",
        show_default=False,
    ),
]


def tune(
    file: File,
    algorithms: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            help="Tune these, instead of the file's: algorithms, or names that its list gives.",
            show_default=False,
        ),
    ] = None,
    settings: Settings = None,
    code: Code = None,
    out: Again = None,
    jobs: Jobs = "auto",
    on: On = None,
    part: PartOf = None,
    force: Force = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Search settings for every algorithm, in as many trials each, judged on validation rows only.

    Example: [bold]potluck tune examples/demo.toml --algorithms fedavg,fedbuff --set tune.trials=4[/bold]

    The file says what to try: \\[tune.grid] has lists of values for all algorithms, such as train.lr, and
    \\[tune.own.NAME] lists for one algorithm. A third of the trials is for settings around the best so far,
    which may lie beyond the ends of the lists.
    The folder (runs/NAME-tune unless --out names another) has one folder for each trial, and tune.json. If
    the command is interrupted, run it again: it computes only what is missing.
    """
    from potluck import experiment as ex
    from potluck.cli import tables
    from potluck.experiment.tune import tune_part

    wanted = ex.Experiment.from_file(file).with_overrides(settings or [])
    names = None if algorithms is None else split_names("--algorithms", algorithms)
    if part is not None:
        folder, shown = check_part(part, out, force, on), open_screen(quiet)
        with computing_part(folder):
            print_part(part, tune_part(wanted, names, folder, shown, part=part, jobs=read_jobs(jobs)), shown)
        return
    folder = out or Path("runs") / f"{wanted.name}-tune"
    with explain_resuming(folder, "the same command"):
        found = ex.tune(wanted, names, folder, open_screen(quiet), force=force, jobs=read_jobs(jobs), on=on)
    if not print_json(found.summary(), as_json) and not quiet:
        tables.console.print(tables.show_tuning(found))
        echo(f"all results: {folder / 'tune.json'}")


def study(
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="[NAME]",
            help="The study's name (--list shows all of them), or the path of a file that holds a study.",
            show_default=False,
        ),
    ] = None,
    scale: Annotated[
        str,
        typer.Option(
            metavar="quick|paper", help="quick takes seconds and shows that it works; paper gives results."
        ),
    ] = "quick",
    settings: Settings = None,
    code: Code = None,
    out: Again = None,
    page: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the section into this page instead of the study's own.",
            show_default=False,
        ),
    ] = None,
    no_page: Annotated[bool, typer.Option("--no-page", help="Leave the page alone.")] = False,
    list_them: Annotated[bool, typer.Option("--list", help="List the studies that there are.")] = False,
    jobs: Jobs = "auto",
    on: On = None,
    part: PartOf = None,
    watched: Watched = False,
    force: Force = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Run a study and write its section into the page of results.

    Example: [bold]potluck study baselines --scale paper[/bold]

    The folder (runs/studies/NAME-SCALE unless --out names another) has one folder for each run. If the
    command is interrupted, run it again: it computes only what is missing.

    In a job array, each task computes a part: [bold]potluck study baselines --out DIR --part 2/40[/bold]
    """
    from potluck.cli import tables
    from potluck.experiment import study_runner
    from potluck.report import reproduction

    if list_them:
        found = study_runner.list_studies()
        listed = [{"name": each, "title": s.title, "question": s.question} for each, s in found.items()]
        if not print_json(listed, as_json):
            tables.console.print(tables.show_studies(found) if found else "no studies in ./studies")
        return
    if name is None:
        raise ConfigError(
            f"study: name one ({', '.join(study_runner.list_studies()) or 'a file'}), or see --list"
        )
    folder = out or study_runner.default_folder(name, scale)
    shown = open_screen(quiet)
    if part is not None:
        check_part(part, out, force, on)
        with computing_part(folder), watching(watched, folder):
            batch = study_runner.run_study_part(
                name, scale, folder, shown, part=part, settings=settings or [], jobs=read_jobs(jobs)
            )
        print_part(part, batch, shown)
        return
    with explain_resuming(folder, "the same command"), watching(watched, folder):
        results = study_runner.run_study(
            name,
            scale,
            folder,
            shown,
            settings=settings or [],
            force=force,
            jobs=read_jobs(jobs),
            on=on,
        )
    text = reproduction.write_section(results)
    page = page or reproduction.find_page(results.name, results.plan.study)
    written = not no_page and reproduction.replace_section(page, results, text)
    if not print_json(study_runner.summarise(results), as_json) and not quiet:
        echo(text)
        echo(f"results: {folder / study_runner.RESULTS}")
        if written:
            echo(f"page: {page}")
    if not no_page and not written:
        shown.say(f"potluck: {page} has this study at paper scale, so this quick one is left out")
