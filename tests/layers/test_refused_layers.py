"""What is wrong with layers, told by the key that stands in the file."""

import pytest

from potluck.core.errors import ConfigError
from potluck.experiment import Experiment
from potluck.experiment.prepare import prepare
from potluck.layers import stacked

FILE = {
    "data": {"source": "synthetic", "rows": 200, "clients": 4},
    "model": {"name": "linear"},
    "stop": {"rounds": 1},
}


def refuse(**tables):
    with pytest.raises(ConfigError) as raised:
        prepare(Experiment(**FILE, **tables))
    return str(raised.value).removeprefix("experiment: ")


@pytest.mark.parametrize(
    ("name", "table", "told"),
    [
        ("cohorts", {"clients": 0}, "layer.cohorts.clients = 0: must be at least 1 device a round"),
        ("cohorts", {"cohorts": 0}, "layer.cohorts.cohorts = 0: must be at least 1"),
        ("cohorts", {"mode": "publshed"}, "layer.cohorts.mode = 'publshed': no such mode; did you mean"),
        ("sizes", {"wheigh": True}, "layer.sizes.wheigh = True: no such parameter; did you mean 'weigh'?"),
    ],
)
def test_a_layer_of_several_kinds_names_its_own_keys(name, table, told):
    assert refuse(layers=[name], layer={name: table}).startswith(told)
    with pytest.raises(ConfigError) as raised:
        stacked("fedavg", **{name: table})
    assert str(raised.value).startswith(told)


def test_what_sizes_take_of_the_base_rule_is_told_as_its_own():
    said = "algorithms.fedavg.clients = 0: must be at least 1 device a round"
    assert refuse(layers=["sizes"], algorithms={"fedavg": {"clients": 0}}) == said
    with pytest.raises(ConfigError) as raised:
        stacked("fedavg", parameters={"clients": 0}, sizes={})
    assert str(raised.value) == said


def test_a_table_of_no_layer_is_told_as_a_table():
    assert refuse(layer={"tuend": {}}) == "layer.tuend: no such layer; did you mean 'tuned'?"
    assert refuse(layers=["tuend"]) == "layers = 'tuend': no such layer; did you mean 'tuned'?"


def test_one_of_a_few_words_is_told_without_their_type():
    said = refuse(layers=["edges"], layer={"edges": {"mix": "hafl"}})
    assert said == "layer.edges.mix = 'hafl': should be 'carry' or 'half'"


def test_a_refused_stack_is_told_whole():
    assert refuse(layers=["prior", "users", "sizes"]).startswith("layers = ['users', 'sizes', 'prior']: ")


@pytest.mark.parametrize(("layer", "key"), [("users", "fleet.users"), ("edges", "fleet.edges")])
def test_a_layer_of_nobody_is_to_blame_for_itself(layer, key):
    said = refuse(layers=[layer])
    assert said.startswith(f"layers = ['{layer}']: needs {layer} between devices and cloud")
    assert key in said
    assert said.endswith("or leave the layer out")


def test_in_python_a_layer_is_a_table_and_a_base_rule_comes_first():
    with pytest.raises(ConfigError, match=r"layer\.tuned = 3: should be a table of its settings; write \{\}"):
        stacked("fedavg", tuned=3)
    with pytest.raises(ConfigError, match=r"algorithm = 'fedag': no such algorithm; did you mean 'fedavg'"):
        stacked("fedag", prior={})
