"""Every algorithm's small run in float64 against stored values: numbers to 1e-7, choices exactly.

Values are in pinned_values.json; `python tests/pinned.py --renew NAME,...` stores anew those of the runs that
it names. `pinned.py` says what is run, and compares two checkouts to the bit.
Of many numbers two sums are kept, so that one that differs, or two that changed places, are noticed; whatever
is no float (texts, counts, members, keys, whose it is, in which round) is kept as a digest, and the last of
each kind of record as it is, to read.
Processors without AVX2 round the initial weights, which PyTorch draws in float32, otherwise: no test there.
"""

import ast
import json
import math
import os
import subprocess
import sys

import numpy as np
import pinned
import pytest
import torch

pytestmark = pytest.mark.slow

# Processors round in different ways, and Adam divides a gradient by sqrt(v) + 1e-8: where one is nothing but
# rounding, steps differ.
RELATIVE = 1e-7
READABLE = 300  # characters of a last record that is kept as it is
_DTYPES = {"F64": "f8", "F32": "f4", "I64": "i8", "I32": "i4", "U8": "u1", "BOOL": "?"}
STORED = json.loads(pinned.VALUES.read_text()) if pinned.VALUES.is_file() else {}


def weigh(numbers):
    """The sum of their sizes, and one in which each counts otherwise."""
    numbers = np.asarray(numbers, np.float64)
    weights = 1.5 + np.cos(np.arange(len(numbers)))  # none is 0
    return {"count": len(numbers), "size": float(np.abs(numbers).sum()), "mix": float(weights @ numbers)}


def unfold(leaf):
    dtype, _, data = leaf
    return np.frombuffer(data, _DTYPES.get(dtype, dtype)).astype(np.float64)


def split(value, floats, rest):
    """The floats of a value, and all else that there is to it."""
    if isinstance(value, float):
        if math.isfinite(value):
            floats.append(value)
        else:
            rest.append(repr(value))
    elif isinstance(value, dict):
        for key in sorted(value):
            rest.append(key)
            split(value[key], floats, rest)
    elif isinstance(value, list):
        rest.append(f"{len(value)} of")
        for each in value:
            split(each, floats, rest)
    else:
        rest.append(json.dumps(value))


def summarise(values):
    floats, rest = [], []
    for value in values:
        split(value, floats, rest)
    return weigh(floats) | {"exact": pinned.hash_text("\n".join(rest))[:16]}


def measure(folder):
    """What is stored of a run."""
    served, kept, recorded = pinned.read_run(folder)
    memories = []
    for leaves in kept:
        arrays = [unfold(leaf) if isinstance(leaf, tuple) else leaf for leaf in leaves]
        numbers = [x for x in arrays if isinstance(x, int | float | np.ndarray)]
        memories.append(weigh(np.concatenate([np.atleast_1d(np.float64(x)) for x in numbers] or [[]])))
    metrics = {}
    for record in recorded:
        metrics.setdefault(record["metric"], []).append(record)
    return {
        "summary": metrics["summary.json"][0]["value"],
        "served": {
            view: weigh(np.concatenate([unfold(t) for t in tensors.values()]))
            for view, tensors in served.items()
        },
        "kept": {"memories": len(memories)}
        | {key: sum(one[key] for one in memories) for key in ("count", "size", "mix")},
        "recorded": {
            metric: {"lines": len(records)} | summarise(records) | show_last(records[-1]["value"])
            for metric, records in metrics.items()
            if metric != "summary.json"
        },
    }


def show_last(value):
    return {"last": value} if len(json.dumps(value)) <= READABLE else {}


def find_differences(found, stored, where="", size=0.0):
    """What differs, in words: floats by more than RELATIVE (of `size`, if larger), all else at all."""
    if isinstance(found, dict) and isinstance(stored, dict):
        for key in dict.fromkeys([*found, *stored]):
            if key in found and key in stored:
                size = stored["size"] if key == "mix" else 0.0
                yield from find_differences(found[key], stored[key], f"{where}.{key}", size)
            else:
                yield f"{where}.{key}: {'is new' if key in found else 'is missing'}"
    elif isinstance(found, list) and isinstance(stored, list) and len(found) == len(stored):
        for i, (a, b) in enumerate(zip(found, stored, strict=True)):
            yield from find_differences(a, b, f"{where}[{i}]")
    elif isinstance(found, float) and isinstance(stored, float):
        most = RELATIVE * max(abs(stored), size)
        if not (found == stored or abs(found - stored) <= most or (math.isnan(found) and math.isnan(stored))):
            yield f"{where}: {found!r}, stored {stored!r}"
    elif found != stored or type(found) is not type(stored):
        yield f"{where}: {found!r}, stored {stored!r}"


@pytest.mark.skipif(
    torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"), reason="other initial weights"
)
@pytest.mark.parametrize("name", STORED)
def test_a_run_still_computes_the_same(name, tmp_path, capsys):
    code = pinned.run(name, tmp_path / "at", "run.dtype=float64")
    assert code == 0, capsys.readouterr().err
    found = json.loads(json.dumps(measure(tmp_path / "at" / "run")))
    differences = list(find_differences(found, STORED[name], name))
    assert not differences, "\n".join(differences)


def test_every_algorithm_is_pinned():
    # In a process of its own: other tests register algorithms.
    listed = subprocess.run(
        [sys.executable, "-c", "import pinned; print(pinned.list_algorithms())"],
        env=os.environ | {"PYTHONPATH": os.pathsep.join([str(pinned.HERE), str(pinned.HERE.parent)])},
        capture_output=True,
        text=True,
        check=True,
    )
    assert set(STORED) == {*ast.literal_eval(listed.stdout), *pinned.VARIANTS}


def test_mechanisms_are_at_work():
    """What is pinned isn't idle: rows move, groups split, tiers form, devices remember."""
    recorded = {name: stored["recorded"] for name, stored in STORED.items()}
    before, after = (recorded["shufflefl"][f"objective_{when}"]["size"] for when in ("before", "after"))
    assert after < before  # since rows moved
    for name in ("auxo", "cfl", "flhc", "flexcfl"):
        assert recorded[name]["split"]["lines"] >= 1
        assert len(STORED[name]["served"]) >= 2
    for name in ("fedrac", "fedrac published"):
        assert recorded[name]["tiers"]["lines"] == 1
        assert len(STORED[name]["served"]) >= 2
    assert recorded["fedrac"]["shared"]["lines"] >= 1  # richer devices train poorer tiers' models
    assert recorded["dmpfl"]["phase"]["lines"] >= 3
    assert recorded["fedasync"]["staleness"]["lines"] == 200
    for name in ("auxo", "dmpfl", "fedpvr", "fedrac published", "maverick", "moon", "scaffold"):
        assert STORED[name]["kept"]["memories"] > 0
    assert STORED["fedavg late"]["summary"]["lost"]["late"] > 0


def test_small_differences_are_found():
    stored = STORED["fedavg"]
    for path, changed in (
        (
            ("served", "global", "mix"),
            stored["served"]["global"]["mix"] + 3e-7 * stored["served"]["global"]["size"],
        ),
        (("recorded", "tasks", "exact"), "0" * 16),
        (("summary", "tasks"), stored["summary"]["tasks"] + 1),
    ):
        found = json.loads(json.dumps(stored))
        at = found
        for key in path[:-1]:
            at = at[key]
        at[path[-1]] = changed
        assert len(list(find_differences(found, stored))) == 1
