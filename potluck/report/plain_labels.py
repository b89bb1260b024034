"""Figures whose labels are text and nothing else: plotly would make links of `<a href=...>` in them."""

import re
from base64 import b64decode
from math import isfinite

import numpy as np
import plotly.graph_objects as go

from potluck.core.plain_text import show_controls

DIGITS = 6  # of numbers that are drawn; those of the CSV are whole
_TAG = re.compile(r"<(?!(?:br|extra|/extra)>)")  # all but those of our own


def make_plain(figure: go.Figure) -> dict[str, object]:
    """A figure as plotly draws it and JSON holds it: every text escaped, numbers as long as can be seen."""
    content: dict[str, object] = figure.to_dict()
    return {key: _escape(part) for key, part in content.items()}


def _escape(part: object) -> object:
    if isinstance(part, str):
        return _TAG.sub("&lt;", show_controls(part).replace("&", "&amp;"))
    if isinstance(part, float | np.floating):
        number = float(f"{part:.{DIGITS}g}")
        whole = number.is_integer()
        return (int(number) if whole else number) if isfinite(number) else None
    if isinstance(part, dict) and "bdata" in part:  # as plotly writes arrays
        flat = np.frombuffer(b64decode(part["bdata"]), dtype=part["dtype"])
        shape = [int(n) for n in str(part.get("shape", flat.size)).split(",")]
        return _escape(flat.reshape(shape).tolist())
    if isinstance(part, dict):
        return {key: _escape(each) for key, each in part.items()}
    if isinstance(part, np.ndarray | np.integer | np.bool_):
        return _escape(part.tolist())
    return [_escape(each) for each in part] if isinstance(part, list | tuple) else part
