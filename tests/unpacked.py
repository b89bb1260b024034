"""What a report's page carries packed, read back: the opposite of `potluck.report.packed`."""

import json
import re
import zlib
from base64 import b85decode

LETTERS = str.maketrans(",:.", "<>&")


def unpack(page, name):
    """The text of one element."""
    found = re.search(rf'<script type="text/plain" id="{name}" data-bytes="(\d+)">([^<]*)</script>', page)
    return zlib.decompress(b85decode(found[2].translate(LETTERS))[: int(found[1])]).decode()


def read_figures(page):
    """All figures of a page: a list for each section, since a reader may choose among several."""
    return json.loads(unpack(page, "figures"))
