"""Published archives of tables: whatever the form, the same numbers give the same bytes."""

import os
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from reproduction.data.archives import extract_members, extract_series, rewrite_series

values = st.floats(-1e4, 1e4).map(lambda value: float(f"{value:.8g}"))
tables = st.integers(1, 5).flatmap(
    lambda n: st.tuples(
        arrays(np.int64, n, elements=st.integers(1, 60)), arrays(float, (n, 3), elements=values)
    )
)


def written(labels, table, form, between, before=""):
    rows = zip(labels, table, strict=True)
    return "".join(
        before + between.join([form % label, *(form % value for value in row)]) + "\n"
        for label, row in rows
    ).encode()


@given(tables)
def test_every_form_of_the_same_numbers_is_rewritten_alike(data):
    labels, table = data
    expected = written(labels, table, "%.8g", "\t")
    for form, between, before in [
        ("%.8g", "\t", ""),
        ("%.7e", "  ", "  "),
        ("%.16g", " ", ""),
        ("%+.12e", "\t", " "),
    ]:
        assert rewrite_series(written(labels, table, form, between, before)) == expected
    assert rewrite_series(expected.replace(b"\n", b"\r\n\r\n")) == expected


@given(tables, st.floats(1e-6, 1))
def test_another_number_is_seen(data, change):
    labels, table = data
    other = table.copy()
    other[-1, -1] += change * max(1, abs(other[-1, -1]))
    form = ("%.7e", " ")
    assert rewrite_series(written(labels, table, *form)) != rewrite_series(
        written(labels, other, *form)
    )


def test_text_that_holds_no_numbers():
    with pytest.raises(ValueError, match="could not convert"):
        rewrite_series(b"@relation ItalyPowerDemand\n")


@pytest.fixture
def archive(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as it:
        it.writestr("readme.txt", "about")
        it.writestr("A_TRAIN.ts", "@data")
        it.writestr("A_TRAIN.txt", " 1.0 2.5e-01\n 2.0 -3\n")
        it.writestr("folder/A_TEST.tsv", "2\t1\n")
        it.writestr("folder/grid.csv", "x,y\r\n1,2\r\n")
    return tmp_path / "a.zip"


def test_series_are_found_by_name_with_any_ending(archive, tmp_path):
    targets = [tmp_path / "A_TRAIN.tsv", tmp_path / "A_TEST.tsv"]
    extract_series([archive], targets)
    assert [target.read_bytes() for target in targets] == [b"1\t0.25\n2\t-3\n", b"2\t1\n"]


def test_a_member_is_written_as_it_is(archive, tmp_path):
    extract_members([archive], [tmp_path / "grid.csv"])
    assert (tmp_path / "grid.csv").read_bytes() == b"x,y\r\n1,2\r\n"


def test_a_member_that_is_missing_is_named(archive, tmp_path):
    with pytest.raises(KeyError, match=r"B_TRAIN\.tsv or B_TRAIN\.txt"):
        extract_series([archive], [tmp_path / "B_TRAIN.tsv"])


@pytest.mark.skipif(not os.environ.get("IKNOW_DATA"), reason="IKNOW_DATA names no folder")
def test_the_real_series_are_in_that_form_already():
    found = sorted(Path(os.environ["IKNOW_DATA"]).glob("*/*.tsv"))
    assert found
    for path in found:
        assert rewrite_series(path.read_bytes()) == path.read_bytes()
