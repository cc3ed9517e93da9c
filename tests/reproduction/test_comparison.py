"""The page that sets the paper beside ours, about outcomes that were made up."""

import re

import pytest

from reproduction.claims import CLAIMS
from reproduction.comparison import write_comparison
from reproduction.entries import NAMES
from reproduction.setups import SETUPS
from reproduction.tables import Key, load_published

pytestmark = pytest.mark.slow
PAPERS_OWN = [name for name, setup in SETUPS.items() if name == setup.published]
METRICS = {"F_IK": "F_IK", "A_IK": "A_IK", "A_notIK": "A_¬IK"}
LAYERS = {"two layers": "two", "logit layer alone": "logit"}
METHODS = {title: method for method, title in NAMES.items()}


def page_of(tmp_path, outcomes, **options):
    path = tmp_path / "comparison.md"
    assert write_comparison(path, outcomes, **options) == path
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    return path.read_text("utf-8")


def sections(page):
    """The lines under each heading."""
    parts = re.split(r"^## ", page, flags=re.MULTILINE)[1:]
    return {part.partition("\n")[0]: part.splitlines()[1:] for part in parts}


def rows(lines):
    """The cells of the rows of tables, headings and rules left out."""
    split = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if "|" in line]
    rules = {i for i, cells in enumerate(split) if set("".join(cells)) <= set("-:")}
    return [cells for i, cells in enumerate(split) if not {i, i + 1} & rules]


def cells_of(page, name):
    """What the tables of an experiment show, by (layers, method, condition, heading)."""
    found = {}
    for line in sections(page)[name]:
        if title := re.fullmatch(r"\*\*(.+), (\w+)\*\*", line):
            layers, condition = LAYERS[title[1]], title[2]
        elif line.startswith("| ") and not line.startswith("| method"):
            method, *texts = [cell.strip() for cell in line.strip("|").split("|")]
            for heading, text in zip(METRICS.values(), texts, strict=True):
                place = (layers, METHODS[method], condition, heading)
                assert place not in found
                found[place] = text
    return found


def test_published_values_agree_throughout_and_bear_out_the_claims(tmp_path, outcome_of):
    page = page_of(tmp_path, [outcome_of(name) for name in PAPERS_OWN])
    (title,) = (t for t in sections(page) if t.endswith("are not counted"))
    out = rows(sections(page)[title])
    assert f"**{504 - len(out)} of {504 - len(out)} counted cells agree (100.0%).**" in page
    assert "The 0 cells that do not agree" in sections(page)
    expected = {
        (key.dataset, key.layers, NAMES[key.method], key.perturbation, key.metric)
        for key in load_published()
        if key.metric == "A_IK" and load_published()[key._replace(metric="F_IK")] < 0.01
    }
    assert {tuple(each[:5]) for each in out} == expected
    assert len(expected) == len(out) == 8
    lines = sections(page)["The paper's claims"]
    (heading,) = (line for line in lines if line.startswith("| the paper's words"))
    assert [cell.strip() for cell in heading.strip("|").split("|")][2:] == PAPERS_OWN
    assert [row[1] for row in rows(lines)] == [claim.text for claim in CLAIMS]
    found = [cell for row in rows(lines) for cell in row[2:]]
    assert {cell: found.count(cell) for cell in found} == {
        "✓ 1 of 1": sum(len(claim.datasets) for claim in CLAIMS) - 3,
        "✗ 0 of 1, paper ✗": 3,
        "": sum(6 - len(claim.datasets) for claim in CLAIMS),
    }


@pytest.mark.parametrize("name", PAPERS_OWN)
def test_every_published_cell_is_shown_once_beside_ours(tmp_path, outcome_of, name):
    up, down = (outcome_of(name, s, lambda k, v, d=d: v + d) for s, d in ((0, 0.2), (1, 0.4)))
    found = cells_of(page_of(tmp_path, [up, down]), name)
    for key, value in load_published().items():
        if key.dataset == name:
            text = found[key.layers, key.method, key.perturbation, METRICS[key.metric]]
            # Of v + 0.2 and v + 0.4 the mean is v + 0.3 and the deviation √(2 · 0.1²).
            assert f"{value:.3f} → {value + 0.3:.3f} ± 0.141" in text
            assert ("✗" in text) != text.startswith("(")
    assert {method for _, method, _, _ in found} == set(NAMES)


