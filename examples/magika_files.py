"""A production ONNX classifier, over files on disk: which types does it know?

magika (pip install magika) tells 214 types of files apart and ships its network as an ONNX file.
iknow reads that file as it is. `fit` collects the evidence from files in Python's own folders,
whose names say what they are; `tune` chooses what counts as near; `assess` says IK, IMK or IDK
about others. The layer is found in the graph: the tensor that enters the last dense layer.

Some files no network should be sure about: a piece out of the middle of one, one with its bytes in
another order, the beginning of one and the end of another.

    python examples/magika_files.py
"""

from __future__ import annotations

import json
import os
import sysconfig
from importlib.resources import files
from pathlib import Path

import numpy as np
from sklearn.model_selection import train_test_split

from iknow import Assertion, EpistemicClassifier, evaluate

MODEL = max(Path(str(files("magika"))).glob("models/*/model.onnx"))
CONFIG = json.loads((MODEL.parent / "config.min.json").read_text())
FIRST, LAST, BLOCK = CONFIG["beg_size"], CONFIG["end_size"], CONFIG["block_size"]

TYPES = {
    ".c": "c", ".css": "css", ".gz": "gzip", ".h": "c", ".html": "html", ".js": "javascript",
    ".json": "json", ".md": "markdown", ".png": "png", ".py": "python", ".pyc": "pythonbytecode",
    ".rst": "rst", ".so": "elf", ".svg": "svg", ".txt": "txt", ".xml": "xml",
}  # fmt: skip
MOST, FEWEST = 20, 10  # files of a type
SMALLEST, LARGEST = 64, 1_000_000  # bytes


def view(content: bytes) -> np.ndarray:
    """What the network sees of a file: its first and last bytes, without the whitespace around."""
    seen = np.full(FIRST + LAST, CONFIG["padding_token"], dtype=np.int32)
    head, tail = content[:BLOCK].lstrip()[:FIRST], content[-BLOCK:].rstrip()[-LAST:]
    seen[: len(head)] = np.frombuffer(head, dtype=np.uint8)
    seen[len(seen) - len(tail) :] = np.frombuffer(tail, dtype=np.uint8)
    return seen


def find_files() -> dict[str, list[Path]]:
    """Files in Python's own folders by the types that their names promise."""
    found: dict[str, list[Path]] = {}
    for root in ("stdlib", "purelib"):
        for folder, _, names in os.walk(sysconfig.get_path(root)):
            for name in names:
                if kind := TYPES.get(os.path.splitext(name)[1]):
                    found.setdefault(kind, []).append(Path(folder, name))
    return found


def read_files() -> tuple[list[bytes], list[str]]:
    """Contents and types of some files, no two alike to the network."""
    rng = np.random.default_rng(0)
    contents: dict[bytes, bytes] = {}
    types: list[str] = []
    for kind, paths in sorted(find_files().items()):
        paths.sort()  # folders come in any order
        some = [paths[i] for i in rng.permutation(len(paths))[: 2 * MOST]]
        fitting = [path for path in some if SMALLEST <= path.stat().st_size <= LARGEST]
        new = {view(each).tobytes(): each for each in map(Path.read_bytes, fitting[:MOST])}
        new = {seen: each for seen, each in new.items() if seen not in contents}
        if len(new) >= FEWEST:
            contents |= new
            types += [kind] * len(new)
    return list(contents.values()), types


def spoil(contents: list[bytes]) -> dict[str, list[bytes]]:
    """Files as they should not be."""
    rng = np.random.default_rng(0)
    others = [contents[i] for i in rng.permutation(len(contents))]
    pairs = zip(contents, others, strict=True)
    return {
        "a piece out of the middle": [each[len(each) // 2 :][:256] for each in contents],
        "the bytes in another order": [bytes(rng.permutation(list(each))) for each in contents],
        "the end of another file": [
            one[: len(one) // 2] + two[len(two) // 2 :] for one, two in pairs
        ],
    }


def main() -> dict[str, float]:
    contents, types = read_files()
    rest, test, y_rest, y_test = train_test_split(
        contents, types, test_size=0.3, stratify=types, random_state=0
    )
    train, validation, y_train, y_validation = train_test_split(
        rest, y_rest, test_size=0.4, stratify=y_rest, random_state=0
    )

    # One file at a time, as magika itself asks: in batches this network rounds otherwise.
    ec = EpistemicClassifier(MODEL, classes=CONFIG["target_labels_space"], batch_size=1)
    ec.fit(views(train), y_train)
    ec.tune(views(validation), y_validation)
    assessment = ec.assess(views(test))

    print(f"{len(set(types))} types of files; layer: {', '.join(ec.layers_)}\n")
    report = evaluate(assessment, y_test)
    print(report)

    found = {
        "coverage": report.f_ik,
        "accuracy on IK": report.a_ik,
        "accuracy elsewhere": report.a_not_ik,
    }
    # The usual alternative: a threshold on the score, with the same coverage of the test files.
    threshold = np.quantile(assessment.scores.max(axis=1), 1 - report.f_ik)
    print("\nfiles it should not know           IK   score above the same coverage")
    for name, strange in spoil(test[:40]).items():
        answers = ec.assess(views(strange))
        known = np.asarray(answers.assertion == Assertion.IK).mean()
        sure = (answers.scores.max(axis=1) > threshold).mean()
        print(f"{name:30} {known:6.1%}   {sure:6.1%}")
        found[f"IK: {name}"], found[f"score: {name}"] = float(known), float(sure)
    return found


def views(contents: list[bytes]) -> np.ndarray:
    return np.stack([view(each) for each in contents])


if __name__ == "__main__":
    main()
