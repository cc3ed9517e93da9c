"""What assertions are worth: parts against slower ways, tiny runs, and committed figures."""

import hashlib
import io
import json
import warnings
from pathlib import Path

import numpy as np
import pytest

from benchmarks import leaves
from benchmarks.magika import table as magika_table
from benchmarks.magika.files import (
    MOST,
    OTHER,
    File,
    Types,
    as_text,
    collect,
    keeps_promise,
    promised_type,
    type_by_extension,
)
from benchmarks.magika.measuring import FOREIGN, UNSEEN, measure
from benchmarks.magika.methods import named_by_magika
from benchmarks.magika.network import Said
from benchmarks.magika.sets import JOINED, PIECES, RANDOM, UTF16, split, spoil
from benchmarks.scoreboard import table
from benchmarks.scoreboard.cells import train_sklearn
from benchmarks.scoreboard.data import decode, delta, load, numbers_of, shift_table, undelta
from benchmarks.scoreboard.methods import ensemble
from benchmarks.scoreboard.problems import PROBLEMS
from benchmarks.scoreboard.publish import join, shorten
from benchmarks.scoreboard.running import RESULTS, run_job
from benchmarks.scoreboard.summary import Summary
from benchmarks.scoreboard.targets import judge
from iknow import EpistemicClassifier
from iknow.evaluation.peers import Observed, Softmax
from iknow.metrics import Cosine
from iknow.search.cells import CpuIndex

pytestmark = pytest.mark.slow
DOCS = Path(__file__).parents[2] / "docs"


def test_an_ensemble_averages_probabilities():
    rng = np.random.default_rng(0)
    members = [
        Observed(np.zeros((50, 1)), None, rng.normal(0, spread, (50, 5)), np.zeros(50, int))
        for spread in (0.5, 1.0, 2.0)
    ]
    weights = [np.exp(member.logits) for member in members]
    mean = np.mean([each / each.sum(axis=1, keepdims=True) for each in weights], axis=0)
    joined = ensemble(members)
    np.testing.assert_array_equal(joined.belief, mean.argmax(axis=1))
    np.testing.assert_allclose(np.exp(Softmax().score(joined)), mean.max(axis=1))


def test_packing_restores_every_pixel_and_shifts_change_what_they_say():
    images = np.random.default_rng(0).integers(0, 256, (5, 8, 8, 3)).astype(np.uint8)
    assert (undelta(delta(images)) == images).all()
    x = np.random.default_rng(0).normal(size=(40, 8)).astype(np.float32)
    shifted = shift_table(x, x, seed=0)
    swapped = shifted["two features swapped"]
    assert ((swapped != x).sum(axis=1) == 2).all()
    assert (np.sort(swapped, axis=1) == np.sort(x, axis=1)).all()
    assert ((shifted["a quarter resampled"] != x).sum(axis=1) <= 2).all()
    assert (shifted["doubled"] == 2 * x).all()


def test_searches_in_torch_find_what_the_exact_index_does():
    torch = pytest.importorskip("torch")
    from benchmarks.scoreboard.torch.descent import LayerEvidence
    from benchmarks.scoreboard.torch.plain_index import PlainIndex

    rng = np.random.default_rng(0)
    points, labels = rng.normal(size=(200, 9)).astype(np.float32), rng.integers(0, 4, 200)
    labels[0] = 5  # class 4 is empty, and class 5 has fewer samples than asked for
    queries = np.concatenate([rng.normal(size=(30, 9)), points[:3]]).astype(np.float32)
    ours = PlainIndex(points, labels, 6, device="cpu").gather(queries, 20, 3)
    exact = CpuIndex(points, labels, 6).gather(queries, 20, 3)
    np.testing.assert_allclose(ours.distances, exact.distances, rtol=1e-10)
    np.testing.assert_allclose(ours.neighbor_distances, exact.neighbor_distances, rtol=1e-10)
    assert (ours.rows == exact.rows).all()

    labels, belief, rows = rng.integers(0, 3, 200), rng.integers(0, 3, 33), np.arange(33)
    layer = LayerEvidence(torch.from_numpy(points), torch.from_numpy(labels), 3, (2, 3))
    given = torch.from_numpy(queries)
    found = layer.find(given, torch.from_numpy(belief))
    own, other, tenth = (layer.distance(given, each) for each in found)
    exact = CpuIndex(points, labels, 3).gather(queries, 10, 3)
    np.testing.assert_allclose(tenth.numpy(), exact.neighbor_distance(10), rtol=1e-4)
    ranked = exact.distances
    against = ranked[:, :, 2].copy()
    against[rows, belief] = np.inf
    np.testing.assert_allclose(own.numpy(), ranked[rows, belief, 1], rtol=1e-4)
    np.testing.assert_allclose(other.numpy(), against.min(axis=1), rtol=1e-4)