def test_a_cell_s_mark(tmp_path, outcome_of):
    wrong = Key("gtsrb", "two", "ball", "nominal", "F_IK")  # 0.488
    spread, empty = wrong._replace(perturbation="gaussian"), wrong._replace(layers="logit")

    def change(seed):
        def apply(key, value):
            if key == wrong:
                return value + 0.06
            if key._replace(metric="F_IK") == empty:
                return {"F_IK": 0.0, "A_IK": None, "A_notIK": value}[key.metric]
            return value + 0.02 + 0.1 * seed if key == spread else value

        return apply

    page = page_of(tmp_path, [outcome_of("gtsrb", s, change(s)) for s in (0, 1)])
    found = cells_of(page, "gtsrb")
    assert found["two", "ball", "nominal", "F_IK"] == "0.488 → 0.548 ± 0.000 ✗"
    assert found["two", "ball", "gaussian", "F_IK"] == "0.488 → 0.558 ± 0.071 ✓"
    assert found["two", "ball", "uniform", "F_IK"] == "0.485 → 0.485 ± 0.000 ✓"
    assert found["two", "default", "uniform", "F_IK"] == "0.500 ± 0.000"
    # H-1 in the code's way is set beside the same published value, 0.584; ours is 0.5.
    assert found["two", "h1_code", "nominal", "F_IK"] == "0.584 → 0.500 ± 0.000 ✗"
    undefined = found["logit", "ball", "nominal", "A_IK"]
    assert re.fullmatch(r"\(0\.\d{3} → –\)", undefined)
    apart = rows(sections(page)["The 2 cells that do not agree"])
    assert [
        "gtsrb",
        "two",
        "ε-ball",
        "nominal",
        "F_IK",
        "0.488",
        "0.548 ± 0.000",
        "+0.060",
    ] in apart
    (out,) = rows(sections(page)["The 1 cells that are not counted"])
    assert out == ["gtsrb", "logit", "ε-ball", "nominal", "A_IK", undefined[1:6], "–"]


def test_cells_that_do_not_agree_are_listed_farthest_first(tmp_path, outcome_of):
    def change(key, value):
        return value + {"nominal": 0.1, "gaussian": -0.3, "uniform": 0.2}.get(key.perturbation, 0)

    page = page_of(tmp_path, [outcome_of("iris", 0, change)])
    (title,) = (t for t in sections(page) if t.endswith("do not agree"))
    gaps = [abs(float(row[-1])) for row in rows(sections(page)[title])]
    assert gaps == sorted(gaps, reverse=True)
    assert set(gaps) == {0.1, 0.2, 0.3}
    assert title == f"The {len(gaps)} cells that do not agree"


def test_the_score_is_split_by_groups_that_add_up(tmp_path, outcome_of):
    def change(key, value):
        return value + 0.06 if key.method == "knn" and key.layers == "two" else value

    page = page_of(tmp_path, [outcome_of(name, 0, change) for name in ("gtsrb", "iris")])
    lines = sections(page)["Agreement"]
    score = re.search(r"\*\*(\d+) of (\d+) counted cells agree \((.+)%\)", "\n".join(lines))
    agreeing, counted = int(score[1]), int(score[2])
    assert float(score[3]) == pytest.approx(100 * agreeing / counted, abs=0.051)
    tables = {}
    for line in lines:
        if line.startswith("| by "):
            parts = tables[line.split("|")[1].strip()] = []
        elif line.startswith("| ") and tables:
            parts.append([cell.strip() for cell in line.strip("|").split("|")])
    assert list(tables) == [
        f"by {each}" for each in ["dataset", "layers", "method", "condition", "metric"]
    ]
    for parts in tables.values():
        assert sum(int(row[1]) for row in parts) == counted
        assert sum(int(row[2]) for row in parts) == agreeing
    by_method = {row[0]: row for row in tables["by method"]}
    assert by_method["softmax"][1:] == ["36", "36", "100.0%", "100.0%", "–"]  # of one seed
    # k-NN in two layers is off: 12 cells of each dataset; the 12 of gtsrb's logit layer are not.
    assert by_method["k-NN"][1:] == ["36", "12", "33.3%", "33.3%", "–"]


