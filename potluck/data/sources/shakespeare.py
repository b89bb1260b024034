"""Shakespeare's roles: after `length` characters of a role, which is the next?"""

import hashlib
import json
from pathlib import Path

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from potluck.core.errors import DataError, require
from potluck.core.room import require_room
from potluck.data.pool import TEST_SHARE, Pool, assemble
from potluck.data.sources.allowance import Allowance
from potluck.data.sources.files import read_bytes

_BECOMES = 32  # bytes that a letter of JSON may take: an empty list takes as much as 60 for 3 letters
_SPARSER = 5  # test rows are read at every evaluation, and neighbours among them say nearly the same


def load_shakespeare(path: Path, length: int, stride: int) -> Pool:
    """Rows of characters from a file {role: [speech, ...]}, one every `stride` characters of a role.

    A role's speeches follow each other, with a blank between them. Tokens are places in the sorted list of
    all characters of the file. A user is a role, numbered in order of name. A fifth of the roles, the last by
    hash of their names, are the global test set: people whom no client has heard, with a row every 5 strides.
    Roles too short for one row are nobody's.
    """
    require(length >= 1, "data.length", length, "must be at least 1 character")
    require(stride >= 1, "data.stride", stride, "must be at least 1 character")
    texts = [(i, name, _codes(text)) for i, (name, text) in enumerate(_read(path))]
    texts = [text for text in texts if len(text[2]) > length]
    if len(texts) < 2:
        raise DataError(f"{path}: has {len(texts)} roles of more than {length} characters; 2 are needed")
    rows = sum((len(codes) - length - 1) // stride + 1 for _, _, codes in texts)
    fix = f"lower it, or raise data.stride = {stride} ({rows:,} rows)"
    require_room(24 * rows * (length + 1), "data.length", length, fix)
    vocabulary = np.unique(np.concatenate([codes for _, _, codes in texts]))
    by_hash = sorted(texts, key=lambda text: _hash(text[1]))
    tested = {i for i, _, _ in by_hash[-max(1, round(TEST_SHARE * len(texts))) :]}
    windows: list[NDArray[np.int64]] = []
    for i, _, codes in texts:
        tokens = np.searchsorted(vocabulary, codes)
        step = stride * (_SPARSER if i in tested else 1)
        windows.append(sliding_window_view(tokens, length + 1)[::step])
    whole = np.concatenate(windows)
    user = np.repeat([i for i, _, _ in texts], [len(window) for window in windows])
    test = np.isin(user, list(tested))
    x = np.ascontiguousarray(whole[:, :-1])
    return assemble(
        "shakespeare",
        x,
        whole[:, -1],
        test=test,
        user=user,
        time=np.arange(len(x)),  # a role's rows follow its text
        classes=len(vocabulary),
        tokens=True,
    )


def _read(path: Path) -> list[tuple[str, str]]:
    """Every role and its text, in order of name."""
    try:
        content = json.loads(read_bytes(path, Allowance(path, _BECOMES)))
    except ValueError as error:
        raise DataError(f"{path}: not a JSON file ({error})") from None
    except RecursionError:
        raise DataError(f"{path}: not {{role: [speech, ...]}}, but lists in lists without end") from None
    if not isinstance(content, dict):
        raise DataError(f"{path}: expected {{role: [speech, ...]}}, found a {type(content).__name__}")
    for role, speeches in content.items():
        if not isinstance(speeches, list) or not all(isinstance(speech, str) for speech in speeches):
            raise DataError(f"{path}: expected a list of speeches for {role!r}")
    return sorted((role, " ".join(speeches)) for role, speeches in content.items())


def _hash(name: str) -> bytes:
    return hashlib.sha256(name.encode("utf-8", "surrogatepass")).digest()


def _codes(text: str) -> NDArray[np.uint32]:
    return np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.uint32)