@pytest.mark.parametrize("mode", ["sum", "max", "distance"])
@pytest.mark.parametrize(
    ("limits", "least"), [((0.5, 1.0, 0.9), 0.1), ((np.inf, 0.0, 0.9), -np.inf)]
)
def test_descent_stays_within_its_limits(mode, limits, least):
    torch = pytest.importorskip("torch")
    from benchmarks.scoreboard.torch.descent import Conditions, LayerEvidence, descend

    x = torch.rand(60, 6, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0.5).long()
    layers = {"input": LayerEvidence(x, y, 2, (1, 3))}
    network = torch.nn.Linear(6, 2)
    look, limits = lambda a: (network(a), {"input": a}), {"input": limits}
    conditions = Conditions(look, layers, limits, least)
    start, target = x[:10], 1 - y[:10]
    found = descend(conditions, start, target, x[10:20], 0.1, 9, begin="guide", mode=mode)
    assert (found - start).abs().max() <= 0.1 + 1e-6
    assert 0 <= found.min() <= found.max() <= 1


def test_descent_turns_an_answer_where_every_voice_can_be_satisfied():
    torch = pytest.importorskip("torch")
    from benchmarks.scoreboard.torch.descent import Conditions, LayerEvidence, descend

    x = torch.rand(400, 2, generator=torch.Generator().manual_seed(0))
    y = (x[:, 0] > 0.5).long()
    network = torch.nn.Linear(2, 2)
    with torch.no_grad():
        network.weight.copy_(torch.tensor([[-9.0, 0.0], [9.0, 0.0]]))
        network.bias.copy_(torch.tensor([9.0, -9.0]) / 2)
    layer, look = LayerEvidence(x, y, 2, (1, 3)), lambda a: (network(a), {"input": a})
    conditions = Conditions(look, {"input": layer}, {"input": (0.1, 1.2, 0.2)}, 1.5)
    start = torch.tensor([[0.44, 0.3], [0.45, 0.7]])
    target = torch.tensor([1, 1])
    found = descend(conditions, start, target, x[:2], 0.2, 60, begin="self", mode="sum")
    own, other, tenth = (layer.distance(found, rows) for rows in layer.find(found, target))
    with torch.no_grad():
        logits = network(found)
    assert (logits[:, 1] - logits[:, 0] >= 1.5).all()
    assert (own <= 0.1).all()
    assert (other >= 1.2 * own).all()
    assert (tenth <= 0.2).all()


def test_the_attack_sees_the_points_that_the_library_searches():
    torch = pytest.importorskip("torch")
    from benchmarks.scoreboard.torch.adaptive import observer
    from benchmarks.scoreboard.torch.training import build

    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Unflatten(1, (3, 32, 32)), build("resnet", 3072, 3, 8))
    network.eval()
    x = np.random.default_rng(0).random((40, 3072), dtype=np.float32)
    ec = EpistemicClassifier(network, classes=[0, 1, 2], progress=False)
    ec.fit(x, np.arange(40) % 3)
    names = list(ec.layers_)
    assert any(name.endswith(".moments") for name in names)
    directions = [name for name in names if isinstance(ec.indexes_[name].metric, Cosine)]
    _, points = observer(network, names, directions)(torch.from_numpy(x))
    for name, index in ec.indexes_.items():
        found = points[name].detach().numpy()
        order = np.argsort(np.arange(40) % 3, kind="stable")
        np.testing.assert_allclose(found[order], index.points, atol=1e-4)


