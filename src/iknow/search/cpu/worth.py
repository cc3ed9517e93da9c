"""Worth: whether bounds pay, and which, learned from the queries that used them.

Where rows have no structure, as random points of many features, bounds rule out nothing, and what
they cost is lost. So we add up what each batch looked at, in steps of a search by products: one
feature of 16 rows. From the average of the latest queries we know whether the next ones should try.

Cells of 16 rows cost a sixteenth of what the rows themselves cost, but each one that is left is
visited by one query alone. If that is most of them, we bound all rows at once instead.

Steps do not tell what waiting for memory costs, which depends on the machine and on the number of
rows. So where steps say that bounds pay, the clock decides: both ways are timed, on queries that
they answer anyway, and the faster one goes on. The other is tried again once that would take
a small share of the time spent since.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from iknow.core.arrays import Ints

PER_PANEL, PER_SHADOW, PER_ROW = 3.3, 0.8, 1.8
"""The costs per feature of looking at a panel alone, a shadow and a row, in steps; measured."""
ENOUGH = 0.8  # bounds must save this much of the steps
MOST_CELLS = 0.25  # of all cells may be left for cells to pay
MOST_CELLS_ALONE = 0.8  # the same for few queries, which gain little from going together
FEW = 2
MEMORY = 64  # queries that count
TRY_AGAIN = 32  # every so many calls, in case queries have changed


MANY = 64  # queries in a batch whose time tells what one of them costs
SHARE_OF_TRIALS = 0.03  # of the time may go into trying the slower way
FORGETTING = 0.3  # weight of the latest time


class Sizes(NamedTuple):
    """What there is to search: panels of near shadows, and the numbers of each kind of row."""

    n_panels: int
    near: int
    far: int
    n_features: int


class Effort(NamedTuple):
    """How to search.

    patience: how many rows to measure at most for one query. is_flat: whether to bound all rows,
    or cells of 16 first.
    """

    patience: int
    is_flat: bool = False


@dataclass
class Times:
    """Seconds of a query, by bounds and by products; None where nobody knows.

    spent: since the slower way was tried. seen: how often products and bounds were timed; the first
    time of each is left out, as it may have compiled something.
    """

    bounds: float | None = None
    products: float | None = None
    spent: float = 0.0
    seen: tuple[int, int] = (0, 0)

    def prefer_bounds(self, n: int) -> bool:
        """Whether n queries should go by bounds."""
        if self.bounds is None:
            return True
        if self.products is None:
            return False
        faster = self.bounds <= self.products
        slower = n * max(self.bounds, self.products)
        is_due = self.spent * SHARE_OF_TRIALS > slower
        return faster != is_due

    def note(self, by_bounds: bool, n: int, seconds: float) -> None:
        """Learn how long n queries took."""
        seen = list(self.seen)
        seen[by_bounds] += 1
        self.seen = seen[0], seen[1]
        if seen[by_bounds] == 1:
            return
        name = "bounds" if by_bounds else "products"
        before: float | None = getattr(self, name)
        latest = seconds / n
        blended = latest if before is None else before + FORGETTING * (latest - before)
        setattr(self, name, blended)
        both = self.bounds is not None and self.products is not None
        is_slower = both and by_bounds == (self.bounds > self.products)  # type: ignore[operator]
        self.spent = 0.0 if is_slower else self.spent + seconds


class Worth:
    """The average cost of deciding by bounds, relative to a search by products."""

    def __init__(self, sizes: Sizes) -> None:
        self._sizes = sizes
        self._alone, self._together = Times(), Times()
        self._average: float | None = None
        self._cells_left: float | None = None
        self._calls = 0

    @property
    def is_proven(self) -> bool:
        """Whether bounds paid for the latest queries."""
        average = self._average
        return average is not None and average < ENOUGH

    def times(self, n: int) -> Times | None:
        """What the clock knows of batches of about n queries; None if it is not asked."""
        if n <= FEW:
            return self._alone
        return self._together if n >= MANY else None

    def pays(self, n: int) -> bool:
        """Whether n queries should go by bounds."""
        times = self.times(n)
        return self.is_proven and (times is None or times.prefer_bounds(n))

    @property
    def patience(self) -> int:
        """The rows to measure for a query before a search by products would be over."""
        return int(self._sizes.n_panels / PER_ROW) + 16

    def allows_a_try(self) -> bool:
        """Whether to use bounds now: they pay, or nobody tried for a while."""
        if self._average is None or self.is_proven:
            return True
        self._calls += 1
        return self._calls % TRY_AGAIN == 0

    def prefers_rows(self, n: int) -> bool:
        """Whether n queries at once should bound all rows, not cells."""
        if self._cells_left is None:
            return False
        return self._cells_left > (MOST_CELLS if n > FEW else MOST_CELLS_ALONE)

    def learn(self, n: int, is_flat: bool, cost: Ints) -> None:
        """Count what n queries looked at: panels, shadows and rows. is_flat: all rows' bounds."""
        sizes, (panels, shadows, rows) = self._sizes, cost.tolist()
        steps = sizes.n_panels * (sizes.near + 1) * n / (1 if is_flat else 16)
        steps += PER_PANEL * panels * (sizes.near + 1)
        steps += PER_SHADOW * shadows * sizes.far + PER_ROW * rows * sizes.n_features
        share = steps / (n * sizes.n_panels * (sizes.n_features + 1))
        self._average = _blend(self._average, share, n)
        if not is_flat:
            self._cells_left = _blend(self._cells_left, panels / (n * sizes.n_panels), n)


def _blend(average: float | None, latest: float, n: int) -> float:
    weight = 1.0 if average is None else min(1.0, n / MEMORY)
    return (1 - weight) * (average or 0.0) + weight * latest
