"""Text small enough to be carried in a page: deflated, in 85 characters that HTML has no other use for."""

import zlib
from base64 import b85encode
from functools import cache

import plotly.offline

_PLAIN = str.maketrans("<>&", ",:.")  # base 85 as Python writes it, but for what HTML reads otherwise


def embed(name: str, text: str) -> str:
    """An element of a page that holds a text; `page.js` unpacks it."""
    packed = zlib.compress(text.encode(), 9)
    content = b85encode(packed, pad=True).decode().translate(_PLAIN)
    return f'<script type="text/plain" id="{name}" data-bytes="{len(packed)}">{content}</script>'


@cache
def embed_plotly() -> str:
    """Plotly's whole library, the only one that its package ships: 4.8 MB, and 1.8 when packed."""
    return embed("plotly", plotly.offline.get_plotlyjs())
