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
from iknow.storage.archive import Entry, lay_out, read_archive, write_archive
from iknow.storage.bundle import read_bundle
from iknow.storage.manifest import LARGEST, read_manifest, write_manifest
from tests.storage.test_bundle import pack, unpack


def make_outputs(seed):
    rng = np.random.default_rng(seed)
    y = np.arange(60) % 3
    a = 3.0 * y[:, None] + rng.normal(size=(60, 2))
    return (np.eye(3)[y], {"a": a, "b": np.hstack([a, -a])}), y


@pytest.fixture(scope="module")
def contents(tmp_path_factory):
    """The contents of a bundle with all there is: a metric with an array, a certificate."""
    path = tmp_path_factory.mktemp("bundle") / "x.iknow"
    classifier = EpistemicClassifier(
        PrecomputedModel(), rule=Ball, metric={"b": Weighted(np.eye(4)[:, :3])}
    )
    X, y = make_outputs(1)
    many = (np.tile(X[0], (10, 1)), {layer: np.tile(v, (10, 1)) for layer, v in X[1].items()})
    classifier.fit(*make_outputs(0)).tune(many, np.tile(y, 10), accuracy=0.5, each_class=True)
    classifier.save(path)
    found = unpack(path)
    assert "layers/b/metric-map.npy" in found
    assert read_manifest(found["manifest.json"])["settings"]["selection"]["certificate"]
    return found


def seal(body):
    """A manifest's text of any bytes, with the checksum that belongs to it."""
    return body + b',\n"sha256": "' + hashlib.sha256(body).hexdigest().encode() + b'"\n}\n'


def seal_text(manifest):
    """The text of any JSON, sealed, without any of the writer's own checks."""
    return seal(json.dumps(manifest).encode()[:-1])


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


TEXTS = {
    "nothing": b"",
    "a word": b"hello",
    "not sealed": b"{}",
    "not UTF-8": seal(b'{"format": "\xff"'),
    "a byte order mark": seal(b'\xef\xbb\xbf{"format": 8'),
    "a list": b"[" + seal(b"1"),
    "no entry": seal(b"{"),
    "deep lists": seal(b'{"format": 8, "x": ' + b"[" * 1_000_000),
    "deep objects": seal(b'{"format": 8, "x": ' + b'{"a":' * 1_000_000),
    "deep and closed": seal(b'{"format": 8, "x": ' + b"[" * 500_000 + b"]" * 500_000),
    "many values": seal(b'{"format": 8, "x": [' + b"[]," * 3_000_000 + b"[]]"),
    "unended string": seal(b'{"format": 8, "x": "' + b'\\"' * 1_000_000),
    "a key twice": seal(b'{"format": 8, "format": 8'),
    "NaN": seal(b'{"format": NaN'),
    "Infinity": seal(b'{"format": -Infinity'),
    "a large integer": seal(b'{"format": ' + b"9" * 5000),
    "a large number": seal(b'{"format": 1e999'),
    "another number": seal(b'{"format": {"float": "1e9"}'),
    "too long": seal(b'{"format": 8, "x": "' + b"x" * LARGEST + b'"'),
}


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
def test_a_text_that_is_no_manifest_is_refused(tmp_path, contents, text):
    pack(tmp_path / "x.iknow", contents | {"manifest.json": text})
    with pytest.raises(BundleError, match=r"manifest\.json is damaged"):
        read_bundle(tmp_path / "x.iknow", verify=False)


def test_a_manifest_is_refused_by_its_size_before_it_takes_memory(tmp_path, contents):
    """A sparse file: 8 GB that take no room, and must take none here."""
    size = 8 << 30
    layout = lay_out([Entry("manifest.json", size, 0)])
    with (tmp_path / "x.iknow").open("wb") as file:
        file.write(layout.headers[0])
        file.seek(layout.end)
        file.write(layout.ends)
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