TABLES = (
    table.in_words, table.overall, table.by_problem, table.certified, table.wrong_labels,
    table.accuracies,
)  # fmt: skip


def test_a_quick_run_of_the_scoreboard_gives_all_tables(tmp_path):
    pytest.importorskip("torch")
    rng, name = np.random.default_rng(0), "Italy power MLP"
    y = rng.integers(0, 2, 400)
    x = (rng.normal(size=(400, 24)) + 2 * y[:, None]).astype(np.float32)
    np.savez(tmp_path / "italy.npz", x=x, y=y)
    record = run_job((name, 0), tmp_path, None, quick=True)
    results = {"coverages": [0.5, 0.75, 0.9], "runs": {name: {"0": record}}}
    summary, cell = Summary(results), (name, "foreign, uniform")
    assert cell in summary.cells(summary.problems())
    assert summary.error(cell) == 1  # no answer about noise is right
    assert summary.wrong(cell, "iknow")[1] < summary.wrong(cell, "softmax")[1]
    assert {"GEN", "SIRC (residual)", "fDBD", "NNGuide"} <= set(summary.peers(PROBLEMS[name]))
    (tmp_path / RESULTS).write_text(json.dumps(results))
    assert Summary(shorten(join([tmp_path]))).cells(summary.problems()) == summary.cells(
        summary.problems()
    )
    for make in TABLES:
        assert name in make(summary)
    assert "cells" in table.losses(summary)
    assert table.adaptive(summary) == "Not run."


def pack_people(folder, n):
    """A table like the census: one number and one category tell the class, one of each does not."""
    rng = np.random.default_rng(0)
    y, names = rng.integers(0, 2, n), np.array(["clerk", "miner", "no", "yes"])
    numbers = np.column_stack([40 + 9 * y + rng.normal(0, 5, n), rng.normal(9, 1, n)])
    codes = np.column_stack([np.where(rng.random(n) < 0.9, y, 1 - y), rng.integers(2, 4, n)])
    np.savez(folder / "adult.npz", numbers=numbers, codes=codes, names=names, y=y)


@pytest.mark.parametrize("kind", ["boosting", "perceptron"])
def test_strange_rows_of_a_table_are_like_nothing_in_training(kind, tmp_path):
    pack_people(tmp_path, 21000)
    data = load(tmp_path, "adult", 0)
    assert [len(data.x), len(data.x_val), len(data.x_test)] == [15000, 5000, 1000]
    assert numbers_of(data.x) == [0, 1]
    assert set(data.x[:, 2]) == {"clerk", "miner"}
    martians, enlarged = data.foreign.values()
    assert (martians[:, 2:] == "Martian").all()
    assert (martians[:, :2] == data.x_test[:, :2]).all()
    assert (enlarged[:, :2] == 10 * data.x_test[:, :2]).all()
    shifted = shift_table(data.x_test, data.x, seed=0)
    assert all((each[:, 2:] == data.x_test[:, 2:]).all() for name, each in shifted.items()
               if name != "a quarter resampled")  # fmt: skip
    assert np.isnan(shifted["a column missing"][:, 0].astype(float)).all()
    model = train_sklearn(kind, data.x, data.y, 0)
    assert model.score(data.x_test, data.y_test) > 0.8
    few = data.few()
    ec = EpistemicClassifier(train_sklearn(kind, few.x, few.y, 0)).fit(few.x, few.y)
    ec.tune(few.x_val, coverage=0.9)
    for strange in (*few.foreign.values(), shifted["a column missing"]):
        with warnings.catch_warnings(action="ignore"):  # numbers x 10 are told
            found = ec.assess(strange)
        assert (found.assertion != "IK").all()


