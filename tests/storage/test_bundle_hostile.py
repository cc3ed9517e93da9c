"""Bundles that somebody made to do harm: right checksums around anything at all.

Whatever is in them, loading and using one gives an answer or a BundleError, in little memory.
"""

import copy
import hashlib
import json
import random
import resource
import struct
import sys
import zipfile

import numpy as np
import pytest
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression

from iknow import Ball, BallElseNearest, EpistemicClassifier
from iknow.errors import BundleError, InputError
from iknow.metrics import Weighted
from iknow.models import PrecomputedModel
from iknow.npy import encode_array
from iknow.storage.archive import LARGEST_FRAME, START, open_file, read_zip, write_zip
from iknow.storage.bundle import read_bundle
from iknow.storage.manifest import LARGEST
from tests.storage.making import pack, place_of, seal_frame, unpack, write_manifest, write_sparse


def make_outputs(seed, n=60):
    rng = np.random.default_rng(seed)
    y = np.arange(n) % 3
    a = 3.0 * y[:, None] + rng.normal(size=(n, 2))
    return (np.eye(3)[y], {"a": a, "b": np.hstack([a, -a])}), y


@pytest.fixture(scope="module")
def contents(tmp_path_factory):
    """The contents of a bundle with all there is: a metric with an array, a certificate."""
    path = tmp_path_factory.mktemp("bundle") / "x.iknow"
    classifier = EpistemicClassifier(
        PrecomputedModel(), rule=Ball, metric={"b": Weighted(np.eye(4)[:, :3])}
    )
    classifier.fit(*make_outputs(0)).tune(*make_outputs(1, 600), accuracy=0.5, each_class=True)
    classifier.save(path)
    found = unpack(path)
    assert "layers/b/metric-map.npy" in found
    assert json.loads(found["manifest.json"])["selection"]["certificate"]
    return found


def use(path, verify=True):
    """Load a bundle and do something with it; says whether it was refused."""
    try:
        loaded = EpistemicClassifier.load(path, verify=verify)
        loaded.assess(make_outputs(2)[0], evidence=True)
        loaded.assess(make_outputs(2)[0])
        if hasattr(loaded, "selection_"):
            assert f"{loaded!r} {loaded.selection_!r} {loaded.selection_.gap}"
        loaded.save(path.with_name("again.iknow"))
    except BundleError as error:
        return str(error)
    return None


# Texts that are no manifest


def as_manifest(body):
    """A text that begins and ends as a manifest does."""
    return b"{\n" + body + b"\n}\n"


