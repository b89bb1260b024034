"""`potluck deploy`: the same experiment on real devices."""

import signal
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer

from potluck.cli.echo import echo
from potluck.core.errors import ConfigError

deploy = typer.Typer(
    help="Run the same experiment on real devices, over HTTPS with mutual TLS.\n\n"
    "Try it on this machine: [bold]potluck deploy demo[/bold]",
    no_args_is_help=True,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
Home = Annotated[Path, typer.Argument(metavar="FOLDER", help="The federation's folder, which `init` made.")]
Name = Annotated[str, typer.Argument(metavar="NAME", help="The device's name.")]
File = Annotated[Path, typer.Argument(metavar="FILE", help="The experiment, a TOML file.")]


def _say(line: str) -> None:
    echo(line, err=True)


@deploy.callback()
def _check_installed() -> None:
    import importlib.util

    for package in ("aiohttp", "cryptography", "urllib3"):
        if importlib.util.find_spec(package) is None:
            raise ConfigError(f"{package} is missing: pip install 'potluck[deploy]'")


@deploy.command()
def init(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="A new folder for the federation.")],
    address: Annotated[str, typer.Option(metavar="HOST:PORT", help="Where devices reach the server.")],
    like: Annotated[
        Path,
        typer.Option(metavar="ROWS.npz|FILE.toml", help="Rows as devices have them, or an experiment."),
    ],
    name: Annotated[str | None, typer.Option(help="The federation's name; by default the folder's.")] = None,
    capacity: Annotated[int | None, typer.Option(help="How many devices may ever join, also later.")] = None,
    scale: Annotated[bool, typer.Option(help="Scale rows by the mean and deviation of --like's.")] = True,
) -> None:
    """Make a federation: its file, its own certificate authority, and the server's certificate.

    Example: [bold]potluck deploy init clinic --address fl.example.org:8443 --like rows.npz[/bold]

    The folder holds keys: keep it on the server, and to yourself. Then invite devices.
    """
    from potluck.deploy.members import founding

    made = founding.found(folder, name or folder.name, address, like, capacity, scale)
    c = made.federation
    echo(f"{folder}: rows of shape {c.shape}, {c.classes} classes, {c.dtype}")
    echo(f"next: potluck deploy invite {folder} NAME")


@deploy.command()
def invite(
    folder: Home,
    name: Name,
    user: Annotated[str, typer.Option(help="The user who owns the device, for algorithms that ask.")] = "",
    out: Annotated[Path | None, typer.Option(help="The invitation's file; by default NAME.invite.")] = None,
) -> None:
    """Write an invitation for a device: one file, for one use within a day.

    Example: [bold]potluck deploy invite clinic ward-3[/bold]

    Give it to the device by a way that you trust: whoever has it can join in its name.
    """
    import json

    from potluck.deploy.members import joining, pki

    told = joining.invite(folder, name, user)
    path = out or Path(f"{name}.invite")
    pki.write_private(path, json.dumps(told, indent=2).encode())
    echo(f"{path}: on the device: potluck deploy join {path.name} --data rows.npz")


@deploy.command()
def join(
    invitation: Annotated[Path, typer.Argument(metavar="INVITE", help="The file that `invite` wrote.")],
    data: Annotated[str, typer.Option(metavar="ROWS.npz|MODULE:FUNCTION", help="This device's own rows.")],
    folder: Annotated[
        Path | None, typer.Option(help="A folder for this device; by default its name.")
    ] = None,
) -> None:
    """Join a federation: make a key here, have it certified, and check the rows.

    Example: [bold]potluck deploy join ward-3.invite --data rows.npz[/bold]

    The key never leaves this device. If the server isn't there yet, `potluck deploy device` finishes it.
    """
    from potluck.deploy.work import join as joining
    from potluck.deploy.work import rows

    place = "" if data.endswith(".npz") else data
    full = place or str(Path(data).resolve())
    at, told = joining.prepare(invitation, folder, full)
    found = rows.load(full, told.find_form(), at)
    counts = ", ".join(f"{len(places)} {part}" for part, places in found.parts.items())
    echo(f"{at}: {counts} rows")
    if not joining.complete(at, told.address):
        echo(f"no server at {told.address} yet: it is asked again when the device starts")
    echo(f"next: potluck deploy device {at}")


@deploy.command()
def revoke(folder: Home, name: Name) -> None:
    """Lock a device out, at once; a server that runs notices by itself.

    Example: [bold]potluck deploy revoke clinic ward-3[/bold]
    """
    from potluck.deploy.members import joining

    joining.revoke(folder, name)
    echo(f"{name}: locked out; `potluck deploy invite {folder} {name}` lets it join again")


@deploy.command()
def serve(
    folder: Home,
    file: File,
    out: Annotated[Path, typer.Option(help="The run's folder; a run that it holds goes on.")],
    listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Listen here; by default where devices reach it.")
    ] = None,
    settings: Annotated[
        list[str] | None, typer.Option("--set", metavar="KEY=VALUE", help="Change the file's settings.")
    ] = None,
) -> None:
    """Run FILE's experiment with the federation's devices, or go on with such a run.

    Example: [bold]potluck deploy serve clinic examples/demo.toml --out runs/clinic[/bold]

    The run begins when enough devices are there (deploy.start_with). Ctrl-C, SIGTERM or kill -9 lose nothing:
    the same command goes on. `potluck show`, `list` and `report` read the folder, as any run's.
    """
    from potluck.deploy.conduct.round_lines import make_watch
    from potluck.deploy.conduct.serve import serve as conduct
    from potluck.experiment import Experiment

    ended: list[int] = []

    def end(number: int, frame: FrameType | None) -> None:
        ended.append(number)

    before = {number: signal.signal(number, end) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        experiment = Experiment.from_file(file).with_overrides(settings or [])
        done = conduct(
            folder,
            experiment,
            out,
            listen=listen,
            progress=make_watch(_say),
            until=lambda: bool(ended),
            say=_say,
        )
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
    if done is None:
        _say(f"ended before its time; go on with: potluck deploy serve {folder} {file} --out {out}")
        raise typer.Exit(130 if signal.SIGINT in ended else 143)
    from potluck.cli import tables
    from potluck.experiment import load

    tables.console.print(tables.show_run(load(out)))


@deploy.command()
def device(
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="The device's folder, which `join` made.")],
) -> None:
    """Work for the federation until it ends, and wait whenever the server is away.

    Example: [bold]potluck deploy device ward-3[/bold]
    """
    from potluck.deploy.work.agent import Agent
    from potluck.deploy.work.working import work

    def prepare(agent: Agent) -> None:
        def end(number: int, frame: FrameType | None) -> None:
            agent.end()

        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, end)

    work(folder, prepare, _say)


