"""`iknow add`, `remove`, `relabel`, `compact` and `changes`."""

import json

import numpy as np
import pytest

from iknow import EpistemicClassifier
from iknow.storage.info import describe_bundle


def rows_of(path):
    classifier = EpistemicClassifier.load(path)
    index = classifier.indexes_[classifier.layers_[0]]
    labels = classifier.classes_[index.labels].tolist()
    return dict(zip(index.rows.tolist(), labels, strict=True))


def test_samples_come_go_and_get_other_labels(irises, iknow):
    before = rows_of("b.iknow")
    said = iknow("add", "b.iknow", "test.csv", "--model", "model.joblib", "--label", "kind",
                 "--drop", "id", "--who", "ada", "--why", "more")  # fmt: skip
    assert "Added 40 samples (80 to 119)" in said
    assert "Removed 2 samples (3, 7)" in iknow("remove", "b.iknow", "--ids", "3,7")
    iknow("relabel", "b.iknow", "5=setosa", "6=setosa", "--why", "second look")
    found = rows_of("b.iknow")
    assert len(found) == len(before) + 38
    assert found[5] == found[6] == "setosa"
    log = json.loads(iknow("changes", "b.iknow", "--json"))
    assert [each["what"] for each in log] == ["add", "remove", "relabel"]
    assert (log[0]["who"], log[0]["why"], log[2]["why"]) == ("ada", "more", "second look")
    assert log[1]["ids"] == [3, 7]
    assert log[1]["who"]
    assert "second look" in iknow("changes", "b.iknow")
    assert "3 appended" in iknow("info", "b.iknow")
    assert "Folded 3 changes" in iknow("compact", "b.iknow")
    assert rows_of("b.iknow") == found
    assert json.loads(iknow("changes", "b.iknow", "--json")) == log
    assert describe_bundle("b.iknow").n_segments == 0


def test_ids_and_labels_come_from_files(irises, iknow):
    (irises / "ids.txt").write_text("3\n\n7\n")
    iknow("remove", "b.iknow", "--ids-file", "ids.txt", "--ids", "9")
    (irises / "new.csv").write_text("id,label\n5,setosa\n6,virginica\n")
    iknow("relabel", "b.iknow", "--file", "new.csv")
    found = rows_of("b.iknow")
    assert {3, 7, 9}.isdisjoint(found)
    assert (found[5], found[6]) == ("setosa", "virginica")


def test_a_column_may_name_the_samples(irises, iknow):
    np.savez("n.npz", X=np.ones((2, 4)), kind=["setosa", "setosa"], number=[500, 400])
    iknow("add", "b.iknow", "n.npz", "--model", "model.joblib", "--label", "kind",
          "--id", "number")  # fmt: skip
    assert {400, 500} <= set(rows_of("b.iknow"))


def test_a_new_class_is_said_to_be_one(irises, iknow):
    np.savez("n.npz", X=np.ones((2, 4)), kind=["rose", "rose"])
    iknow("add", "b.iknow", "n.npz", "--model", "model.joblib", "--label", "kind")
    assert describe_bundle("b.iknow").classes[-1] == "rose"
    iknow("compact", "b.iknow")
    assert "rose (2)" in iknow("info", "b.iknow")
    iknow("assess", "b.iknow", "test.csv", "--model", "model.joblib", "--label", "kind",
          "--drop", "id")  # fmt: skip


WRONG = {
    "there are no samples with these numbers: 999": ["remove", "b.iknow", "--ids", "3,999"],
    "came twice": ["remove", "b.iknow", "--ids", "3,3"],
    "named by their numbers": ["remove", "b.iknow", "--ids", "x"],
    "at least one sample": ["remove", "b.iknow"],
    "64 bits": ["remove", "b.iknow", "--ids", "9999999999999999999"],
    "every number needs a label": ["relabel", "b.iknow", "3="],
    "has no labels": ["add", "b.iknow", "test.npy", "--model", "model.joblib"],
    "the bundle no model": ["add", "b.iknow", "test.npz", "--label", "kind"],
    "does not exist": ["compact", "none.iknow"],
}


@pytest.mark.parametrize("message", WRONG)
def test_what_is_wrong_is_said_in_a_line_and_changes_nothing(irises, iknow, message):
    before = (irises / "b.iknow").read_bytes()
    assert message in iknow.fail(*WRONG[message])
    assert (irises / "b.iknow").read_bytes() == before
