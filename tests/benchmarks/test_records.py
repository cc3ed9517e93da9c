import pytest

from benchmarks.records import CLASS_DISTANCES, DENSE, FAISS, PRODUCTS, Timing, from_json, to_json
from iknow.errors import InputError


def test_results_survive_json(results):
    assert from_json(to_json(results)) == results


@pytest.mark.parametrize("text", ["[]", "{}", '{"format": 999}', "null"])
def test_another_document_is_refused(text):
    with pytest.raises(InputError, match="run the benchmark again"):
        from_json(text)


def test_times_are_per_query():
    timing = Timing("case", "task", "somebody", 50, (4e-3, 1e-3, 2e-3, 9e-3))
    assert timing.best == pytest.approx(20.0)
    assert timing.median == pytest.approx(60.0)


def test_a_ratio_is_between_best_rounds_of_one_case(results):
    case = "mnist, relu2"
    assert results.ratio(case, CLASS_DISTANCES, DENSE, PRODUCTS) == pytest.approx(1.25)
    assert results.ratio(case, CLASS_DISTANCES, FAISS, DENSE) == pytest.approx(4.0)
    assert results.ratio(case, CLASS_DISTANCES, "nobody", DENSE) is None
    assert results.ratio("no case", CLASS_DISTANCES, FAISS, DENSE) is None
