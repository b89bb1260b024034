"""The commands. Results go to stdout, progress and notices to stderr."""

import json
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperGroup

from potluck import __version__
from potluck.cli.advise import advise
from potluck.cli.deploy import deploy
from potluck.cli.get import data
from potluck.cli.look import fleet
from potluck.cli.options import (
    AsJson,
    Code,
    File,
    Folder,
    Force,
    Jobs,
    LogSetting,
    On,
    Out,
    PartOf,
    Quiet,
    Settings,
    check_part,
    join_lines,
    read_jobs,
    read_log,
    read_seeds,
    split_names,
)
from potluck.cli.output import (
    computing_part,
    explain_resuming,
    open_screen,
    print_comparison,
    print_json,
    print_part,
    print_run,
)
from potluck.cli.report import report
from potluck.cli.studies import study, tune
from potluck.cli.watch import Watched, watch, watching
from potluck.core.echo import echo
from potluck.core.errors import ConfigError


class Commands(TyperGroup):
    """Says that it was interrupted, too, where no command has said so: Typer would end without a word."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            echo("\npotluck: interrupted", err=True)
            raise typer.Exit(130) from None


app = typer.Typer(
    cls=Commands,
    help="Federated learning for crowds whose members differ.\n\n"
    "Begin with: [bold]potluck compare examples/demo.toml[/bold]",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _print_version(wanted: bool) -> None:
    if wanted:
        echo(f"potluck {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version.", is_eager=True, callback=_print_version)
    ] = False,
) -> None:
    pass


@app.command()
def run(
    file: File,
    algorithm: Annotated[
        str | None, typer.Option(metavar="NAME", help="Run this one, instead of the file's.")
    ] = None,
    settings: Settings = None,
    code: Code = None,
    out: Out = None,
    seed: Annotated[int | None, typer.Option(help="Draw from this seed, instead of the file's.")] = None,
    watched: Watched = False,
    force: Force = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Run the experiment of FILE, a TOML file, and print its results.

    Example: [bold]potluck run examples/demo.toml --algorithm fedbuff --set stop.seconds=300[/bold]

    The folder (runs/NAME-ALGORITHM-SEED unless --out names another) has all that is needed to repeat or
    resume the run.
    """
    from potluck import experiment as ex

    wanted = ex.Experiment.from_file(file).with_overrides([
        *(settings or []),
        *([f"algorithm={json.dumps(algorithm)}"] if algorithm is not None else []),
        *([f"seed={seed}"] if seed is not None else []),
    ])  # fmt: skip
    folder = out or Path("runs") / f"{wanted.name}-{_spell(wanted.algorithm)}-{wanted.seed}"
    shown = open_screen(quiet)
    name = f"{_spell(wanted.algorithm)}-{wanted.seed}"
    with explain_resuming(folder, force=force), watching(watched, folder), shown(name) as progress:
        done = ex.run(wanted, folder, progress, force=force)
    for notice in done.notices:
        shown.say(f"potluck: {notice}")
    print_run(done, quiet, as_json)