@pytest.mark.parametrize("kind", ["boosting", "perceptron"])
def test_a_quick_run_of_a_table_with_categories(kind, tmp_path):
    pack_people(tmp_path, 21000)
    name = f"Adult {kind}"
    record = run_job((name, 0), tmp_path, None, quick=True)
    summary = Summary({"coverages": [0.5, 0.75, 0.9], "runs": {name: {"0": record}}})
    (verdict,) = (each for each in judge(summary) if "Martians" in each.target)
    assert verdict.met
    assert summary.asserted((name, "foreign, Martians"), "softmax")[1] > 0.1


def test_jpeg_files_back_to_back_become_images():
    image_of = pytest.importorskip("PIL.Image").fromarray
    values = np.linspace(0, 255, 5 * 8).astype(np.uint8).reshape(5, 8)
    images = np.broadcast_to(values[:, None, :, None], (5, 8, 8, 3))  # a slope each
    files = []
    for image in images:
        stream = io.BytesIO()
        image_of(np.ascontiguousarray(image)).save(stream, "JPEG", quality=95)
        files.append(np.frombuffer(stream.getvalue(), np.uint8))
    found = decode(np.concatenate(files), np.array([len(file) for file in files]))
    assert np.abs(found.astype(int) - images).max() <= 4


def test_photographs_are_moved_and_mirrored_and_nothing_else():
    torch = pytest.importorskip("torch")
    from benchmarks.scoreboard.torch.training import build, move_and_mirror

    images = torch.rand(64, 3, 16, 16, generator=torch.Generator().manual_seed(0))
    padded = np.pad(images.numpy(), ((0, 0), (0, 0), (4, 4), (4, 4)), mode="reflect")
    seen = set()
    for image, moved in zip(padded, move_and_mirror(images).numpy(), strict=True):
        windows = {
            (top, left, way): image[:, top : top + 16, left : left + 16][:, :, ::way]
            for top in range(9) for left in range(9) for way in (1, -1)
        }  # fmt: skip
        (found,) = (where for where, window in windows.items() if (window == moved).all())
        seen.add(found)
    assert {way for *_, way in seen} == {1, -1}
    assert len({top for top, *_ in seen}) == 9
    network = build("resnet", 3 * 16 * 16, 10, width=8).eval()
    assert network(images).shape == (64, 10)
    weighted = [m for m in network.modules() if isinstance(m, (torch.nn.Conv2d, torch.nn.Linear))]
    assert sum(m.kernel_size != (1, 1) for m in weighted[:-1]) + 1 == 18


def recorded(clean, strange):
    """Results of one seed in which each method is (wrong at three coverages, AUGRC) by cell."""

    def cell(figures):
        wrong = [each[0] for each in figures.values()]
        areas = [each[1] for each in figures.values()]
        return {"n": 10, "error": 0.5, "wrong": wrong, "asserted": wrong, "augrc": areas}

    cells = {"clean": cell(clean)} | {name: cell(each) for name, each in strange.items()}
    certified = {
        "0.95": {"iknow": {"coverage": 0.9, "accuracy": 1.0},
                 "softmax": {"coverage": 0.93, "accuracy": 1.0}},
    }  # fmt: skip
    both = {"methods": list(clean), "certified": certified, "left_out": [], "model_error": 0.1}
    plain, noisy = both | {"cells": cells}, both | {"cells": {"wrong labels": cell(clean)}}
    runs = {"MNIST MLP": {"0": {"plain": plain, "noisy": noisy}}}
    return Summary({"coverages": [0.5, 0.75, 0.9], "runs": runs})