SELECTION = ("settings", "selection")
WRONG = {
    ("format",): [8.0, "8", None, True],
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
        del manifest["sha256"]
        set_at(path, value)(manifest)
        pack(tmp_path / "x.iknow", contents | {"manifest.json": seal_text(manifest)})
        assert use(tmp_path / "x.iknow") is not None, value


def test_a_missing_entry_in_a_sealed_manifest_is_refused(tmp_path, contents):
    def find_entries(record, path=()):
        for key, value in record.items() if isinstance(record, dict) else ():
            yield (*path, key)
            yield from find_entries(value, (*path, key))

    original = json.loads(contents["manifest.json"])
    del original["sha256"]
    entries = list(find_entries(original))
    assert len(entries) > 40
    for path in entries:
        manifest = copy.deepcopy(original)
        record = manifest
        for key in path[:-1]:
            record = record[key]
        del record[path[-1]]
        pack(tmp_path / "x.iknow", contents | {"manifest.json": seal_text(manifest)})
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
    del original["sha256"]
    chance = random.Random(n)
    n_refused = 0
    for _ in range(n):
        manifest = {key: mutate(value, chance) for key, value in original.items()}
        pack(tmp_path / "x.iknow", contents | {"manifest.json": seal_text(manifest)})
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
    del original["sha256"]
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
        pack(path, changed | {"manifest.json": seal_text(manifest)})
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
    manifest = read_manifest(contents["manifest.json"])
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
    del manifest["sha256"]
    manifest["settings"]["k"] = 7
    pack(tmp_path / "x.iknow", contents | {"manifest.json": seal_text(manifest)})
    assert use(tmp_path / "x.iknow") is None


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
    pairs = [*contents.items(), ("rows.npy", contents["rows.npy"])]
    with (tmp_path / "x.iknow").open("wb") as file:
        write_archive(file, [(name, [content]) for name, content in pairs])
    assert "the same name" in use(tmp_path / "x.iknow")


def test_the_manifest_must_come_first(tmp_path, contents):
    pack(tmp_path / "x.iknow", dict(reversed(contents.items())))
    assert r"manifest.json is missing" in use(tmp_path / "x.iknow")


@pytest.mark.parametrize("n", [1_000, pytest.param(50_000, marks=pytest.mark.slow)])
def test_any_mutation_of_the_archives_headers_is_refused(tmp_path, contents, n):
    """Several bytes at a time, where numbers are: sizes, counts and places that agree or not."""
    path = tmp_path / "x.iknow"
    pack(path, contents)
    whole = path.read_bytes()
    entries = [Entry(name, len(content), 0) for name, content in contents.items()]
    layout = lay_out(entries)
    spots = [*range(layout.end, layout.end + len(layout.ends))]
    for header, start in zip(layout.headers, layout.starts, strict=True):
        spots += range(start - len(header), start)
    chance = random.Random(n)
    for _ in range(n):
        changed = bytearray(whole)
        for _ in range(chance.randint(1, 3)):
            spot = chance.choice(spots)
            filling = chance.choice([b"\0", b"\xff", b"\x7f", chance.randbytes(1)])
            changed[spot : spot + chance.choice([1, 2, 4, 8])] = filling
        changed = changed[: len(whole)].ljust(len(whole), b"\0")
        if changed == whole:
            continue
        path.write_bytes(changed)
        with pytest.raises(BundleError, match=r"is not a bundle|its marks are missing"):
            read_bundle(path, verify=False)


def test_contents_beyond_four_gigabytes_are_found_by_others_too(tmp_path):
    """A sparse file; the oracle is Python's zipfile."""
    entries = [Entry("first", 3, 0x352441C2), Entry("large", 5 << 30, 0), Entry("last", 4, 0)]
    entries[2] = entries[2]._replace(crc=zipfile.crc32(b"here"))
    layout = lay_out(entries)
    with (tmp_path / "x").open("wb") as file:
        for header, start, content in zip(
            layout.headers, layout.starts, (b"abc", b"", b"here"), strict=True
        ):
            assert start % 64 == 0
            file.seek(start - len(header))
            file.write(header + content)
        file.seek(layout.end)
        file.write(layout.ends)
    with zipfile.ZipFile(tmp_path / "x") as opened:
        assert [(i.filename, i.file_size) for i in opened.infolist()] == [
            (entry.name, entry.size) for entry in entries
        ]
        assert opened.read("first") == b"abc"
        assert opened.read("last") == b"here"
    with (tmp_path / "x").open("rb") as file:

        def read(start, stop):
            file.seek(start)
            return file.read(stop - start)

        places = read_archive(read, (tmp_path / "x").stat().st_size)
        assert read(places["last"].start, places["last"].stop) == b"here"
        assert places["large"].stop - places["large"].start == 5 << 30


# Rules that need more than there is


def test_a_rule_that_asks_for_more_neighbors_than_rows_is_refused_on_load(tmp_path):
    X, y = make_outputs(0)
    classifier = EpistemicClassifier(PrecomputedModel(), rule=BallElseNearest(1.0, 60))
    classifier.fit(X, y).save(tmp_path / "x.iknow")
    assert read_bundle(tmp_path / "x.iknow").neighborhoods["a"].k == 60
