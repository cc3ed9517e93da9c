"""`iknow assess --ray`: the same answers in the same order, the same errors."""

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from iknow.tables import Roles
from tests.clusters import started_ray

pytest.importorskip("ray")

# Ray Data reads settings of its own that it deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:`use_:DeprecationWarning")

ASSESS = ["assess", "b.iknow", "--model", "model.joblib"]
COLUMNS = ["--label", "kind", "--id", "id"]


@pytest.fixture(scope="module")
def ray_started():
    with started_ray() as ray:
        yield ray


def cut(name, folder, at):
    """A Parquet file cut into several in a folder, and one without rows."""
    folder.mkdir()
    whole = pq.read_table(name)
    starts = [0, *at, len(whole)]
    for i, (start, stop) in enumerate(pairwise(starts)):
        pq.write_table(whole.slice(start, stop - start), folder / f"part-{i}.parquet")
    (folder / "_SUCCESS").touch()


def test_row_groups_hold_every_row_once_in_order(irises):
    from iknow.cli.assess import find_groups, reading_group

    cut("test.parquet", irises / "parts", [5, 5, 30])
    for source, n_groups in ((irises / "test.parquet", 4), (irises / "parts", 3)):
        found = []
        for group in find_groups(source):
            with reading_group(*group, Roles(id="id", drop=("kind",)), None) as tables:
                found += [table.features for table in tables]
        np.testing.assert_array_equal(np.concatenate(found), np.load("test.npy"))
        assert len(found) == n_groups  # one file has no rows


def test_what_ray_cannot_read_is_refused_before_it_starts(irises, iknow):
    assert "a Parquet file, or a folder" in iknow.fail(*ASSESS, "test.csv", "--ray")
    assert "--label" in iknow.fail(*ASSESS, "test.parquet", "--labels", "y.npy", "--ray")
    assert "goes with --ray" in iknow.fail(*ASSESS, "test.csv", "--ray-address", "here:1", code=2)
    (irises / "empty").mkdir()
    assert "no file ending in .parquet" in iknow.fail(*ASSESS, "empty", "--ray")
    (irises / "torn.parquet").write_bytes((irises / "test.parquet").read_bytes()[:-9])
    for words in (
        ["torn.parquet"],
        ["absent.parquet"],
        ["test.parquet", "--label", "absent"],
        ["test.parquet", "--model", "absent.joblib"],
        ["test.parquet", "-o", "test.parquet"],
    ):
        assert iknow.fail(*ASSESS, *words, "--ray") == iknow.fail(*ASSESS, *words)


def test_files_of_a_folder_must_have_the_same_columns(irises, iknow):
    cut("test.parquet", irises / "parts", [5])
    table = pq.read_table("test.parquet")
    pq.write_table(table.select(table.column_names[::-1]), irises / "parts" / "z.parquet")
    line = iknow.fail(*ASSESS, "parts", "--ray")
    assert "the same columns in the same order: z.parquet has 'kind'" in line


def test_an_address_that_does_not_answer(irises, iknow):
    line = iknow.fail(*ASSESS, "test.parquet", *COLUMNS, "--ray", "--ray-address", "127.0.0.1:1")
    assert "no Ray cluster answers at '127.0.0.1:1'" in line


@pytest.mark.slow
@pytest.mark.parametrize(("source", "ending"), [("test.parquet", "csv"), ("parts", "parquet")])
def test_ray_says_the_same_in_the_same_order(irises, iknow, ray_started, source, ending):
    cut("test.parquet", irises / "parts", [5, 5, 30])
    here = iknow(*ASSESS, "test.parquet", *COLUMNS, "-o", f"here.{ending}")
    there = iknow(*ASSESS, source, *COLUMNS, "-o", f"there.{ending}", "--ray")
    assert there.replace("there.", "here.") == here
    if ending == "csv":
        assert (irises / "there.csv").read_bytes() == (irises / "here.csv").read_bytes()
    else:
        assert pq.read_table("there.parquet").equals(pq.read_table("here.parquet"))


@pytest.mark.slow
def test_an_error_in_a_later_part_is_the_same(irises, iknow, ray_started):
    table = pq.read_table("test.parquet")
    kinds = pa.array(
        [None if i == 35 else kind for i, kind in enumerate(table["kind"].to_pylist())]
    )
    bad = table.set_column(table.column_names.index("kind"), "kind", pa.array(kinds))
    pq.write_table(bad, "bad.parquet", row_group_size=11)
    words = [*ASSESS, "bad.parquet", *COLUMNS, "-o", "said.csv"]
    assert iknow.fail(*words, "--ray") == iknow.fail(*words)
    assert not (irises / "said.csv").exists()
