"""The page that sets the paper beside ours, about outcomes that were made up."""

import re

import pytest

from reproduction.claims import CLAIMS
from reproduction.comparison import write_comparison
from reproduction.entries import NAMES
from reproduction.setups import SETUPS
from reproduction.tables import Key, load_published

PAPERS_OWN = [name for name, setup in SETUPS.items() if name == setup.published]
HEADINGS = ("F_IK", "A_IK", "A_¬IK")
LAYERS = {"two layers": "two", "logit layer alone": "logit"}
METHODS = {title: method for method, title in NAMES.items()}


def page_of(tmp_path, outcomes, **options):
    path = tmp_path / "comparison.md"
    assert write_comparison(path, outcomes, **options) == path
    assert [each.name for each in tmp_path.iterdir()] == [path.name]
    return path.read_text("utf-8")


def section(page, title):
    """The lines under a heading, up to the next one."""
    lines = page.splitlines()
    (start,) = (i for i, line in enumerate(lines) if line == f"## {title}")
    rest = lines[start + 1 :]
    ends = [i for i, line in enumerate(rest) if line.startswith("## ")]
    return rest[: ends[0]] if ends else rest


def rows(lines):
    """The cells of the rows of tables, headings and rules left out."""
    split = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if "|" in line]
    rules = {i for i, cells in enumerate(split) if set("".join(cells)) <= set("-:")}
    return [cells for i, cells in enumerate(split) if not {i, i + 1} & rules]


def cells_of(page, name):
    """What the tables of an experiment show, by (layers, method, condition, heading)."""
    found = {}
    for line in section(page, name):
        if title := re.fullmatch(r"\*\*(.+), (\w+)\*\*", line):
            layers, condition = LAYERS[title[1]], title[2]
        elif line.startswith("| ") and not line.startswith("| method"):
            method, *texts = [cell.strip() for cell in line.strip("|").split("|")]
            for heading, text in zip(HEADINGS, texts, strict=True):
                place = (layers, METHODS[method], condition, heading)
                assert place not in found
                found[place] = text
    return found


def places_of(name):
    metrics = dict(zip(("F_IK", "A_IK", "A_notIK"), HEADINGS, strict=True))
    for key, value in load_published().items():
        if key.dataset == name:
            yield (key.layers, key.method, key.perturbation, metrics[key.metric]), value


def test_published_values_agree_throughout(tmp_path, outcome_of):
    page = page_of(tmp_path, [outcome_of(name) for name in PAPERS_OWN])
    out = rows(section(page, next(t for t in titles(page) if t.endswith("are not counted"))))
    counted = 504 - len(out)
    assert f"**{counted} of {counted} counted cells agree (100.0%).**" in page
    assert "## The 0 cells that do not agree" in page
    expected = {
        (key.dataset, key.layers, NAMES[key.method], key.perturbation, key.metric)
        for key in load_published()
        if key.metric == "A_IK" and load_published()[key._replace(metric="F_IK")] < 0.01
    }
    assert {tuple(each[:5]) for each in out} == expected
    assert len(expected) == len(out) == 8


def titles(page):
    return [line.removeprefix("## ") for line in page.splitlines() if line.startswith("## ")]


@pytest.mark.parametrize("name", PAPERS_OWN)
def test_every_published_cell_is_shown_once_beside_ours(tmp_path, outcome_of, name):
    up, down = (outcome_of(name, s, lambda k, v, d=d: v + d) for s, d in ((0, 0.2), (1, 0.4)))
    found = cells_of(page_of(tmp_path, [up, down]), name)
    for place, value in places_of(name):
        text = found[place]
        # Of v + 0.2 and v + 0.4 the mean is v + 0.3 and the deviation √(2 · 0.1²).
        assert f"{value:.3f} → {value + 0.3:.3f} ± 0.141" in text
        assert ("✗" in text) != text.startswith("(")
    methods = {method for _, method, _, _ in found}
    assert methods == set(NAMES)


