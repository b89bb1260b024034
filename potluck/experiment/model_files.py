"""Trained models on disk: a safetensors file for each view, whose metadata say how to build the module."""

import json
import re
from dataclasses import asdict
from pathlib import Path

import safetensors
import safetensors.torch
import torch
from torch import nn

from potluck.core import safe_files
from potluck.core.errors import ConfigError
from potluck.core.job import ModelSpec
from potluck.core.trees import Params
from potluck.experiment import json_files
from potluck.experiment.folder import MODELS
from potluck.models import Models

_FIX = "run it again"


def write_models(folder: Path, served: dict[str, tuple[ModelSpec, Params]], models: Models) -> None:
    """What a run serves, into its folder; equal models are equal bytes."""
    for i, (view, (spec, params)) in enumerate(served.items()):
        inputs = "" if models.inputs is None else str(models.inputs).removeprefix("torch.")
        about = {
            "view": view,
            "order": str(i),
            "model": json.dumps(asdict(spec)),
            "shape": json.dumps(models.shape),
            "classes": str(models.classes),
            "dtype": str(models.dtype).removeprefix("torch."),
            "inputs": inputs,
        }
        name = re.sub(r"[^\w.-]+", "-", str(view)) or "model"
        tensors = {k: v.detach().cpu().contiguous() for k, v in params.items()}
        safe_files.write_file(folder, f"{MODELS}/{name}.safetensors", *_add_metadata(tensors, about))


def read_models(folder: Path) -> dict[str, nn.Module]:
    """The trained modules by view, in the order in which they were served."""
    found: dict[str, tuple[int, nn.Module]] = {}
    for name in safe_files.list_names(folder, MODELS):
        if name.endswith(".safetensors"):
            path = folder / MODELS / name
            view, order, module = _read_model(safe_files.read_file(folder, f"{MODELS}/{name}"), path)
            found[view] = (order, module)
    return {view: module for view, (_, module) in sorted(found.items(), key=lambda item: item[1][0])}


def _read_model(data: bytes, path: Path) -> tuple[str, int, nn.Module]:
    try:
        about = json.loads(data[8 : 8 + int.from_bytes(data[:8], "little")])["__metadata__"]
        dtype, inputs = _find_type(about["dtype"]), about["inputs"]
        shape = tuple(int(size) for size in json.loads(about["shape"]))
        models = Models(shape, int(about["classes"]), dtype, _find_type(inputs) if inputs else None)
        spec, order = ModelSpec(**json.loads(about["model"])), int(about["order"])
        tensors = safetensors.torch.load(data)
    except (ValueError, LookupError, TypeError, RecursionError, safetensors.SafetensorError) as error:
        raise json_files.damaged(path, str(error), _FIX) from None
    try:
        model = models[spec]
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}; register your own with potluck.register_model first") from None
    try:
        return str(about["view"]), order, model.module(tensors)
    except (RuntimeError, LookupError) as error:
        raise json_files.damaged(path, str(error), _FIX) from None


def _find_type(name: str) -> torch.dtype:
    found = vars(torch).get(name)  # a name that a file chose
    if not isinstance(found, torch.dtype):
        raise ValueError(f"{name!r} is no type of numbers")
    return found


def _add_metadata(tensors: Params, about: dict[str, str]) -> tuple[bytes, bytes, bytes]:
    """The parts of a safetensors file; by itself, the library writes metadata in an order of the moment."""
    data = safetensors.torch.save(tensors)
    length = int.from_bytes(data[:8], "little")
    header = json.dumps({"__metadata__": about, **json.loads(data[8 : 8 + length])}, separators=(",", ":"))
    text = header.encode()
    text += b" " * (-len(text) % 8)  # tensors are aligned
    return len(text).to_bytes(8, "little"), text, data[8 + length :]
