"""A folder of good and hostile files for the fuzz of the command line."""

import os
import pickle
import struct
import zipfile
import zlib

import joblib
import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from typer.testing import CliRunner

from iknow import EpistemicClassifier
from iknow.cli.app import app
from tests.tables.making import write_table

EVIL_TEXT = (
    "[/red]", "[bold", "\x1b[31mred\x1b[0m", "\u202egpj.exe", "=1+1", "-", "", " ", "a\nb", "\x07",
    "\\", "🦉", "é", "[link=x]", "a" * 3000, "%s{}", "'", '"', "--", "\u2028", "\ufeff",
)  # fmt: skip
MODELS = {
    "raises.py": "1 / 0\n",
    "exits.py": "import sys\nsys.exit(7)\n",
    "huge.py": "raise ValueError('x' * 9_000_000)\n",
    "markup.py": "raise ValueError('[/red] \\x1b[31m \\u202e')\n",
    "loops.py": "def model():\n    return model()\n",
    "syntax.py": "def (\n",
    "makes.py": (
        "class Odd:\n"
        "    classes_ = [0, 1]\n"
        "    n_features_in_ = 4\n"
        "    def fit(self, X, y): return self\n"
        "    def predict(self, X): raise RuntimeError('\\x1b[31m[/red]' * 1000)\n"
        "    def predict_proba(self, X): raise KeyError('nothing')\n"
        "def odd(): return Odd()\n"
        "def nothing(): return None\n"
        "def number(): return 3\n"
        "def fails(): raise OSError(5, 'of its own')\n"
        "text = 'not a model'\n"
    ),
}


class Bomb:
    """A pickle that fails in a way of its own."""

    def __init__(self, error):
        self.error = error

    def __reduce__(self):
        return (_explode, (self.error,))


def _explode(kind):
    raise {"memory": MemoryError, "exit": SystemExit, "key": KeyError}[kind]("\x1b[31m" * 500)


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    """A folder of good and hostile files. `out` is the only place that may change."""
    root = tmp_path_factory.mktemp("world")
    X, y = load_iris(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(X))
    X, y = X[order], load_iris().target_names[y[order]]
    before = os.getcwd()
    os.chdir(root)
    try:
        model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X[:80], y[:80])
        joblib.dump(model, "model.joblib")
        _write_tables(root, X, y, model)
        _write_hostile(root, X, y)
        (root / "out").mkdir()
        (root / "out" / "old.csv").write_text("kept\n")
        (root / "out" / "old.html").write_text("kept\n")
        joblib.dump(model, root / "out" / "old.joblib")
        yield root
    finally:
        os.chdir(before)


def _write_tables(root, X, y, model):
    for part, rows in {
        "train": slice(0, 80),
        "val": slice(80, 120),
        "test": slice(120, 150),
    }.items():
        columns = {f"f{i}": X[rows, i] for i in range(4)} | {"kind": y[rows]}
        write_table(root / f"{part}.csv", columns)
        for ending in ("parquet", "jsonl", "arrow"):
            write_table(root / f"{part}.{ending}", columns)
        np.savez(root / f"{part}.npz", X=X[rows], y=y[rows])
        np.save(root / f"{part}.npy", X[rows])
        np.save(root / f"{part}_labels.npy", y[rows])
        layers = {"layer:a": X[rows], "layer:[/b]\x1b": X[rows]}
        scores = model.predict_proba(X[rows])
        np.savez(
            root / f"{part}_made.npz", scores=scores, y=y[rows], classes=model.classes_, **layers
        )
    good = CliRunner().invoke(app, [
        "fit", "train.npz", "--validation", "val.npz", "--model", "model.joblib", "-o", "b.iknow",
    ])  # fmt: skip
    assert good.exit_code == 0, good.stderr
    made = ["fit", "train_made.npz", "--validation", "val_made.npz", "-o", "made.iknow"]
    assert CliRunner().invoke(app, made).exit_code == 0
    EpistemicClassifier(FrozenEstimator(model), progress=False).fit(X[:80], y[:80]).save(
        root / "untuned.iknow"
    )


def npy(shape, kind="<f8", data=b"", version=1):
    head = repr({"descr": kind, "fortran_order": False, "shape": shape}).encode() + b"\n"
    size = struct.pack("<H" if version == 1 else "<I", len(head))
    return b"\x93NUMPY" + bytes([version, 0]) + size + head + data


