"""Renewing: what was promised, promised again of the evidence as it is now.

A promise is about the evidence that it was made for. After a change it is stale, and fresh samples
can renew it: the neighborhoods are chosen again for the same goal.
"""

from __future__ import annotations

from typing import Any, Self

from sklearn.utils.validation import check_is_fitted

from iknow.classifier.tuning import TuningMixin
from iknow.errors import InputError


class RenewingMixin(TuningMixin):
    """`recertify`, for a tuned classifier."""

    def recertify(self, X: Any, y: Any = None, *, reference: Any = None) -> Self:
        """Choose the neighborhoods again, for the goal that they were chosen for.

        Do this after changes of the evidence, which `selection_.stale` tells. It renews the
        certificate, the bound on false alarms and the watch, or raises a `SelectionError` if these
        samples certify nothing; then everything stays as it is. A watch that `watch` set is not
        renewed: call it again.

        Args:
            X: n fresh samples, as for `tune`: not in the training data, and not those that showed
                which changes to make.
            y: Their labels, of shape (n,), if the goal needs them.
            reference: As for `tune`.

        Examples:
            >>> ec = EpistemicClassifier(trained).fit(X_train, y_train).tune(X_val, coverage=0.8)
            >>> ec.remove([3]).recertify(X_test).selection_.stale
            ''
        """
        check_is_fitted(self, "indexes_")
        if self.neighborhoods is not None:
            raise InputError("nothing to recertify: neighborhoods=... fixes them")
        if not hasattr(self, "selection_"):
            raise InputError("recertify belongs to a tuned classifier: call tune first")
        if (goal := self.selection_.goal) is None:
            raise InputError(
                "this selection does not say what it was chosen for: call tune with the goal"
            )
        return self._select(goal, self._samples(X, y), "validation", reference=reference)