def test_a_cell_s_mark(tmp_path, outcome_of):
    wrong = Key("gtsrb", "two", "ball", "nominal", "F_IK")  # 0.488
    spread = wrong._replace(perturbation="gaussian")

    def change(seed):
        def apply(key, value):
            if key == wrong:
                return value + 0.06
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
    apart = rows(section(page, "The 1 cells that do not agree"))
    assert apart == [
        ["gtsrb", "two", "ε-ball", "nominal", "F_IK", "0.488", "0.548 ± 0.000", "+0.060"]
    ]
    assert "119 of 120 counted cells agree (99.2%)" in page
    # The cell that agrees by spread is close when the draw is the first seed twice.
    assert "118 (98.3%; 95% interval: 98.3% to 99.2%) are within 0.05" in page


def test_cells_that_are_undefined_or_over_few_are_in_brackets(tmp_path, outcome_of):
    place = Key("gtsrb", "two", "ball", "nominal", "F_IK")

    def change(key, value):
        if key._replace(metric="F_IK") != place:
            return value
        return {"F_IK": 0.0, "A_IK": None, "A_notIK": value}[key.metric]

    page = page_of(tmp_path, [outcome_of("gtsrb", 0, change)])
    found = cells_of(page, "gtsrb")
    assert found["two", "ball", "nominal", "A_IK"] == "(0.999 → –)"
    assert found["two", "ball", "nominal", "F_IK"].endswith("✗")
    assert ["gtsrb", "two", "ε-ball", "nominal", "A_IK", "0.999", "–"] in rows(
        section(page, "The 1 cells that are not counted")
    )


def test_cells_that_do_not_agree_are_listed_farthest_first(tmp_path, outcome_of):
    def change(key, value):
        return value + {"nominal": 0.1, "gaussian": -0.3, "uniform": 0.2}.get(key.perturbation, 0)

    page = page_of(tmp_path, [outcome_of("iris", 0, change)])
    (title,) = (t for t in titles(page) if t.endswith("do not agree"))
    listed = rows(section(page, title))
    gaps = [abs(float(row[-1])) for row in listed]
    assert gaps == sorted(gaps, reverse=True)
    assert set(gaps) == {0.1, 0.2, 0.3}
    assert title == f"The {len(listed)} cells that do not agree"


def test_the_score_is_split_by_groups_that_add_up(tmp_path, outcome_of):
    def change(key, value):
        return value + 0.06 if key.method == "knn" and key.layers == "two" else value

    page = page_of(tmp_path, [outcome_of(name, 0, change) for name in ("gtsrb", "iris")])
    lines = section(page, "Agreement")
    score = re.search(r"\*\*(\d+) of (\d+) counted cells agree \((.+)%\)", "\n".join(lines))
    agreeing, counted = int(score[1]), int(score[2])
    assert float(score[3]) == pytest.approx(100 * agreeing / counted, abs=0.051)
    tables, at = {}, None
    for line in lines:
        if line.startswith("| by "):
            at = line.split("|")[1].strip()
            tables[at] = []
        elif line.startswith("| ") and at:
            tables[at].append([cell.strip() for cell in line.strip("|").split("|")])
    assert list(tables) == [
        "by dataset", "by layers", "by method", "by condition", "by metric"
    ]  # fmt: skip
    for parts in tables.values():
        assert sum(int(row[1]) for row in parts) == counted
        assert sum(int(row[2]) for row in parts) == agreeing
    by_method = {row[0]: row for row in tables["by method"]}
    assert by_method["softmax"][1:] == ["36", "36", "100.0%", "100.0%", "–"]  # of one seed
    # k-NN in two layers is off: 12 cells of each dataset; the 12 of gtsrb's logit layer are not.
    assert by_method["k-NN"][1:] == ["36", "12", "33.3%", "33.3%", "–"]


def test_intervals_are_by_group(tmp_path, outcome_of):
    """k-NN is off in one seed of two, by 0.14: close in the draws of the other one alone."""

    def change(key, value):
        return value - 0.14 if key.method == "knn" else value

    seeds = [outcome_of("iris", 0), outcome_of("iris", 1, change)]
    lines = section(page_of(tmp_path, seeds), "Agreement")
    intervals = {row[0]: row[-1] for row in rows(lines)}
    assert intervals["k-NN"] == "0.0% to 100.0%"
    assert intervals["softmax"] == "100.0% to 100.0%"
    assert intervals["iris"] == "75.0% to 100.0%"
    assert any("bootstrap over the seeds" in line for line in lines)