def test_targets_and_words_say_where_another_is_better():
    clean = {"iknow": ([0.010, 0.0241, 0.05], 0.010), "softmax": ([0.01, 0.02, 0.05], 0.008),
             "ensemble of three": ([0, 0, 0], 0.001)}  # fmt: skip
    blur = {"iknow": ([0.1, 0.2, 0.3], 0.050), "softmax": ([0.5, 0.5, 0.5], 0.090),
            "ensemble of three": ([0, 0, 0], 0.001)}  # fmt: skip
    noise = {**blur, "iknow": ([0.1, 0.2, 0.3], 0.070)}
    summary = recorded(clean, {"blur": blur, "noise, weak": noise})
    (problem,) = summary.problems()
    assert summary.augrc_clean(problem, "iknow") == 0.010
    assert summary.augrc_all(problem, "iknow") == pytest.approx(0.060)  # of blur and noise alone
    assert summary.peers(problem) == ["softmax"]
    met = {verdict.target: verdict.met for verdict in judge(summary)}
    on_clean = {text.partition(":")[0][-4:]: ok for text, ok in met.items() if "own" in text}
    assert on_clean == {"0.50": True, "0.75": False, "0.90": True}  # 2.41% is above 2.2 + 0.2
    assert [ok for text, ok in met.items() if text.startswith("AUGRC all")] == [True, True, True]
    assert [ok for text, ok in met.items() if text.startswith("coverage certified")] == [False]
    said = table.in_words(summary)
    assert "**iknow is better** by more than 3% on MNIST MLP (-33%)." in said
    assert "**A threshold is better** by more than 0.2 points: clean (2.4% and 2.0%)" in said
    assert "**A threshold is as good**, within 3%, on no problem." in said
    short = table.in_short(summary)
    assert "| ordinary test data | 2.0% | 2.4% |\n| noise | 50.0% | 20.0% |\n" in short
    assert short.endswith("| **stands behind a right answer**, all data | 0.0% | 0.0% |")
    assert "| MNIST MLP | design | clean | 2.41 | 2.00 | softmax |" in table.losses(summary)
    assert "blur" not in table.losses(summary)
    worse = {**blur, "iknow": ([0.6, 0.7, 0.8], 0.099)}
    summary = recorded(clean, {"blur": worse})
    met = [verdict.met for verdict in judge(summary) if verdict.target.startswith("AUGRC all")]
    assert met == [False, False, False]
    assert "**A threshold is better** by more than 3% on MNIST MLP (+10%)" in table.in_words(
        summary
    )


def test_input_and_leaves_together_are_wrong_least_on_held_out_data():
    committed = json.loads((DOCS / "figures" / "leaves.json").read_text("utf-8"))["by cell"]
    cells = [cell for problem, cells in committed.items() for cell in cells.values()
             if problem.rpartition(", ")[0] in leaves.HELD_OUT]  # fmt: skip
    means = {name: np.mean([cell[name] for cell in cells], axis=0) for name in cells[0]}
    for other in ("input", "leaves", "both, or leaves", "softmax"):
        assert (means["both"] < means[other]).all()
    row = {name: [0.1, 0.2, 0.3] for name in means}  # every run counts once and is shown
    found = leaves.summarize({f"grid|xgboost|none|{seed}": {"clean": row} for seed in range(2)})
    np.testing.assert_allclose(found["by cell"]["grid, none"]["clean"]["both"], [0.1, 0.2, 0.3])
    assert "| grid (design) | none | 10.0 / 20.0 / 30.0 |" in leaves.tables(found)


def test_a_class_kept_from_training_is_in_no_part_but_its_cell():
    x, y = leaves.synthetic(0, 3)
    parts = leaves.split((x, y), 0, unseen=1)
    assert np.unique(parts.train[1]).tolist() == [0, 1]  # numbered anew
    (gone, truth) = parts.cells["unseen class"]
    assert truth is None
    rows = {row.tobytes() for row in x[y == 1]}
    assert all(row.tobytes() in rows for row in gone)
    assert not any(row.tobytes() in rows for row in parts.train[0])


LABELS = ("python", "json", "png", "shell", "randombytes")
CONFIG = {
    "target_labels_space": list(LABELS),
    "thresholds": {"json": 0.9},
    "medium_confidence_threshold": 0.5,
    "overwrite_map": {"randombytes": "unknown"},
}


