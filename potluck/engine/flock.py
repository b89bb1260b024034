"""A flock: items of one barrier that started at the same moment, as a table with a row each.

A barrier's tasks are asked together and are alike: one job, one model. So what they take, when they end and
what comes of them are columns, and what happens to all of them happens in a few operations. What happens to a
few (a device leaves, a task is called off, an update is refused) happens to a Flight of their own, as ever:
it is made of a row, which then counts no more.
"""

import numpy as np
from numpy.typing import NDArray

from potluck.core.codec import value
from potluck.core.job import Cost
from potluck.core.messages import Lane, Node
from potluck.core.replies import Sheet
from potluck.engine.flight import Flight


@value(frozen=False, eq=False)
class Flock:
    """Tasks that started together; row i is flight `id` + i."""

    id: int
    sender: Node
    count: int  # of its sender's items up to the first, that included
    began: float
    sheet: Sheet  # tasks, their seconds, their results
    nodes: NDArray[np.int64]
    bytes_down: int  # of each
    bytes_up: int
    cost: Cost  # what their job promised each, but for its weight
    weights: NDArray[np.float64]  # the largest of their replies
    gone: NDArray[np.bool_]  # devices that leave before the end
    ends: NDArray[np.float64]
    place: int  # of the first row's end among what happens at one time; the others' follow
    order: NDArray[np.int64]  # rows as they end
    due: NDArray[np.float64]  # their ends, in this order
    there: NDArray[np.bool_]  # rows that haven't ended, nor been called off
    left: int  # how many these are
    next: int = 0  # in the order: none before it is there

    def __len__(self) -> int:
        return len(self.nodes)

    @property
    def lane(self) -> Lane:
        return self._name[0]

    @property
    def serial(self) -> int:
        return self._name[1]

    @property
    def _name(self) -> tuple[Lane, int, int]:
        name = self.sheet.tasks[0].id
        assert name is not None
        return name

    def make_flight(self, row: int) -> Flight:
        """A row by itself."""
        sheet = self.sheet
        return Flight(
            self.id + row,
            self.sender,
            sheet.tasks[row],
            self.count + row,
            self.began,
            float(sheet.down[row]),
            float(sheet.compute[row]),
            float(sheet.up[row]),
            self.bytes_down,
            self.bytes_up,
            bool(self.gone[row]),
            self.promise(row),
            sheet.find_result(row),
        )

    def promise(self, row: int) -> Cost:
        """What the job of a row promised; what it would take isn't asked again."""
        same = self.cost
        return Cost(0.0, same.sends, same.seconds, same.memory, float(self.weights[row]), same.metrics)

    def take(self, rows: NDArray[np.int64]) -> None:
        """Take rows out."""
        self.there[rows] = False
        self.left -= len(rows)

    def find_next(self) -> tuple[float, int] | None:
        """When the next row ends, and its place among what happens at that time."""
        if not self.left:
            return None
        while not self.there[self.order[self.next]]:
            self.next += 1
        return float(self.due[self.next]), self.place + int(self.order[self.next])

    def list_until(self, at: float, place: int) -> NDArray[np.int64]:
        """Rows that end before something else happens, as they end."""
        stop = self.next + int(np.searchsorted(self.due[self.next :], at, "left"))
        while stop < len(self) and self.due[stop] == at and self.place + self.order[stop] < place:
            stop += 1
        rows = self.order[self.next : stop]
        return rows[self.there[rows]]