@deploy.command()
def check(
    folder: Home,
    file: File,
    wait: Annotated[float, typer.Option(help="Seconds to wait for devices.")] = 10.0,
    listen: Annotated[
        str | None, typer.Option(metavar="HOST:PORT", help="Listen here; else where devices reach it.")
    ] = None,
) -> None:
    """Check whether FILE can run with the devices that are there, without training or writing anything.

    Example: [bold]potluck deploy check clinic examples/demo.toml[/bold]

    Says who came, with which rows and version, and what a round will take. Exit 1: something is missing.
    """
    from potluck.deploy.conduct.rehearsal import rehearse
    from potluck.experiment import Experiment

    found = rehearse(folder, Experiment.from_file(file), wait, listen, _say)
    for line in found.lines:
        echo(line)
    if not found.good:
        raise typer.Exit(1)


@deploy.command()
def status(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a deployed run.")],
    watch: Annotated[
        bool, typer.Option("--watch", help="Look again every two seconds, until the run ends.")
    ] = False,
) -> None:
    """Say where a deployed run stands, and what each device is doing.

    Example: [bold]potluck deploy status runs/clinic --watch[/bold]
    """
    import time

    from potluck.deploy.conduct.run_folder import load_deployment
    from potluck.deploy.conduct.standing import describe, look

    deployment = load_deployment(run)
    names = [seat.name for seat in deployment.roster.devices]
    while True:
        found = look(run, deployment.terms)
        for line in describe(found, names):
            echo(line)
        if not watch or found.state.finished:
            return
        time.sleep(2.0)


@deploy.command()
def replay(
    run: Annotated[Path, typer.Argument(metavar="RUN", help="The folder of a deployed run.")],
) -> None:
    """Replay a run's journal, and check that it leads to the stored states.

    Example: [bold]potluck deploy replay runs/clinic[/bold]
    """
    from potluck.deploy.conduct.replay import replay as replay_run
    from potluck.deploy.conduct.run_folder import load_deployment

    found = replay_run(run, load_deployment(run).terms)
    where = f"{found.entries} entries, snapshots {found.first} to {found.last}"
    if found.difference is not None:
        echo(f"{where}: not equal: {found.difference}")
        raise typer.Exit(1)
    echo(f"{where}: equal")


@deploy.command()
def flower(
    folder: Home,
    file: File,
    out: Annotated[Path, typer.Option(help="A new folder for the app; letters, digits and hyphens.")],
    run: Annotated[
        Path | None, typer.Option(help="The run's folder on the SuperLink's machine; by default OUT-run.")
    ] = None,
) -> None:
    """Write FILE's run as a Flower app, for a SuperLink and SuperNodes that are there already.

    Example: [bold]potluck deploy flower clinic examples/demo.toml --out app[/bold]

    Then [bold]flwr run app[/bold]; again: go on. A SuperNode says which device it is by its node config,
    potluck-device="FOLDER". Every node is sent the app's folder: it holds names, but no key and no row.
    """
    from potluck.deploy.flower_folder import write_app
    from potluck.experiment import Experiment

    place = out.with_name(f"{out.name}-run") if run is None else run
    write_app(folder, Experiment.from_file(file), out, place)
    echo(f"{out}: the run's folder will be {place}")
    echo(f"next: flwr run {out}")


@deploy.command()
def demo(
    file: Annotated[
        Path | None, typer.Argument(metavar="[FILE]", help="An experiment; by default FedAvg on digits.")
    ] = None,
    devices: Annotated[int, typer.Option(min=1, max=64, help="How many devices to start, as processes.")] = 4,
    kill: Annotated[
        bool,
        typer.Option(
            "--kill", help="Also kill processes while they run, in five ways; takes 2 minutes more."
        ),
    ] = False,
    out: Annotated[Path | None, typer.Option(help="Keep all files in this folder.")] = None,
) -> None:
    """Run a whole deployment on this machine, and compare its bytes with the simulator's.

    Example: [bold]potluck deploy demo --devices 4 --kill[/bold]

    The server and each device are processes with keys of their own; they talk by HTTPS on loopback. The exit
    code is 1 if a byte differs.
    """
    import tempfile

    from potluck.deploy.demo import demonstrate
    from potluck.deploy.sample import make_sample
    from potluck.experiment import Experiment

    experiment = make_sample() if file is None else Experiment.from_file(file)
    with tempfile.TemporaryDirectory(prefix="potluck-") as spare:
        place = Path(spare) / "demo" if out is None else out
        found = demonstrate(experiment, place, devices, kill, _say)
        if not found.equal:
            echo(f"not equal: {found.difference}")
            raise typer.Exit(1)
        kept = f"; look at it: potluck show {found.run}" if out is not None else ""
        echo(f"{devices} devices and the simulator: equal to the byte{kept}")
