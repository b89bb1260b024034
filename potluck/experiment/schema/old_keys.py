"""Keys that are written otherwise now: runs of before can be read, and who writes one is told how."""

from typing import Any

from potluck.core.errors import ConfigError, show_short
from potluck.experiment.schema.settings import is_recorded

PRIOR = "prior"  # the layer


def take_serve(tables: dict[str, Any]) -> None:
    """[serve] prior and form are the layer `prior` and its table."""
    if "serve" not in tables:
        return
    old = tables["serve"] if isinstance(tables["serve"], dict) else {}
    form = {"form": old["form"]} if "form" in old else {}
    if is_recorded():
        del tables["serve"]
        if old.get(PRIOR):
            tables["layers"] = [*tables.get("layers", []), PRIOR]
            tables["layer"] = {**tables.get("layer", {}), **({PRIOR: form} if form else {})}
        return
    how = f" and [layer.prior] form = {show_short(form['form'])}" if form else ""
    key, value = next(iter(old.items()), ("", {}))
    path = f"serve.{key}" if key else "serve"
    raise ConfigError(
        f'{path} = {show_short(value)}: priors are a layer; write layers = ["prior"]{how} instead'
    )