TEXTS = {
    "nothing": b"",
    "a word": b"hello",
    "an empty object": b"{}",
    "not UTF-8": as_manifest(b'"format": "\xff"'),
    "a byte order mark": b"\xef\xbb\xbf" + as_manifest(b'"format": 9'),
    "a list": b"[1]",
    "no entry": as_manifest(b""),
    "deep lists": as_manifest(b'"format": 9,\n"x": ' + b"[" * 1_000_000),
    "deep objects": as_manifest(b'"format": 9,\n"x": ' + b'{"a":' * 1_000_000),
    "deep and closed": as_manifest(b'"format": 9,\n"x": ' + b"[" * 500_000 + b"]" * 500_000),
    "many values": as_manifest(b'"format": 9,\n"x": [' + b"[]," * 3_000_000 + b"[]]"),
    "unended string": as_manifest(b'"format": 9,\n"x": "' + b'\\"' * 1_000_000),
    "a large integer": as_manifest(b'"format": ' + b"9" * 5000),
    "too long": as_manifest(b'"format": 9,\n"x": "' + b"x" * LARGEST + b'"'),
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_text_that_is_no_manifest_is_refused(tmp_path, contents, text):
    pack(tmp_path / "x.iknow", contents | {"manifest.json": text})
    with pytest.raises(BundleError, match=r"manifest\.json is damaged"):
        read_bundle(tmp_path / "x.iknow", verify=False)


SPELLINGS = {
    "a key twice": (b'"k": 5,', b'"k": 4, "k": 5,'),
    "a key twice on top": (b'"iknow":', b'"iknow": "",\n"iknow":'),
    "NaN": (b'"validation_fraction": 0.25', b'"validation_fraction": NaN'),
    "Infinity": (b'"validation_fraction": 0.25', b'"validation_fraction": Infinity'),
    "a number beyond floats": (b'"validation_fraction": 0.25', b'"validation_fraction": 1e999'),
    "digits that no float has": (b"0.25", b"0.2500000000000000000001"),
    "another spelling of a number": (b"0.25", b"2.5e-1"),
    "an integer beyond 64 bits": (b'"k": 5', b'"k": 36893488147419103232'),
    "an unknown number": (b"0.25", b'{"float": "1e9"}'),
    "a space": (b'"k": 5', b'"k":  5'),
    "a line": (b"{\n", b"{\n\n"),
    "an escape": (b'"rule"', b'"r\\u0075le"'),
    "something behind it": (b"\n}\n", b"\n}\n\n"),
}


@pytest.mark.parametrize(("before", "after"), SPELLINGS.values(), ids=SPELLINGS)
def test_a_manifest_has_one_spelling(tmp_path, contents, before, after):
    """However the checksums are: what another reader would read differently is refused."""
    text = contents["manifest.json"]
    assert before in text
    pack(tmp_path / "x.iknow", contents | {"manifest.json": text.replace(before, after, 1)})
    with pytest.raises(BundleError, match=r"manifest\.json is damaged"):
        read_bundle(tmp_path / "x.iknow", verify=False)


def test_a_manifest_is_refused_by_its_size_before_it_takes_memory(tmp_path, contents):
    """A sparse file: 8 GB that take no room, and must take none here."""
    write_sparse(tmp_path / "x.iknow", [("manifest.json", b"", 8 << 30)])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(BundleError, match=r"manifest\.json is damaged: it may have"):
        read_bundle(tmp_path / "x.iknow")
    if sys.platform.startswith("linux"):
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 500_000  # in kB


# Manifests with wrong values


def set_at(path, value):
    """An edit of a manifest that sets the value at a path of keys."""

    def edit(manifest):
        for key in path[:-1]:
            manifest = manifest[key]
        manifest[path[-1]] = value

    return edit


SELECTION = ("selection",)
WRONG = {
    ("format",): [9.0, "9", None, True],
    ("iknow",): [None, 1],
    ("classes",): [None, [], {}, {"kind": "int64", "values": [0, 1, 2], "more": 1}],
    ("classes", "kind"): ["O", "float128", "str", "V8", "uint8,f4", "bool", None, 1, "datetime64"],
    ("classes", "values"): [
        *([], [0], [0, 1, 1], [0, 1, 2.5], [0, 1, None], [0, 1, True], "012", {"0": 1}),
        *([0, 1, 1 << 63], [0, 1, [2]]),
    ],
    ("layers",): [None, [], {}, {"a": None}, {"c": {}}],
    ("layers", "a"): [None, {}, []],
    ("layers", "a", "metric"): [None, {}, [], {"metric": "Minkowski"}, {"metric": "Weighted"}]
    + [{"metric": "Minkowski", "p": p} for p in (0, -1, 0.5, "x", None, True, [2], {"p": 2})]
    + [{"metric": ["Minkowski"], "p": 2}, {"metric": "Minkowski", "p": 2, "more": 1}]
    + [{"metric": "Cosine", "more": 1}, {"metric": "Scaled"}, {"metric": "Whitened"}]
    + [{"metric": "Whitened", "shrinkage": s} for s in (None, 0.5, 2, "x")],
    ("layers", "a", "metric_arrays"): [None, "map", ["map"], ["../../etc/passwd"], [1], [""]],
    ("layers", "b", "metric_arrays"): [[], ["map", "map"], ["other"]],
    ("layers", "b", "metric"): [{"metric": "Minkowski", "p": 2.0}],
    ("layers", "a", "neighborhood"): [None, 1, [], {}, {"rule": "Ball"}, {"rule": []}]
    + [{"rule": "Ball", "radius": r} for r in (-1, None, "1", [], [1, 1], [[1]], [1, [1, 2]], True)]
    + [{"rule": "Ball", "radius": [1, -1, 1]}, {"rule": "Ball", "radius": {"float": "nan"}}]
    + [{"rule": "Nearest", "k": k} for k in (0, -1, 1.5, None, "3", 61, 1 << 63, True)]
    + [{"rule": "RelativeBall", "radius": 1, "ratio": r} for r in (-0.5, None, {"float": "inf"})]
    + [{"rule": "Ball", "radius": 1, "quorum": q} for q in (0, [1], [1, 0], "1", None, 1 << 40)]
    + [{"rule": "__class__"}, {"rule": "Ball", "radius": 1, "self": 2}],
    ("probe",): [None, {}, ["missing"], [1], [["a"]]],
    ("settings",): [None, [], {}, "x"],
    ("settings", "probe"): [None, 1, [], {}, {"inputs": {}, "tolerances": [1]}],
    ("settings", "rule"): ["Everything", None, 1, ["Ball"], "__class__"],
    ("settings", "layers"): [None, 1, ["a"]],
    ("settings", "fixed"): [1, "yes", "both", ["one"], {}, True],
    ("settings", "metric"): ["each", ["c"], [1], {}, True, [["a"]]],
    ("settings", "classes"): [None, [0, 1, 2]],
    ("settings", "validation_fraction"): [None, "x", True, [0.5]],
    ("settings", "random_state"): [-1, 0.5, "x", True],
    ("settings", "progress"): [None, 1],
    ("settings", "quorum"): [0, -1, 1.5, True, "3", [], [1], [1, 2, 3], [1, None], 1 << 40],
    ("settings", "k"): [0, -1, None, 2.5, True, "5"],
    ("settings", "batch_size"): [0, -5, 1.5, "x", True],
    ("settings", "n_features_in"): [-1, "x", 1.5],
    ("settings", "feature_names_in"): [{}, "names", [1], [None]],
    ("settings", "about"): [None, 1, [], {}, "x"],
    ("settings", "about", "name"): [1, [], "two\nlines", "\x1b[2J", "\u202e", "\ud800", "x" * 201],
    ("settings", "about", "note"): [None, 1, [], "\x1b[2J", "\r", "\x85", "x" * 20_001],
    ("settings", "about", "created"): [
        *(None, 1, "", "today", "2026-01-31", "2026-13-31T00:00:00Z", "2026-01-31T00:00:00"),
        *("2026-01-31T00:00:00+05:00", "2026-01-31T00:00:00Z\n", "٢٠٢٦-01-31T00:00:00Z"),
    ],
    ("settings", "about", "model"): [None, 1, "a\nb", "\x1b", "x" * 201],
    ("settings", "about", "per_class"): [
        *(None, {}, [], [60], [20, 20, 19], [20, 20, 20, 0], [20, 20, 20.0], [61, -1, 0]),
        *([True, 39, 20], [None, 40, 20], 1 << 63, "20"),
    ],
    ("settings", "about", "inputs"): [
        *(1, [], [3], {"X": 3}, {"X": [-1]}, {"X": [1.5]}, {"X": None}, {"a\nb": [1]}),
        *({"x" * 201: [1]}, {"X": [1] * 33}, {str(i): [] for i in range(1001)}),
    ],
    ("settings", "reading"): [None, 1, [], {}],
    ("settings", "reading", "pool"): [
        *(1.5, True, [], ["mean"], {}, {"a": None}, {"a": {"b": "c"}}, "x" * 20_001)
    ],
    ("settings", "reading", "scores"): [1.5, False, ["logits"], {"": []}],
    ("settings", "reading", "embed"): ["fn", 1, {"a": "b"}],
    ("settings", "reading", "functions"): [
        *(None, {}, "pool", ["model"], ["pool", "pool"], [1], ["embed", "pool"], [["pool"]])
    ],
    ("settings", "reading", "more"): [1],
    SELECTION: [1, [], {}, "x"],
    (*SELECTION, "coverage"): ["1", None, [], True],
    (*SELECTION, "accuracy"): ["1", [], {}],
    (*SELECTION, "n_samples"): [1.5, "3", None],
    (*SELECTION, "optimal"): [1, None],
    (*SELECTION, "method"): [1, None],
    (*SELECTION, "neighborhoods"): [None, [], {}, {"a": {"rule": "Ball", "radius": 1}}],
    (*SELECTION, "neighborhoods", "a"): [None, {"rule": "Ball", "radius": -1}],
    (*SELECTION, "certificate"): [1, [], {}, {"accuracy": 0.5}],
    (*SELECTION, "certificate", "bound"): ["x", None, []],
    (*SELECTION, "certificate", "known"): [0.5, None],
    (*SELECTION, "certificate", "by_class"): [1, [], {"0": "x"}],
    (*SELECTION, "certificate", "more"): [1],
    (*SELECTION, "curves"): [{}, 1],
    ("arrays",): [None, [], {}, {"labels.npy": "0" * 64}],
    ("arrays", "labels.npy"): [None, 1, "", "0" * 64, ["0" * 64]],
    ("more",): [1],
}
CASES = [(path, value) for path, values in WRONG.items() for value in values]


@pytest.mark.parametrize("path", WRONG, ids=".".join)
def test_a_wrong_value_in_a_sealed_manifest_is_refused(tmp_path, contents, path):
    for value in WRONG[path]:
        manifest = json.loads(contents["manifest.json"])
        set_at(path, value)(manifest)
        pack(tmp_path / "x.iknow", contents | {"manifest.json": write_manifest(manifest)})
        assert use(tmp_path / "x.iknow") is not None, value


def test_a_missing_entry_in_a_sealed_manifest_is_refused(tmp_path, contents):
    def find_entries(record, path=()):
        for key, value in record.items() if isinstance(record, dict) else ():
            yield (*path, key)
            yield from find_entries(value, (*path, key))

    original = json.loads(contents["manifest.json"])
    entries = list(find_entries(original))
    assert len(entries) > 40
    for path in entries:
        manifest = copy.deepcopy(original)
        record = manifest
        for key in path[:-1]:
            record = record[key]
        del record[path[-1]]
        pack(tmp_path / "x.iknow", contents | {"manifest.json": write_manifest(manifest)})
        if "by_class" not in path[:-1]:
            assert use(tmp_path / "x.iknow") is not None, path


NASTY = [None, True, False, 0, 1, -1, 2, 1 << 63, -(1 << 63), 0.5, 1e308, -0.0, "", "x", "\0", "..",
         "/etc/passwd", "\ud800", "x" * 1000, [], {}, [[]], [None], [0, 1], {"": None}, {"a": {}},
         {"float": "inf"}, {"float": "nan"}, ["a", 1], "Ball", "a", "b", 60, 61]  # fmt: skip


def mutate(value, chance):
    """The same JSON with something in it replaced, removed, added or moved."""
    if chance.random() < 0.01:
        return copy.deepcopy(chance.choice(NASTY))
    if isinstance(value, dict):
        found = {key: mutate(each, chance) for key, each in value.items()}
        if found and chance.random() < 0.01:
            del found[chance.choice(list(found))]
        if chance.random() < 0.01:
            found[chance.choice(["", "a", "more", "float", *found])] = chance.choice(NASTY)
        return found
    if isinstance(value, list):
        found = [mutate(each, chance) for each in value]
        if found and chance.random() < 0.05:
            found.append(chance.choice(found))
        return found
    return value


@pytest.mark.parametrize("n", [100, pytest.param(5_000, marks=pytest.mark.slow)])
def test_any_mutation_of_a_sealed_manifest_is_refused_or_harmless(tmp_path, contents, n):
    original = json.loads(contents["manifest.json"])
    chance = random.Random(n)
    n_refused = 0
    for _ in range(n):
        manifest = {key: mutate(value, chance) for key, value in original.items()}
        pack(tmp_path / "x.iknow", contents | {"manifest.json": write_manifest(manifest)})
        try:
            n_refused += use(tmp_path / "x.iknow", verify=False) is not None
        except InputError as error:  # of the queries, which fit other labels or layers no more
            n_refused += "column" in str(error) or "has no layer" in str(error)
    assert 0.2 * n < n_refused < 0.9 * n


# What the model is known by


@pytest.mark.parametrize("n", [100, pytest.param(3_000, marks=pytest.mark.slow)])
@pytest.mark.filterwarnings("ignore:.*cannot tell whether this is the model")
def test_any_mutation_of_a_probe_is_refused_or_harmless(tmp_path, n):
    path = tmp_path / "x.iknow"
    (_, layers), y = make_outputs(0)
    model = LogisticRegression().fit(layers["b"], y)
    classifier = EpistemicClassifier(FrozenEstimator(model), rule=Ball(1.0))
    classifier.fit(layers["b"], y).save(path)
    contents = unpack(path)
    original = json.loads(contents["manifest.json"])
    probes = [name for name in contents if name.startswith("probe/")]
    arrays = [np.zeros(0), np.array(3), np.ones((60, 4)), np.array(["x"] * 32), np.ones((32, 3)),
              np.full((32, 3), np.nan), np.array(["2020"], dtype="M8[Y]"), np.ones((32, 0)),
              np.full(32, 1 << 62), np.full(32, -1), np.ones((1, 1, 1, 1))]  # fmt: skip
    chance = random.Random(n)
    n_refused = 0
    for _ in range(n):
        manifest = copy.deepcopy(original)
        changed = dict(contents)
        if chance.random() < 0.5:
            for _ in range(20):
                manifest["settings"]["probe"] = mutate(manifest["settings"]["probe"], chance)
        else:
            name = chance.choice(probes)
            changed[name] = b"".join(encode_array(chance.choice(arrays)))
            manifest["arrays"][name] = hashlib.sha256(changed[name]).hexdigest()
        pack(path, changed | {"manifest.json": write_manifest(manifest)})
        try:
            EpistemicClassifier.load(path, FrozenEstimator(model)).assess(layers["b"])
        except BundleError:
            n_refused += 1
    assert 0.3 * n < n_refused < n


# Arrays


@pytest.mark.parametrize(
    "header",
    [
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (60, 2), 'more': 1, }",
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (-60, -2), }",
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (0, 99999999999999999999), }",
        b"{'descr': '<f4', 'fortran_order': False, 'shape': (3037000500, 3037000500), }",
        b"{'descr': '<f4', 'fortran_order': False, 'shape': " + b"(" * 5000 + b"}",
        b"{'descr': '|O', 'fortran_order': False, 'shape': (60, 2), }",
        b"{'descr': '<V4', 'fortran_order': False, 'shape': (60, 2), }",
        b"{'descr': '<f3', 'fortran_order': False, 'shape': (60, 2), }",
        b"{'descr': '<U0', 'fortran_order': False, 'shape': (60, 2), }",
        b"{'descr': '<M8[zz]', 'fortran_order': False, 'shape': (60, 2), }",
        b"{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (60, 2), }",
        b"{'descr': '<f4', 'fortran_order': True, 'shape': (60, 2), }",
        b"__import__('os').abort()",
        b"",
    ],
)
@pytest.mark.parametrize("sized", [True, False])
def test_a_header_that_numpy_does_not_write_is_refused(tmp_path, contents, header, sized):
    filled = header + b" " * (-(10 + len(header) + 1) % 64) + b"\n"
    array = b"\x93NUMPY\x01\x00" + struct.pack("<H", len(filled)) + filled
    array += bytes(480) if sized else b""
    pack(tmp_path / "x.iknow", contents | {"layers/a/activations.npy": array})
    assert "layers/a/activations.npy cannot be read" in use(tmp_path / "x.iknow", verify=False)