class Fake:
    """Tells the types of files that begin with the code of theirs, if it has seen enough."""

    config, labels = CONFIG, np.array(LABELS)

    def ask(self, contents):
        hidden = np.stack([self._see(content) for content in contents]).astype(np.float32)
        return Said(5 * hidden[:, : len(LABELS)], hidden)

    def _see(self, content):
        seed = int.from_bytes(hashlib.sha256(content).digest()[:4], "big")
        noise = np.random.default_rng(seed).normal(size=10)
        return 2 * np.eye(10)[content[0] % len(LABELS)] + 0.7 * noise


def make_files(n_projects=12, each=60):
    rng, files = np.random.default_rng(0), []
    for project in range(n_projects):
        for code in rng.integers(0, 4, each):
            text = rng.integers(97, 123, 3000).astype(np.uint8).tobytes()
            files.append(File(f"project {project}", LABELS[code], bytes([50 + code]) + text))
        files.append(File(f"project {project}", OTHER + "Nim", b"0" + rng.bytes(40)))
    return files


def test_names_promise_types_and_content_must_keep_them():
    kinds = {"python": "py", "perl": "pl", "prolog": "pl", "verilog": "v", "gleam": "gleam"}
    kinds = {name: {"extensions": [ending], "is_text": True} for name, ending in kinds.items()}
    extensions = type_by_extension(kinds, ["python", "perl", "prolog", "verilog"])
    assert not {"pl", "v", "gleam"} & set(extensions)  # of two types; in doubt; not the model's
    for path, kind in {"a/B.PY": "python", "CMakeLists.txt": "cmake", "notes.txt": None}.items():
        assert promised_type(Path(path), extensions) == kind
    for content, kind, is_text, kept in (
        (b"x = 1\n", "python", True, True),
        (b"print 'old'\n", "python", True, False),
        (b'{"a": [1]}', "json", True, True),
        (b"{'a': 1}", "json", True, False),
        (b'{"cells": []}', "ipynb", True, True),
        (b"5", "ipynb", True, False),  # JSON, but no notebook
        (b"\x89PNG\r\n\x1a\n\0\xff", "png", False, True),
        (b"version https://git-lfs.github.com/spec/v1\n", "png", False, False),
        (b"\xff\xd8\xff\xe0", "png", False, False),
        (b"a\0b", "shell", True, False),
        (b"<TS></TS>", "typescript", True, False),
        (b"<p>{{ name }}</p>", "html", True, False),
        (b"<a><b/></a>", "xml", True, True),
        (b"<a><b></a>", "xml", True, False),
        (b"PK\x03\x04\xff", "zip", False, False),
    ):
        assert keeps_promise(content, kind, is_text) is kept, content


def test_collecting_takes_each_content_once_and_few_files_of_a_project(tmp_path):
    for project, n in {"a": 3, "b": MOST + 7}.items():
        (tmp_path / project / "src").mkdir(parents=True)
        for i in range(n):
            (tmp_path / project / "src" / f"{i}.py").write_text(f"x = {i}\n")
    (tmp_path / "b" / "image.png").write_bytes(b"no image")
    (tmp_path / "b" / "main.nim").write_bytes(b"echo 1")
    (tmp_path / "stray.py").write_text("x = 'of no project'\n")
    types = Types({"py": "python", "png": "png"}, frozenset(["python"]))
    files = collect([tmp_path], types, lambda content: content)
    kinds = [(file.project, file.kind) for file in files]
    assert kinds.count(("a", "python")) == 3
    assert kinds.count(("b", "python")) == MOST
    assert [kind for _, kind in kinds if kind != "python"] == [OTHER + "Nim"]
    assert len({file.content for file in files}) == len(files)
    assert files == collect([tmp_path], types, lambda content: content)


