"""Text of others (names of runs, labels, notes) as it may be shown: a terminal obeys what isn't text."""

import re

# Controls but for tab and newline, what turns the direction of a line, and halves of characters.
_CONTROLS = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def show_controls(text: str) -> str:
    """The same with control characters written out: `\\x1b` in four letters."""
    return _CONTROLS.sub(lambda found: repr(found[0])[1:-1], text)