def reseal(contents, arrays):
    """The same bundle with other arrays and checksums that are right for them."""
    manifest = json.loads(contents["manifest.json"])
    encoded = {name: b"".join(encode_array(array)) for name, array in arrays.items()}
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in encoded.items()}
    manifest["arrays"] |= sums
    return contents | encoded | {"manifest.json": write_manifest(manifest)}


@pytest.mark.parametrize(
    ("name", "array"),
    [
        ("layers/b/metric-map.npy", np.full((4, 3), np.nan)),
        ("layers/b/metric-map.npy", np.ones((4, 2))),
        ("layers/b/metric-map.npy", np.ones(4)),
        ("layers/b/metric-map.npy", np.ones((4, 3), dtype=np.float32)),
        ("layers/b/metric-map.npy", np.full((4, 3), "x")),
        ("layers/a/activations.npy", np.full((60, 2), np.inf, dtype=np.float32)),
        ("layers/a/activations.npy", np.ones((60, 2), dtype=np.float64)),
        ("layers/a/activations.npy", np.ones((60, 2, 1), dtype=np.float32)),
        ("layers/a/activations.npy", np.ones((59, 2), dtype=np.float32)),
        ("labels.npy", np.arange(60)),
        ("labels.npy", np.arange(60)[::-1] // 20),
        ("labels.npy", np.array(0)),
        ("labels.npy", np.zeros(60, dtype=np.uint64)),
        ("rows.npy", np.zeros(60, dtype=np.int64)),
        ("rows.npy", -np.arange(60)),
    ],
)
def test_arrays_that_do_not_fit_are_refused_though_their_checksums_are_right(
    tmp_path, contents, name, array
):
    pack(tmp_path / "x.iknow", reseal(contents, {name: array}))
    assert use(tmp_path / "x.iknow") is not None


def test_the_ways_of_resealing_are_right(tmp_path, contents):
    """So that what is refused here is refused for its own sake."""
    pack(tmp_path / "x.iknow", reseal(contents, {"rows.npy": 7 * np.arange(60)}))
    assert use(tmp_path / "x.iknow") is None
    manifest = json.loads(contents["manifest.json"])
    manifest["settings"]["k"] = 7
    pack(tmp_path / "x.iknow", contents | {"manifest.json": write_manifest(manifest)})
    assert use(tmp_path / "x.iknow") is None


def test_text_that_is_none_is_refused(tmp_path, contents):
    """numpy stores any number as a character, and Python fails in odd ways on those."""
    text = np.frombuffer(np.array([0x110000, 65], dtype="<u4").tobytes(), dtype="<U2")
    manifest = json.loads(contents["manifest.json"])
    for values, refused in ((text, True), (np.array([chr(0x10FFFF)]), False)):
        encoded = b"".join(encode_array(values))
        manifest["probe"] = ["x"]
        manifest["arrays"]["probe/x.npy"] = hashlib.sha256(encoded).hexdigest()
        told = {"manifest.json": write_manifest(manifest), "probe/x.npy": encoded}
        pack(tmp_path / "x.iknow", contents | told)
        assert ("no characters" in (use(tmp_path / "x.iknow", verify=False) or "")) == refused


def test_a_bundle_without_rows_or_features_is_refused(tmp_path, contents):
    for n_rows, n_features in [(0, 2), (60, 0), (0, 0), (0, 10**17)]:
        arrays = {
            "labels.npy": np.sort(np.arange(n_rows) % 3),
            "rows.npy": np.arange(n_rows),
            "layers/a/activations.npy": np.zeros((n_rows, n_features), dtype=np.float32),
            "layers/b/activations.npy": np.zeros((n_rows, 3), dtype=np.float32),
        }
        pack(tmp_path / "x.iknow", reseal(contents, arrays))
        assert "at least one" in use(tmp_path / "x.iknow")


# Archives


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_an_archive_of_another_writer_is_refused(tmp_path, contents, method):
    with zipfile.ZipFile(tmp_path / "x.iknow", "w", method) as file:
        for name, content in contents.items():
            file.writestr(name, content)
    assert "is not a bundle" in use(tmp_path / "x.iknow")


def test_two_contents_of_one_name_are_refused(tmp_path, contents):
    pack(tmp_path / "x.iknow", contents | {"rows.npx": contents["rows.npy"]})
    whole = (tmp_path / "x.iknow").read_bytes()
    marks, frame = whole[:START], whole[START:].replace(b"rows.npx", b"rows.npy")
    with pytest.raises(BundleError, match="the same name"):
        seal_frame(marks + frame)
    (tmp_path / "x.iknow").write_bytes(marks + frame)
    assert "the same name" in use(tmp_path / "x.iknow")


@pytest.mark.parametrize("which", [1, 2])
def test_a_content_has_the_same_name_for_every_reader(tmp_path, contents, which):
    """Some read the directory, others the headers. The first occurrence is in the manifest."""
    path = tmp_path / "x.iknow"
    pack(path, contents)
    parts = path.read_bytes().split(b"rows.npy")
    parts[which] += b"more.npy" + parts.pop(which + 1)
    path.write_bytes(b"rows.npy".join(parts))
    with pytest.raises(BundleError, match="is not stored as it must be"):
        seal_frame(path.read_bytes())


def test_the_order_of_contents_does_not_matter(tmp_path, contents):
    first, *others = contents.items()
    pack(tmp_path / "x.iknow", dict([first, *reversed(others)]))
    assert use(tmp_path / "x.iknow") is None


def frame_of(path):
    """Every place in a bundle's ZIP that is in no content."""
    opened = open_file(path)
    inside = {i for place in opened.places.values() for i in range(place.start, place.stop)}
    return [i for i in range(START, opened.marks.last.zip_end) if i not in inside]


def test_every_flipped_bit_around_the_contents_is_noticed(tmp_path, contents):
    """Each bit of each byte of headers, padding and directory, with all checksums as they were."""
    path = tmp_path / "x.iknow"
    pack(path, contents)
    whole, places = path.read_bytes(), frame_of(path)
    assert len(places) > 1_000
    with path.open("r+b", buffering=0) as file:
        for place in places:
            for value in [whole[place] ^ 1 << bit for bit in range(8)] + [whole[place]]:
                file.seek(place)
                file.write(bytes([value]))
                if value != whole[place]:
                    with pytest.raises(BundleError, match="is damaged"):
                        open_file(path)
    assert use(path) is None


@pytest.mark.parametrize("n", [1_000, pytest.param(50_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("sealed", [True, False])
def test_any_mutation_around_the_contents_is_refused_or_harmless(tmp_path, contents, n, sealed):
    """Several bytes at a time, where numbers are: sizes, counts and places that agree or not."""
    path = tmp_path / "x.iknow"
    pack(path, contents)
    whole, spots = path.read_bytes(), frame_of(path)
    chance, n_accepted = random.Random(n), 0
    for _ in range(n):
        changed = bytearray(whole)
        for _ in range(chance.randint(1, 3)):
            spot = chance.choice(spots)
            filling = chance.choice([b"\0", b"\xff", b"\x7f", chance.randbytes(1)])
            filling *= chance.choice([1, 2, 4, 8])
            changed[spot : spot + len(filling)] = filling
        changed = bytes(changed[: len(whole)]).ljust(len(whole), b"\0")
        if changed == whole:
            continue
        try:
            path.write_bytes(seal_frame(changed) if sealed else changed)
            read_bundle(path, verify="now")
        except BundleError:
            continue
        n_accepted += 1
        assert unpack(path) == contents
    assert (n_accepted > 0) == sealed


def test_what_lies_around_the_contents_takes_little_memory(tmp_path, contents):
    """A directory that claims to be as large as a sparse file of 8 GB, or padding that is."""
    path = tmp_path / "x.iknow"
    pack(path, contents)
    whole = path.read_bytes()
    end = whole.rindex(b"PK\x05\x06")
    large = 0xFFFFFFF0.to_bytes(4, "little")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    lying = whole[: end + 12] + large + bytes(4) + whole[end + 20 :]
    with pytest.raises(BundleError, match="its directory is damaged"):
        read_zip(lambda start, stop: lying[start:stop], START, len(lying))
    with path.open("w+b") as file:
        file.seek(8 << 30)
        write_zip(file, [("a", [b"b"])])
        end = file.tell()

        def read(start, stop):
            file.seek(start)
            return file.read(stop - start)

        with pytest.raises(BundleError, match=f"more than {LARGEST_FRAME:,} bytes around"):
            read_zip(read, START, end)
    if sys.platform.startswith("linux"):
        assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000  # in kB


def test_contents_beyond_four_gigabytes_are_found_by_others_too(tmp_path):
    """A sparse file; the oracle is Python's zipfile."""
    contents = [("manifest.json", b"abc", 0), ("large", b"", 5 << 30), ("last", b"here", 0)]
    write_sparse(tmp_path / "x", contents)
    with zipfile.ZipFile(tmp_path / "x") as opened:
        assert [(i.filename, i.file_size) for i in opened.infolist()] == [
            (name, len(start) + more) for name, start, more in contents
        ]
        assert opened.read("manifest.json") == b"abc"
        assert opened.read("last") == b"here"
    place = place_of(tmp_path / "x", "last")
    with (tmp_path / "x").open("rb") as file:
        file.seek(place.start)
        assert file.read().startswith(b"here")
    assert place.start % 64 == 0
    assert place.start > 5 << 30


# Rules that need more than there is


def test_a_rule_that_asks_for_more_neighbors_than_rows_is_refused_on_load(tmp_path):
    X, y = make_outputs(0)
    classifier = EpistemicClassifier(PrecomputedModel(), rule=BallElseNearest(1.0, 60))
    classifier.fit(X, y).save(tmp_path / "x.iknow")
    assert read_bundle(tmp_path / "x.iknow").neighborhoods["a"].k == 60
