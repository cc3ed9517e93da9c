"""Comparison: the record of a comparison, its tables, and how it reads as text and in notebooks.

Figures of a set are shares of its samples, so zeros are possible and sets of any size compare.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from iknow.cards import card, heading, paragraphs, table, text
from iknow.core.arrays import Floats
from iknow.core.text import name as shown_name
from iknow.core.text import percent
from iknow.evaluation.risk import RiskCoverage

OURS, WITH_VIEWS, MARK = "iknow", "iknow, views", "*"


@dataclass(frozen=True, eq=False)
class Comparison:
    """Methods compared on the same answers of one model, at equal coverage.

    Attributes:
        methods: Names of the methods; the first is iknow.
        sets: Names of the sets; the first is the clean test data.
        coverages: The coverages at which methods are compared.
        wrong: Share of samples asserted and wrong, of shape (n_methods, n_sets, n_coverages).
        wrong_between: Its confidence interval, of shape (n_methods, n_sets, n_coverages, 2).
        mean_between: The same of the mean over sets, of shape (n_methods, n_coverages, 2).
        asserted: Share of samples asserted, of shape (n_methods, n_sets, n_coverages).
        augrc: Area under the generalized risk-coverage curve, of shape (n_methods, n_sets). Of a
            set other than the test data it is of both together, each counting half.
        certified: Share of the test data asserted at the lowest threshold whose accuracy is
            certified, of shape (n_methods,); 0 if there is none.
        certified_by_mapie: The same for softmax by MAPIE's risk control; None if MAPIE is missing.
        errors: Share of wrong answers in each set, of shape (n_sets,).
        sizes: Number of samples in each set.
        accuracy: The accuracy to certify.
        confidence: Of certificates and intervals.
        curves: Risk-coverage curves by set and method, of what `augrc` is the area.
    """

    methods: tuple[str, ...]
    sets: tuple[str, ...]
    coverages: tuple[float, ...]
    wrong: Floats
    wrong_between: Floats
    mean_between: Floats
    asserted: Floats
    augrc: Floats
    certified: Floats
    certified_by_mapie: float | None
    errors: Floats
    sizes: tuple[int, ...]
    accuracy: float
    confidence: float
    curves: Mapping[str, Mapping[str, RiskCoverage]]

    @property
    def mean_wrong(self) -> Floats:
        """The mean of `wrong` over the sets, of shape (n_methods, n_coverages)."""
        return np.asarray(self.wrong.mean(axis=1))

    @property
    def mean_augrc(self) -> Floats:
        """The mean of `augrc` over the sets, of shape (n_methods,)."""
        return np.asarray(self.augrc.mean(axis=1))

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, ready for JSON."""
        means = {"mean_wrong": self.mean_wrong.tolist(), "mean_augrc": self.mean_augrc.tolist()}
        return {**msgspec.to_builtins(self, enc_hook=np.ndarray.tolist), **means}

    @property
    def middle(self) -> float:
        """The coverage at which sets are shown one by one."""
        return self.coverages[len(self.coverages) // 2]

    def tables(
        self, write: Callable[[str, bool], str]
    ) -> list[tuple[str, list[str], list[list[str]]]]:
        """Return two tables, each with its title, its headings and rows of cells.

        The first sums up each method, the second tells its share of wrong IK set by set. `write`
        makes a cell of its words, given whether they are the best of their column.
        """

        def column(values: Floats, words: list[str]) -> list[str]:
            best = words[int(np.argmin(values))]  # and those that read the same
            return [write(each, each == best) for each in words]

        def plain(*words: str) -> list[str]:
            return [write(each, False) for each in words]

        def share(certified: float) -> str:
            return percent(certified) if certified else "none"

        methods = plain(*self.methods)
        columns = [column(each, list(map(percent, each))) for each in self.mean_wrong.T]
        columns.append(column(self.mean_augrc, [f"{area:.3f}" for area in self.mean_augrc]))
        columns.append(column(-self.certified, list(map(share, self.certified))))
        summary = list(map(list, zip(methods, *columns, strict=True)))
        if (by_mapie := self.certified_by_mapie) is not None:
            blank = [""] * (len(self.coverages) + 1)
            summary.append(plain("softmax by MAPIE", *blank, share(by_mapie)))
        wrong = self.wrong[:, :, self.coverages.index(self.middle)].T
        columns = [column(each, list(map(percent, each))) for each in wrong]
        by_set = list(map(list, zip(methods, *columns, strict=True)))
        by_set.append(plain("every answer", *map(percent, self.errors)))
        coverages = [f"at {coverage:.4g}" for coverage in self.coverages]
        title = (
            f"Asserted and wrong, mean over {len(self.sets)} sets, where each method asserts the "
            "same share of clean data"
        )
        middle = f"Set by set, at coverage {self.middle:.4g} of clean data"
        return [
            (title, ["method", *coverages, "AUGRC", "certified"], summary),
            (middle, ["method", *map(shown_name, self.sets)], by_set),
        ]

    def remarks(self, best: str = MARK) -> list[str]:
        """Return what the tables do not say by themselves; `best`: how they mark the best."""
        low, high = self.mean_between[0, self.coverages.index(self.middle)]
        said = [
            f"{best}: best. AUGRC: area under the generalized risk-coverage curve, less is better. "
            f"certified: share of the test data asserted with an accuracy of {self.accuracy:.4g} "
            f"guaranteed with confidence {self.confidence:.4g}.",
            f"{OURS} at {self.middle:.4g}: between {percent(low)} and {percent(high)} with "
            f"confidence {self.confidence:.4g}, by the bootstrap.",
        ]
        if self.certified_by_mapie is None:
            said.append("MAPIE's risk control is not shown: it needs pip install 'iknow[compare]'.")
        return said

    def to_html(self, draw: Callable[[list[str], list[list[str]]], str]) -> str:
        """Return all as markup; `draw` makes a table of headings, as text, and cells of markup."""
        tables = [
            f"<p>{title}.</p>{draw(headings, rows)}"
            for title, headings, rows in self.tables(
                lambda words, best: f"<b>{text(words)}</b>" if best else text(words)
            )
        ]
        return "".join(tables) + paragraphs(self.remarks(best="Bold"))

    def __str__(self) -> str:
        parts = []
        for title, headings, rows in self.tables(
            lambda words, best: words + (MARK if best else " ")
        ):
            parts += [title, _align([[f"{each} " for each in headings], *rows])]
        return "\n\n".join([*parts, "\n".join(self.remarks())])

    def __repr__(self) -> str:
        return f"Comparison of {len(self.methods)} methods on {len(self.sets)} sets"

    def _repr_html_(self) -> str:
        return card(heading("Comparison", f"of {len(self.methods)} methods"), self.to_html(table))


def _align(rows: list[list[str]]) -> str:
    """Rows as text, the first column to the left and the others to the right."""
    first, *others = (max(map(len, column)) for column in zip(*rows, strict=True))
    line = f"{{:{first}}} " + "  ".join(f"{{:>{width}}}" for width in others)
    lines = [line.format(*row).rstrip() for row in rows]
    return "\n".join([lines[0], "-" * max(map(len, lines)), *lines[1:]])