def test_intervals_are_by_group(tmp_path, outcome_of):
    """k-NN is off in one seed of two, by 0.14: close in the draws of the other one alone."""
    worse = outcome_of("iris", 1, lambda key, value: value - 0.14 * (key.method == "knn"))
    lines = sections(page_of(tmp_path, [outcome_of("iris", 0), worse]))["Agreement"]
    intervals = {row[0]: row[-1] for row in rows(lines)}
    assert intervals["k-NN"] == "0.0% to 100.0%"
    assert intervals["softmax"] == "100.0% to 100.0%"
    assert intervals["iris"] == "75.0% to 100.0%"
    assert any("bootstrap over the seeds" in line for line in lines)


def test_claims_are_counted_over_the_seeds(tmp_path, outcome_of):
    def keep(key, value):
        """Coverage is the same under every condition: it does not fall."""
        return 0.9 if key.metric == "F_IK" and key.method in ("ball", "h2") else value

    for n_false, n, mark in [(0, 3, "✓"), (1, 3, "~"), (2, 4, "✗"), (3, 3, "✗")]:
        outcomes = [outcome_of("italy_power_demand", s) for s in range(n - n_false)]
        outcomes += [outcome_of("italy_power_demand", n + s, keep) for s in range(n_false)]
        lines = sections(page_of(tmp_path, outcomes))["The paper's claims"]
        claims = {row[1]: row[2:] for row in rows(lines)}
        (found,) = (cells for text, cells in claims.items() if "falls below half" in text)
        assert found == [f"{mark} {n - n_false} of {n}"]
        assert not any("logit" in text for text in claims)  # the paper has two layers alone


def test_variants_and_readings_have_tables_but_no_part_in_the_score(tmp_path, outcome_of):
    alone = sections(page_of(tmp_path, [outcome_of("grid_stability")]))
    others = ["grid_stability_12", "grid_stability_before_relu"]
    worse = [outcome_of(name, 0, lambda key, value: value / 3) for name in others]
    page = page_of(tmp_path, [outcome_of("grid_stability"), *worse])
    for title in ("Agreement", "The paper's claims", "The 0 cells that do not agree"):
        assert sections(page)[title] == alone[title]
    for name in others:
        text = "\n".join(sections(page)[name])
        assert re.search(r"\b2 of 46 counted cells agree, beside .* of grid_stability\.", text)
        assert len(cells_of(page, name)) == len(cells_of(page, "grid_stability")) == len(NAMES) * 12
    only = sections(page_of(tmp_path, [outcome_of("grid_stability_12")]))
    assert "Agreement" not in only
    assert "grid_stability_12" in only


def test_base_classifiers_and_the_banner_of_a_quick_run(tmp_path, outcome_of):
    outcomes = [outcome_of("iris", seed) for seed in (0, 4)]
    quick, full = page_of(tmp_path, outcomes, quick=True), page_of(tmp_path, outcomes)
    (row,) = rows(sections(full)["Base classifiers"])
    assert row == ["iris", "2", "1.0000", "0.9000", "10 to 14", "3 to 7", "0.750"]
    banner = "**A quick run on few samples: it shows that all runs, the numbers mean nothing.**"
    assert quick.replace(f"{banner}\n\n", "") == full != quick
    assert quick.index(banner) < quick.index("## ")
