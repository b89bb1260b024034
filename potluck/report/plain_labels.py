"""Figures whose labels are text and nothing else: plotly would make links of `<a href=...>` in them."""

import re

import numpy as np
import plotly.graph_objects as go

from potluck.core.plain_text import show_controls

_TAG = re.compile(r"<(?!(?:br|extra|/extra)>)")  # all but those of our own


def make_plain(figure: go.Figure) -> dict[str, object]:
    """A figure as plotly draws it, every text of it escaped."""
    content: dict[str, object] = figure.to_dict()
    return {key: _escape(part) for key, part in content.items()}


def _escape(part: object) -> object:
    if isinstance(part, str):
        return _TAG.sub("&lt;", show_controls(part).replace("&", "&amp;"))
    if isinstance(part, dict):
        return {key: _escape(each) for key, each in part.items()}
    if isinstance(part, np.ndarray) and part.dtype.kind in "OSU":
        part = part.tolist()
    return [_escape(each) for each in part] if isinstance(part, list | tuple) else part