@pytest.mark.parametrize("seed", range(20))
def test_no_project_is_in_two_parts_and_withheld_types_are_in_test_alone(seed):
    rng = np.random.default_rng(seed)
    names = ["a", "b", "c", "d", "e", OTHER + "x"]
    files = [File(f"{rng.integers(9)}", rng.choice(names), b"") for _ in range(150)]
    parts = vars(split(files, seed))
    of = {name: {files[row].project for row in rows} for name, rows in parts.items()}
    assert not of["evidence"] & of["validation"]
    test = of["test"] | of["unseen"] | of["foreign"]
    assert not (of["evidence"] | of["validation"]) & test
    kinds = {name: {files[row].kind for row in rows} for name, rows in parts.items()}
    assert kinds["validation"] | kinds["test"] <= kinds["evidence"]
    assert not kinds["unseen"] & kinds["evidence"]
    assert kinds["foreign"] <= {OTHER + "x"}


def test_spoiled_files_are_what_they_say():
    known = [file for file in make_files(2) if not file.kind.startswith(OTHER)]
    spoiled, contents = spoil(known, 0), {file.content: file for file in known}
    for content in spoiled[JOINED][0]:
        assert contents[content[:3001]].kind != contents[content[3001:]].kind
    for content, kind in zip(*spoiled[PIECES], strict=True):
        (whole,) = (file for file in known if content in file.content[512:])
        assert (len(content), whole.kind) == (512, kind)
    for content, kind in zip(*spoiled[UTF16], strict=True):
        assert as_text(content) is None
        assert contents[content.decode("utf-16").encode()].kind == kind
    assert set(spoiled[RANDOM][1]) == {"randombytes"}


@pytest.mark.parametrize("mode", ["high", "medium"])
def test_modes_of_magika_are_thresholds_by_type(mode):
    logits = np.random.default_rng(0).normal(scale=3, size=(300, len(LABELS))).astype(np.float32)
    named = named_by_magika(Said(logits, logits), CONFIG, mode)
    for row, is_named in zip(logits, named, strict=True):
        chances, label = np.exp(row) / np.exp(row).sum(), LABELS[row.argmax()]
        least = 0.9 if (label, mode) == ("json", "high") else 0.5
        assert is_named == (chances.max() >= least and label != "randombytes")


def test_a_tiny_run_from_files_to_tables(monkeypatch):
    files, network = make_files(), Fake()
    run = measure(network, files, network.ask([file.content for file in files]), seed=1)
    assert set(run["n"]) >= {"test", FOREIGN, JOINED, PIECES, UTF16, RANDOM}
    assert run["error"][FOREIGN] == run["error"][JOINED] == 1
    for sets in run["equal_coverage"].values():
        for name, row in sets.items():
            for cell in row.values():
                assert cell is None or cell["wrong"] <= min(cell["asserted"], run["error"][name])
    ours = run["equal_coverage"]["iknow"]
    assert abs(ours["test"]["0.75"]["asserted"] - 0.75) < 0.15  # chosen on validation files
    assert ours["test"]["0.6"]["asserted"] < ours["test"]["0.9"]["asserted"]
    assert UNSEEN not in run["n"] or ours[UNSEEN]["0.75"]["asserted"] < 0.5
    record = {
        "magika": "0", "projects": ["a+b"], "files": 1, "types": 4, "classes": 5,
        "foreign_files": 1, "foreign_types": ["Nim"], "accuracy": 0.5, "runs": [run, run],
    }  # fmt: skip
    monkeypatch.setattr(magika_table, "record", lambda: record)
    assert "| iknow |" in magika_table.at(0.6)
    for text in (magika_table.data(), magika_table.at(0.75), magika_table.outside("wrong")):
        assert "nan" not in text


def test_accuracies_follow_from_shares():
    rng = np.random.default_rng(0)
    wrong, known = rng.random(500) < 0.2, rng.random(500) < 0.6
    cell = {"asserted": known.mean(), "wrong": (known & wrong).mean()}
    found = magika_table._accuracies([cell], [{"error": {"test": wrong.mean()}}])
    shares = (known, ~wrong[known], ~wrong[~known])
    assert found == [f"{100 * each.mean():.1f}" for each in shares]