@app.command()
def resume(
    folder: Folder,
    settings: LogSetting = None,
    code: Code = None,
    jobs: Jobs = "auto",
    on: On = None,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Go on with a run or a comparison that was interrupted or killed.

    Example: [bold]potluck resume runs/demo-fedavg-1[/bold]

    The run continues from its newest good snapshot, as if it had never stopped.
    """
    from potluck import experiment as ex
    from potluck.experiment.comparison import is_complete, resume_comparison
    from potluck.experiment.folder import is_comparison, is_finished

    shown, log = open_screen(quiet), read_log(settings)
    if is_comparison(folder):
        if is_complete(folder):
            unheard = "" if log is None else "; nothing is left that log.to could follow"
            shown.say(f"{folder}: finished already{unheard}")
        with explain_resuming(folder, jobs=jobs, on=on):
            compared = resume_comparison(folder, shown, read_jobs(jobs), on=on, log=log)
        print_comparison(compared, folder, quiet, as_json)
        return
    if read_jobs(jobs) > 1:
        raise ConfigError(f"--jobs {jobs}: {folder} is no comparison of several runs; leave it out")
    if on is not None:
        raise ConfigError(f"--on {on}: {folder} is no comparison of several runs; leave it out")
    if is_finished(folder):
        unheard = "" if log is None else "; nothing is left that log.to could follow"
        shown.say(f"{folder}: finished already{unheard}")
    with explain_resuming(folder), shown(folder.name) as watch:
        done = ex.resume(folder, watch, log=log)
    for notice in done.notices:
        shown.say(f"potluck: {notice}")
    print_run(done, quiet, as_json)


@app.command()
def compare(
    file: File,
    algorithms: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,...",
            help="Compare these, instead of the file's: algorithms, or names that its list gives.",
            show_default=False,
        ),
    ] = None,
    seeds: Annotated[
        str | None,
        typer.Option(
            metavar="1,2,...", help="Run each with these seeds, instead of the file's.", show_default=False
        ),
    ] = None,
    tuned: Annotated[
        bool,
        typer.Option(
            "--tune",
            help="First search each one's settings on validation rows, as the table tune says.",
        ),
    ] = False,
    settings: Settings = None,
    code: Code = None,
    out: Out = None,
    jobs: Jobs = "auto",
    on: On = None,
    part: PartOf = None,
    watched: Watched = False,
    force: Force = False,
    quiet: Quiet = False,
    as_json: AsJson = False,
) -> None:
    """Run several algorithms on the same crowd; print a table and who won, and write report.html.

    Example: [bold]potluck compare examples/demo.toml --algorithms fedavg,fedbuff --seeds 1,2,3[/bold]

    Potluck computes runs side by side, one on each core or GPU, unless --jobs says otherwise.
    The folder (runs/NAME unless --out names another) has one folder for each run. If the command is
    interrupted, `potluck resume` goes on.

    In a job array, each task computes a part: [bold]potluck compare FILE --out DIR --part 2/40[/bold]
    """
    from potluck import experiment as ex
    from potluck.experiment.comparison import compare_part

    wanted = ex.Experiment.from_file(file).with_overrides(settings or [])
    names = None if algorithms is None else split_names("--algorithms", algorithms)
    chosen = None if seeds is None else read_seeds(seeds)
    folder = out or Path("runs") / wanted.name
    shown = open_screen(quiet)
    if part is not None:
        check_part(part, out, force, on)
        with computing_part(folder), watching(watched, folder):
            batch = compare_part(
                wanted, names, chosen, folder, shown, part=part, tuned=tuned, jobs=read_jobs(jobs)
            )
        print_part(part, batch, shown)
        return
    with explain_resuming(folder, jobs=jobs, on=on, force=force), watching(watched, folder):
        compared = ex.compare(
            wanted, names, chosen, folder, shown, force=force, tuned=tuned, jobs=read_jobs(jobs), on=on
        )
    print_comparison(compared, folder, quiet, as_json)


app.command()(tune)
app.command()(study)
app.add_typer(data, name="data")
app.add_typer(deploy, name="deploy")
app.command()(fleet)
app.command()(advise)
app.command()(report)
app.command()(watch)


@app.command()
def algorithms(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Describe this one.", show_default=False)
    ] = None,
    layers: Annotated[
        bool, typer.Option("--layers", help="Show which layers fit around which algorithm, or why not.")
    ] = False,
    code: Code = None,
    as_json: AsJson = False,
) -> None:
    """List the algorithms, or describe one: its paper, its idea, its parameters.

    Example: [bold]potluck algorithms fedasync[/bold]
    """
    from dataclasses import asdict

    from potluck import algorithms as registry
    from potluck.cli import tables

    if layers:
        from potluck.layers import list_matrix

        matrix = list_matrix(registry.names() if name is None else [registry.canonical(name)])
        if not print_json([asdict(row) for row in matrix], as_json):
            tables.console.print(tables.show_layers(matrix))
        return
    if name is not None:
        described = registry.describe(name)
        if not print_json(asdict(described), as_json):
            tables.console.print(tables.show_algorithm(described))
        return
    everyone = [registry.describe(each) for each in registry.names()]
    if not print_json([asdict(each) for each in everyone], as_json):
        tables.console.print(tables.show_algorithms(everyone))


@app.command("list")
def list_runs(
    folder: Annotated[Path, typer.Argument(metavar="[DIR]", help="Look below this folder.")] = Path("runs"),
    as_json: AsJson = False,
) -> None:
    """List the runs below a folder and how far they are.

    Example: [bold]potluck list runs/demo[/bold]
    """
    from rich.text import Text

    from potluck.cli import tables
    from potluck.cli.runs_below import list_below

    if not folder.is_dir() and folder != Path("runs"):
        raise ConfigError(f"{folder}: no such folder; runs are in ./runs, unless --out named another folder")
    lines = list_below(folder)
    if not print_json(lines, as_json):
        tables.console.print(tables.show_list(lines) if lines else Text(f"no runs in {folder}"))
    for line in lines:
        if line["problem"] is not None:
            echo(f"potluck: {' '.join(line['problem'].split())}", err=True)


@app.command()
def show(folder: Folder, as_json: AsJson = False) -> None:
    """Show the results of a run or a comparison.

    Example: [bold]potluck show runs/demo-fedavg-1 --json[/bold]
    """
    from potluck import experiment as ex
    from potluck.experiment.comparison import load_comparison
    from potluck.experiment.folder import is_comparison

    if is_comparison(folder):
        compared = load_comparison(folder)
        if not compared.runs:
            raise ConfigError(f"{folder}: no run has begun; `potluck resume {folder}` begins")
        print_comparison(compared, folder, False, as_json, write=False)
    else:
        run = ex.load(folder)
        print_run(run, False, as_json)
        for notice in run.notices:
            echo(f"potluck: {notice}", err=True)


def _spell(algorithm: str) -> str:
    """As the registry spells it; who knows the file says what is wrong with a name."""
    from potluck.algorithms import canonical

    try:
        return canonical(algorithm)
    except ConfigError:
        return algorithm


join_lines(app)
