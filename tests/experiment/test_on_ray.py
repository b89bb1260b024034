"""What `--on` says, and what is refused before Ray is asked; Ray isn't needed here."""

import importlib
import importlib.util
import pickle
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

import potluck
from potluck.cli import main
from potluck.core import codec, parts
from potluck.core.errors import ConfigError
from potluck.data import load
from potluck.experiment import Experiment
from potluck.experiment.code import execute_file
from potluck.experiment.launch import far_run, ray, registered
from potluck.experiment.launch.ray import RayCluster, read_cluster
from potluck.experiment.launch.spread import Spread, read_spread
from potluck.experiment.launch.words import UserCode
from potluck.models.registry import MODELS

NO_RAY = importlib.util.find_spec("ray") is None


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("ray", RayCluster()),
        ("ray?cpus=4", RayCluster(cpus=4)),
        ("ray:10.0.0.1:6379", RayCluster("10.0.0.1:6379")),
        ("ray:head.local:6379?gpus=0.25&cpus=2", RayCluster("head.local:6379", 2, 0.25)),
        ("ray?gpus=1", RayCluster(gpus=1.0)),
    ],
)
def test_what_it_says(text, found):
    assert read_cluster(text) == found


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("slurm", r"on = 'slurm': should begin with ray; write ray, ray:HOST:6379 .*; batch systems: --part"),
        ("Ray", "on = 'Ray': should begin with ray"),
        ("ray://HOST:10001", r"on = 'ray://HOST:10001': .*`ray job submit -- potluck \.\.\.`"),
        ("ray:", "on = 'ray:': no HOST:PORT after ray:; write"),
        ("ray:host", "on = 'ray:host': no HOST:PORT after ray:"),
        ("ray:host:port", "on = 'ray:host:port': no HOST:PORT"),
        (
            "ray?gpus=2",
            r"on = 'ray\?gpus=2': gpus = '2': a run takes one GPU, or a share of one; ",
        ),
        ("ray?gpus=0", "gpus = '0': a run takes one GPU"),
        ("ray?gpus=-1", "gpus = '-1': a run takes one GPU"),
        ("ray?gpus=", "gpus = '': a run takes one GPU"),
        ("ray?gpu=1", r"on = 'ray\?gpu=1': gpu = '1': did you mean 'gpus'\?"),
        ("ray?cpus=0", r"on = 'ray\?cpus=0': cpus = '0': write the cores of a run, 1 or more"),
        ("ray?cpus=" + "9" * 5000, "cpus = .*: write the cores of a run"),
        ("ray?cpus=0.5", "cpus = '0.5': write the cores of a run"),
    ],
)
def test_key_value_and_fix_are_named(text, fault):
    with pytest.raises(ConfigError, match=fault):
        read_cluster(text)


def test_with_it_as_many_runs_go_as_there_is_room_for(tmp_path):
    where = RayCluster()
    assert read_spread(None, tmp_path, "ray") == Spread(0, where)
    assert read_spread(2, tmp_path, "ray") == Spread(2, where)
    assert read_spread(None, tmp_path) == Spread(1)
    assert not Spread(1, where).one_by_one
    study = read_spread(0, tmp_path, "ray").for_study(tmp_path / "two.py")
    assert study.where == RayCluster(study=tmp_path / "two.py")


def test_runs_elsewhere_need_a_folder_here():
    with pytest.raises(ConfigError, match="on = 'ray': runs elsewhere need a folder here; name one with out"):
        potluck.compare(Experiment(), ["fedavg"], on="ray")


def test_a_part_and_a_cluster_are_two_ways(tmp_path, capsys):
    with pytest.raises(ConfigError, match="part = '1/4': is for machines that nobody else gives runs"):
        read_spread(1, tmp_path, "ray", part="1/4")
    file = tmp_path / "one.toml"
    file.write_text('compare = ["fedavg"]\n')
    with pytest.raises(SystemExit) as ended:
        main(["compare", str(file), "--on", "ray", "--part", "1/4", "--out", str(tmp_path / "out")])
    assert ended.value.code == 2
    assert "--part 1/4: --on ray deals the runs to its machines" in capsys.readouterr().err


