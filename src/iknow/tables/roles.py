"""Roles: what each column of a table is for.

One column may be the label, one may identify the samples; what is dropped, and the index that
pandas keeps in a file, is nothing; all others are features, unless the features are named.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from iknow.core.text import names as quoted
from iknow.errors import InputError


@dataclass(frozen=True)
class Roles:
    """What the user says about the columns of a table, by their names.

    label, id: never features. drop: columns to ignore. features: the only features, in this order;
    None for all that have no other role. text: features that are text even if they look like
    numbers, as a code such as 007 does.
    """

    label: str | None = None
    id: str | None = None
    drop: tuple[str, ...] = ()
    features: tuple[str, ...] | None = None
    text: tuple[str, ...] = ()

    def find_features(
        self, names: Sequence[str], source: str, index: Collection[str] = ()
    ) -> tuple[str, ...]:
        """The features among the columns of a table. index: columns that only number the rows."""
        if any("\0" in name for name in names):
            raise InputError(
                f"{source} is no table of text: the name of a column holds NUL characters"
            )
        if repeated := [name for name, count in Counter(names).items() if count > 1]:
            raise InputError(f"{source} has several columns named {quoted(repeated)}")
        known, aside = set(names), {self.label, self.id, *self.drop}
        asked = [self.label, self.id, *self.drop, *(self.features or ()), *self.text]
        if missing := [name for name in asked if name is not None and name not in known]:
            raise InputError(
                f"{source} has no column {missing[0]!r}; its columns are {quoted(names)}"
            )
        if self.label is not None and self.label == self.id:
            raise InputError(f"column {self.id!r} cannot be both the label and the id")
        if self.features is None:
            found = tuple(name for name in names if name not in aside and name not in index)
        elif both := [name for name in self.features if name in aside]:
            raise InputError(
                f"column {both[0]!r} is named as a feature, and as the label, the id or to be "
                "dropped: leave one out"
            )
        elif len(set(self.features)) < len(self.features):
            raise InputError("--features names a column twice: name each once")
        else:
            found = self.features
        if not found:
            raise InputError(f"{source} has no feature columns; its columns are {quoted(names)}")
        return found
