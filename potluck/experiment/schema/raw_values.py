"""What no key of any table may be: values that TOML can't hold, so that no run could be written down."""

from collections.abc import Mapping

from potluck.core.errors import ConfigError, require, show_short

DEEPEST = 16  # tables and lists within each other
LONGEST = 4096  # characters of a text: more than any path has
_LARGEST = 2**63  # what TOML's integers end at


def check_values(tables: Mapping[str, object]) -> None:
    """Refuse texts, integers and depths that can't be written; what was made in Python is passed over."""
    waiting: list[tuple[str, int, object]] = [("", 0, tables)]  # no recursion: depth is what is looked at
    while waiting:
        path, depth, value = waiting.pop()
        if depth > DEEPEST:
            raise ConfigError(f"{path[:120]}: nested more than {DEEPEST} deep; write fewer brackets and dots")
        if isinstance(value, dict):
            for name, inner in value.items():
                if isinstance(name, str):
                    _check_text(f"{path}.{name!r}", name)
                waiting.append((f"{path}.{name}" if path else str(name), depth + 1, inner))
        elif isinstance(value, list | tuple):
            waiting.extend((f"{path}.{i}", depth + 1, inner) for i, inner in enumerate(value))
        elif isinstance(value, str):
            _check_text(path, value)
        elif isinstance(value, int):
            require(-_LARGEST <= value < _LARGEST, path, value, "should be a number of at most 64 bits")


def _check_text(key: str, text: str) -> None:
    require(len(text) <= LONGEST, key[:120], text, f"{len(text):,} characters; write at most {LONGEST:,}")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        bad = show_short(text[error.start])
        raise ConfigError(
            f"{key.encode('ascii', 'backslashreplace').decode()} = {show_short(text)}: {bad} is half of a "
            "character; write the whole one, in UTF-8"
        ) from None