def test_a_run_of_its_own_goes_nowhere_else(tmp_path):
    one = Experiment(
        data={"source": "synthetic", "rows": 200, "dimension": 8, "classes": 4, "clients": 4},
        model={"name": "linear"},
        stop={"rounds": 1},
        run={"executor": "loop"},
    )
    potluck.run(one, tmp_path / "run")
    told = subprocess.run(
        [sys.executable, "-m", "potluck", "resume", str(tmp_path / "run"), "--on", "ray"],
        capture_output=True,
        text=True,
    )
    assert told.returncode == 2
    assert f"--on ray: {tmp_path / 'run'} is no comparison of several runs; leave it out" in told.stderr


@pytest.mark.skipif(not NO_RAY, reason="Ray is installed here")
def test_without_ray_it_says_what_to_install(tmp_path):
    one = Experiment(data={"source": "synthetic", "clients": 4}, model={"name": "linear"}, stop={"rounds": 1})
    with pytest.raises(ConfigError, match=r'Ray isn\'t installed here; pip install "potluck\[ray\]"'):
        potluck.compare(one, ["fedavg"], out=tmp_path / "out", on="ray")


def open_machines(monkeypatch, cpus, gpus):
    """A cluster of the command's own with 4 cores and no GPU, of which nothing else is asked here."""
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(cluster_resources=lambda: {"CPU": 4.0}))
    return ray._Machines(cpus, gpus, None, own=True)


@pytest.mark.parametrize(
    ("runs", "cpus", "gpus", "told"),
    [
        (1, 8, 0.0, "1 run waits for 8 CPUs; "),
        (2, 1, 0.5, "2 runs wait for 0.5 GPU each; "),
        (1, 2, 1.0, "1 run waits for 1 GPU and 2 CPUs; "),
    ],
)
def test_what_runs_wait_for_is_told(monkeypatch, runs, cpus, gpus, told):
    machines = open_machines(monkeypatch, cpus, gpus)
    assert machines.tell_lack(runs) == f"{told}the cluster has 4 CPUs and no GPU"


@pytest.mark.parametrize(
    ("cpus", "gpus", "told"),
    [
        (8, 0.0, "on: cpus=8: the cluster has 4 CPUs and no GPU; write cpus=4 or less"),
        (1, 0.5, r"on: gpus=0\.5: the cluster has 4 CPUs and no GPU; leave gpus out, with run\.device=cpu"),
    ],
)
def test_more_than_a_cluster_of_its_own_has_is_refused(monkeypatch, cpus, gpus, told):
    with pytest.raises(ConfigError, match=told):
        open_machines(monkeypatch, cpus, gpus).require_room()
    open_machines(monkeypatch, 4, 0.0).require_room()


def test_only_what_is_missing_there_asks_for_the_same_potluck():
    told = ray._tell_error(PermissionError(13, "Permission denied", "/tmp/x")).text
    assert told == "can't be computed there (PermissionError: [Errno 13] Permission denied: '/tmp/x')"
    for error in (ModuleNotFoundError("No module named 'potluck'"), AttributeError("compute_far")):
        assert ray._tell_error(error).text.endswith("; is the same Potluck installed on all machines?")


def test_versions_of_ray_that_differ_are_both_named(monkeypatch):
    """Ray says so in lines of its own."""
    told = "Version mismatch: The cluster has:\n    Ray: 2.40.0\nThis process has:\n    Ray: 2.60.0\n"

    def refuse(**terms):
        raise RuntimeError(told)

    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace(init=refuse))
    monkeypatch.setattr(ray, "_is_address", lambda address: False)
    with pytest.raises(
        ConfigError, match=r"can't be joined \(.*Ray: 2\.40\.0 .*Ray: 2\.60\.0\); see `ray status`"
    ):
        ray._join("10.0.0.1:6379")