def _write_hostile(root, X, y):
    def sparse(name, head, size):
        with (root / name).open("wb") as file:
            file.write(head)
            file.truncate(size)

    def archive(name, **members):
        with zipfile.ZipFile(root / name, "w", zipfile.ZIP_DEFLATED) as file:
            for member, content in members.items():
                file.writestr(f"{member}.npy", content)

    for name, text in MODELS.items():
        (root / name).write_text(text)
    (root / "junk.joblib").write_bytes(b"junk")
    for kind in ("memory", "exit", "key"):
        (root / f"bomb_{kind}.pkl").write_bytes(pickle.dumps(Bomb(kind)))
    joblib.dump({"not": "a model"}, root / "dict.joblib")
    joblib.dump(LogisticRegression(), root / "unfitted.joblib")
    joblib.dump(LogisticRegression().fit(X[:, :2], y), root / "narrow.joblib")
    (root / "text.pt").write_bytes(b"not torch")
    for name in ("text.onnx", "text.json", "text.txt", "text.cbm"):
        (root / name).write_bytes(b"not a model")

    sparse("h_sparse.npy", npy((10**11,)), 8 * 10**11)
    sparse("h_sparse.csv", b"f0,f1,f2,f3,kind\n", 4 * 10**11)
    (root / "h_claims.npy").write_bytes(npy((10**15, 4), data=b"\0" * 64))
    (root / "h_negative.npy").write_bytes(npy((-1, 4), data=b"\0" * 64))
    (root / "h_width0.npy").write_bytes(npy((10**15,), "<U0"))
    (root / "h_subarray.npy").write_bytes(npy((2,), ("<f8", (10**12,)), data=b"\0" * 64))
    (root / "h_object.npy").write_bytes(npy((1,), "|O", data=pickle.dumps([Bomb("key")])))
    (root / "h_text.npy").write_bytes(npy((3, 4), "<U2", data=b"\0" * 96))
    (root / "h_points.npy").write_bytes(npy((3,), "<U1", data=b"\xff" * 12))
    (root / "h_surrogate.npy").write_bytes(npy((30,), "<U1", data=struct.pack("<I", 0xD800) * 30))
    (root / "h_head.npy").write_bytes(npy((1,), data=b"", version=2)[:8] + b"\xff\xff\xff\x7f")
    (root / "h_huge.npy").write_bytes(b"")
    np.save(root / "h_huge.npy", np.full((30, 4), np.finfo(np.longdouble).max))
    np.save(root / "h_nan.npy", np.full((30, 4), np.nan))
    np.save(root / "h_scalar.npy", np.float64(3))
    np.save(root / "h_none.npy", np.empty((0, 4)))
    np.save(root / "h_3d.npy", np.zeros((30, 2, 2)))
    np.save(root / "h_wide.npy", np.zeros((30, 7)))
    np.save(root / "h_uint.npy", np.full(30, 2**64 - 1, dtype=np.uint64))
    np.save(root / "h_complex.npy", np.zeros((30, 4), dtype=complex))
    np.save(root / "h_when.npy", np.zeros((30, 4), dtype="M8[s]"))
    bomb = npy((10**12,))
    archive("h_bomb.npz", X=bomb, y=bomb)
    archive("h_zeros.npz", X=npy((10**7, 4), data=b"\0" * 10**6))
    archive("h_plain.npz", X=b"no array", y=b"")
    archive("h_both.npz", X=npy((1, 4), data=b"\0" * 32), scores=npy((1, 2), data=b"\0" * 16))
    np.savez(root / "h_names.npz", X=X[:30], y=np.array(EVIL_TEXT)[np.arange(30) % len(EVIL_TEXT)])
    np.savez(root / "h_made.npz", scores=np.full((30, 3), np.nan), **{"layer:a": X[:30]})
    np.savez(root / "h_thin.npz", scores=np.zeros((30, 2)), **{"layer:a": X[:30, :1]})
    np.savez(root / "h_long.npz", X=X[:30], y=np.array(["x" * 5000, "y"] * 15))
    with zipfile.ZipFile(root / "h_ratio.npz", "w", zipfile.ZIP_DEFLATED) as file:
        info = zipfile.ZipInfo("X.npy")
        info.compress_type = zipfile.ZIP_DEFLATED
        with file.open(info, "w", force_zip64=True) as member:
            member.write(npy((10**11,)))
            for _ in range(200):
                member.write(b"\0" * 10**6)
    raw = (root / "h_bomb.npz").read_bytes()
    (root / "h_cut.npz").write_bytes(raw[: len(raw) // 2])
    (root / "h_zlib.npz").write_bytes(zlib.compress(b"x"))
    for name, content in {
        "empty": b"", "header": b"f0,f1,f2,f3,kind\n", "nuls": b"\0" * 9999,
        "nul": b"f0,f1\n\0\0,1\n",
        "bom": "\ufefff0,f1,f2,f3,kind\n1,2,3,4,a\n1,2,3,5,b\n".encode(),
        "utf16": "f0,f1\n1,2\n".encode("utf-16"), "latin": "f0,kïnd\n1,é\n".encode("latin-1"),
        "crlf": b"f0,f1,f2,f3,kind\r\n1,2,3,4,a\r\n1,2,3,5,b\r\n", "ragged": b"f0,f1\n1,2\n1\n",
        "quoted": b'f0,f1,f2,f3,kind\n1,2,3,4,"a\nb"\n1,2,3,5,"c"\n', "open": b'f0,f1\n1,"2\n3,4\n',
        "twice": b"f0,f0,f2,f3,kind\n1,2,3,4,a\n", "big": b"f0,f1,f2,f3,kind\n1e400,2,3,4,a\n",
        "digits": b"f0,f1,f2,f3,kind\n" + b"9" * 400 + b",2,3,4,a\n",
        "words": b"f0,f1,f2,f3,kind\nnan,inf,-inf,NaN,a\n",
        "cell": b"f0\n" + b"1" * 200_000 + b"\n",
        "columns": b",".join(b"c%d" % i for i in range(200_000)) + b"\n",
        "markup": "f0,f1,f2,f3,kind\n1,2,3,4,[/red]\x1b[31m\u202e\n1,2,3,5,=1+1\n".encode(),
        "error": ("f0,kind\n" + "[/red]\x1b" * 20_000 + ",a\n").encode(),
    }.items():  # fmt: skip
        (root / f"h_{name}.csv").write_bytes(content)
    for name, content in {
        "empty": b"", "blank": b"\n\n", "list": b"[1]\n", "deep": b"[" * 99_999, "nul": bytes(999),
        "nested": b'{"f0": {"a": 1}}\n', "kinds": b'{"f0": 1}\n{"f0": "x"}\n',
        "more": b'{"f0": 1}\n{"f0": 1, "f1": 2}\n', "huge": b'{"f0": ' + b"9" * 5000 + b"}\n",
        "latin": b'{"f0": "\xe9"}\n', "half": b'{"f0": "\\ud800"}\n', "open": b'{"f0": 1',
        "markup": b'{"[/red]\x1b": 1}\n', "nan": b'{"f0": NaN, "f1": Infinity}\n',
    }.items():  # fmt: skip
        (root / f"h_{name}.jsonl").write_bytes(content)
    (root / "h_junk.arrow").write_bytes(b"ARROW1\0\0" + bytes(99) + b"ARROW1")
    (root / "h_stream.arrow").write_bytes(b"\xff\xff\xff\xff\x10\0\0\0" + bytes(99))
    (root / "h_junk.parquet").write_bytes(b"PAR1" + b"\0" * 100 + b"PAR1")
    _write_parquet(root)
    os.symlink("loop2.csv", root / "loop1.csv")
    os.symlink("loop1.csv", root / "loop2.csv")
    os.symlink("nowhere.csv", root / "dangling.csv")
    os.symlink("train.csv", root / "linked.csv")
    os.link(root / "test.npz", root / "hard.npz")
    os.mkfifo(root / "fifo.csv")
    (root / "folder.csv").mkdir()
    (root / "[").mkdir()
    (root / "[" / "red].npz").write_bytes((root / "test.npz").read_bytes())
    (root / "[red].npz").write_bytes((root / "test.npz").read_bytes())
    (root / "e\x1b[31m\u202e.npz").write_bytes((root / "test.npz").read_bytes())
    (root / os.fsdecode(b"\xff.npz")).write_bytes((root / "test.npz").read_bytes())
    (root / "empty.iknow").mkdir()
    (root / "file.iknow").write_bytes(b"not a bundle")


def _write_parquet(root):
    pa = pytest.importorskip("pyarrow")
    pq = pytest.importorskip("pyarrow.parquet")
    pq.write_table(pa.table({"f0": [None], "kind": [None]}), root / "h_null.parquet")
    pq.write_table(pa.table({"f0": [[1, 2]], "kind": ["a"]}), root / "h_list.parquet")
    pq.write_table(pa.table({"f0": ["[/red]\x1b"], "kind": ["a"]}), root / "h_words.parquet")
    pq.write_table(pa.table({"f0": pa.array([], pa.float64())}), root / "h_none.parquet")
    constant = pa.DictionaryArray.from_arrays(np.zeros(2 * 10**7, np.int32), [1.0])
    pq.write_table(pa.table({"f0": constant}), root / "h_rle.parquet")
    same = pa.DictionaryArray.from_arrays(np.zeros(10**4, np.int32), ["x" * 10**5])
    labels = pa.table({"f0": np.zeros(10**4), "kind": same})
    pq.write_table(labels, root / "h_labels.parquet")


@pytest.fixture(scope="session")
def evil_text():
    return EVIL_TEXT
