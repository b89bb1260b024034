"""What is said of an algorithm, and of its parameters."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Parameter:
    """One parameter of an algorithm, as people read it."""

    name: str
    type: str
    default: str  # of mode potluck, where there are modes
    meaning: str
    published: str | None = None  # the default of mode published; None: there are no modes

    @property
    def paper(self) -> str:
        """The default of mode published where it differs, else nothing."""
        return "" if self.published in (None, self.default) else str(self.published)


@dataclass(frozen=True)
class Description:
    """What an algorithm's file says of it."""

    name: str
    paper: str
    idea: str
    fidelity: str  # what its rules were taken from: "authors' code", or "paper"
    parameters: tuple[Parameter, ...]
    modes: tuple[str, ...] = ()  # the default first