def claims_on(page):
    """The table of claims: its datasets, and its cells by what is checked."""
    lines = section(page, "The paper's claims")
    (heading,) = (line for line in lines if line.startswith("| the paper's words"))
    datasets = [cell.strip() for cell in heading.strip("|").split("|")][2:]
    return datasets, {row[1]: row[2:] for row in rows(lines)}


def test_claims_are_counted_over_the_seeds(tmp_path, outcome_of):
    def keep(key, value):
        """Coverage is the same under every condition: it does not fall."""
        return 0.9 if key.metric == "F_IK" and key.method in ("ball", "h2") else value

    for n_false, n, mark in [(0, 3, "✓"), (1, 3, "~"), (2, 4, "✗"), (3, 3, "✗")]:
        outcomes = [outcome_of("italy_power_demand", s) for s in range(n - n_false)]
        outcomes += [outcome_of("italy_power_demand", n + s, keep) for s in range(n_false)]
        datasets, claims = claims_on(page_of(tmp_path, outcomes))
        assert datasets == ["italy_power_demand"]
        (found,) = (cells for text, cells in claims.items() if "falls below half" in text)
        assert found == [f"{mark} {n - n_false} of {n}"]
        assert not any("logit" in text for text in claims)  # the paper has two layers alone


def test_every_claim_has_a_row_that_says_what_the_paper_s_numbers_say(tmp_path, outcome_of):
    datasets, claims = claims_on(page_of(tmp_path, [outcome_of(name) for name in PAPERS_OWN]))
    assert datasets == PAPERS_OWN
    assert list(claims) == [claim.text for claim in CLAIMS]
    # The outcomes have the published values, so they bear out what the paper's numbers do.
    found = [cell for cells in claims.values() for cell in cells]
    assert {cell: found.count(cell) for cell in found} == {
        "✓ 1 of 1": sum(len(claim.datasets) for claim in CLAIMS) - 3,
        "✗ 0 of 1, paper ✗": 3,
        "": sum(6 - len(claim.datasets) for claim in CLAIMS),
    }


def test_variants_and_readings_have_tables_but_no_part_in_the_score(tmp_path, outcome_of):
    alone = page_of(tmp_path, [outcome_of("grid_stability")])

    def worse(key, value):
        return value / 3

    others = ["grid_stability_12", "grid_stability_before_relu"]
    page = page_of(
        tmp_path, [outcome_of("grid_stability"), *(outcome_of(n, 0, worse) for n in others)]
    )
    for title in ("Agreement", "The paper's claims", "The 0 cells that do not agree"):
        assert section(page, title) == section(alone, title)
    for name in others:
        text = "\n".join(section(page, name))
        assert re.search(r"\b2 of 46 counted cells agree, beside .* of grid_stability\.", text)
        assert len(cells_of(page, name)) == len(cells_of(page, "grid_stability")) == len(NAMES) * 12
    only = page_of(tmp_path, [outcome_of("grid_stability_12")])
    assert "## Agreement" not in only
    assert "## grid_stability_12" in only


def test_base_classifiers(tmp_path, outcome_of):
    page = page_of(tmp_path, [outcome_of("iris", seed) for seed in (0, 4)])
    (row,) = rows(section(page, "Base classifiers"))
    assert row == ["iris", "2", "1.0000", "0.9000", "10 to 14", "3 to 7", "0.750"]


def test_a_quick_run_is_called_one(tmp_path, outcome_of):
    outcomes = [outcome_of("iris")]
    quick, full = page_of(tmp_path, outcomes, quick=True), page_of(tmp_path, outcomes)
    banner = "**A quick run on few samples: it shows that all runs, the numbers mean nothing.**"
    assert quick.replace(f"{banner}\n\n", "") == full
    assert quick != full
    assert quick.index(banner) < quick.index("## ")