def test_a_client_s_address_is_refused_wherever_it_stands(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", SimpleNamespace())
    with pytest.raises(ConfigError, match=r"RAY_ADDRESS = 'ray://HOST:10001': .*`ray job submit -- potluck"):
        ray._join("ray://HOST:10001")


def test_a_thread_leaves_handlers_of_signals_alone(monkeypatch):
    """Only the main one may set them."""
    monkeypatch.setitem(
        sys.modules, "ray", SimpleNamespace(is_initialized=lambda: False, shutdown=lambda: None)
    )
    monkeypatch.setattr(ray, "_join", lambda address: True)
    monkeypatch.setattr(ray, "_silence", lambda: None)

    def connect():
        with ray._connect(None) as own:
            return own

    with ThreadPoolExecutor(1) as pool:
        assert pool.submit(connect).result()


def test_a_pool_that_is_too_large_to_travel_is_refused(monkeypatch):
    monkeypatch.setattr(ray, "MOST", 1000)
    pool = load("synthetic", rows=400, dimension=8, classes=4)
    with pytest.raises(ConfigError, match=r"pool 'synthetic': 1\d\.\d kB don't travel, at most 1\.0 kB do; "):
        ray._check_pool(pool)
    ray._check_pool(None)


SCRIPT = """
from torch import nn
import potluck
from potluck.authoring import part, value
from potluck.rules.select import Uniform

@value
class Seen:
    rounds: int = 0

@part("select")
@value
class Looking(Uniform):
    pass

potluck.register_model("of_a_script", lambda shape, classes: nn.Linear(*shape, classes))
"""


@pytest.fixture
def script(tmp_path, monkeypatch):
    """A program that has registered things, and lies beside a module."""
    (tmp_path / "script.py").write_text(SCRIPT)
    (tmp_path / "lies_beside.py").write_text("")
    known = (codec._KNOWN, codec._FIELDS, parts._PARTS["select"], MODELS._values, MODELS._modules)
    before = [dict(each) for each in known]
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("lies_beside")
    main = execute_file(tmp_path / "script.py", "the_script")
    monkeypatch.setitem(sys.modules, "__main__", main)
    yield main
    del sys.modules["lies_beside"], sys.modules["the_script"]
    for each, was in zip(known, before, strict=True):
        each.clear()
        each.update(was)


def test_what_a_script_has_registered_is_made_known_elsewhere(script):
    """That of the program alone: whatever else is loaded here can be had there by itself."""
    modules = registered.list_own_modules()
    assert [module.__name__ for module in modules] == ["the_script", "lies_beside"]
    found = registered.find_registered(modules)
    assert found.named == {"model": {"of_a_script": ("the_script", MODELS["of_a_script"])}}
    assert found.values == {f"the_script.{c.__name__}": c for c in (script.Seen, script.Looking)}
    assert found.parts == {"select": [script.Looking]}
    del MODELS._values["of_a_script"], MODELS._modules["of_a_script"], parts._PARTS["select"]["looking"]
    for name in found.values:
        del codec._FIELDS[codec._KNOWN.pop(name)]
    registered.restore(found)
    assert MODELS.find_module("of_a_script") == "the_script"
    assert codec.decode(codec.encode(script.Seen(3))) == script.Seen(3)
    assert parts.parts("select")["looking"] is script.Looking
    assert registered.find_registered([sys.modules["lies_beside"]]) is None


def carry(monkeypatch, dumps):
    """Let what is registered be packed so, since Ray isn't here."""

    def note(module):
        assert module.__name__ in ("the_script", "lies_beside")

    own = SimpleNamespace(
        dumps=dumps, register_pickle_by_value=note, unregister_pickle_by_value=note, __name__="cloudpickle"
    )
    monkeypatch.setattr(ray, "_import_ray", lambda: SimpleNamespace(cloudpickle=own))


def test_what_cannot_travel_is_named(script, monkeypatch):
    carry(monkeypatch, pickle.dumps)  # which knows nothing of functions without a name
    with pytest.raises(ConfigError, match=r"model 'of_a_script': can't travel \(.*lambda.*a file for --code"):
        ray._pack_registered()
    carry(monkeypatch, lambda found: bytes(2000))
    monkeypatch.setattr(ray, "MOST", 1000)
    with pytest.raises(ConfigError, match=r"model 'of_a_script': 2\.0 kB don't travel, at most 1\.0 kB do"):
        ray._pack_registered()


def test_a_program_that_has_registered_nothing_sends_nothing(monkeypatch):
    monkeypatch.setattr(ray, "list_own_modules", list)  # other tests may have loaded some that have
    monkeypatch.setattr(ray, "_import_ray", None)  # nor does it need Ray for that
    assert ray._pack_registered() == b""


def test_what_it_is_made_of_is_missed_there_by_name(tmp_path):
    packed = b"cno_such_module_of_a_script\nNet\n."
    with pytest.raises(ConfigError, match=r"can't be read there .*'no_such_module_of_a_script'.*install"):
        far_run._read_user_code(UserCode(registered=packed), tmp_path)


def test_nothing_imports_ray_before_it_is_asked_for():
    """Not even what knows how runs get there."""
    code = (
        "import sys, potluck, potluck.cli.commands, potluck.experiment.launch.asker\n"
        "print([name for name in sys.modules if name.partition('.')[0] == 'ray'])"
    )
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert told.stdout.strip() == "[]", told.stderr
