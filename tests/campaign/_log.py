"""What was tried and what failed: a file of lines, so that a campaign goes on where it was."""

import json
from dataclasses import dataclass, field


@dataclass
class Tally:
    """What is known of a row."""

    tried: set = field(default_factory=set)
    failed: dict = field(default_factory=dict)  # what each failed try left: its traceback
    seconds: float = 0.0


class Log:
    """Lines of one commit: {"row", "from", "to", "seconds", "failed"}."""

    def __init__(self, folder, about, afresh=False):
        self.path, self.tallies, self.about = folder / "tried.jsonl", {}, about
        folder.mkdir(parents=True, exist_ok=True)
        if afresh or not self.path.is_file() or not self._read():
            self.path.write_text(json.dumps(about) + "\n")
            self.tallies = {}

    @classmethod
    def stored(cls, folder):
        """That of a campaign that is over."""
        text = (folder / "tried.jsonl").read_text()
        return cls(folder, json.loads(text.splitlines()[0]))

    def _read(self):
        """Whether the file is of the same commit; what it says is counted."""
        first, *lines = self.path.read_text().splitlines() or ["{}"]
        if json.loads(first).get("commit") != self.about["commit"]:
            print("what was tried before was tried on another commit: beginning afresh", flush=True)
            return False
        self.about = json.loads(first)
        for line in lines:
            if line.endswith("}"):  # else this process was killed while it wrote
                self._count(json.loads(line))
        return True

    def of(self, name):
        return self.tallies.setdefault(name, Tally())

    def add(self, row, first, last, seconds, failed):
        """Numbers from `first` to before `last` were tried."""
        line = {"row": row, "from": first, "to": last, "seconds": round(seconds, 4), "failed": failed}
        with self.path.open("a") as file:
            file.write(json.dumps(line) + "\n")
        self._count(line)

    def _count(self, line):
        tally = self.of(line["row"])
        tally.tried.update(range(line["from"], line["to"]))
        tally.failed.update({int(number): text for number, text in line["failed"].items()})
        tally.seconds += line["seconds"]
