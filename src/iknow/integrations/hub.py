"""A folder as model hubs show them: a bundle, a card about it, and the same for programs.

    README.md      what it is, how to load it, what is promised, and what is not
    config.json    the same as plain values
    bundle.iknow   the bundle

Everything that the card says comes from the bundle, which may come from anywhere: names, labels and
notes are escaped, in YAML by quotes and in Markdown by backslashes, so that none of them is markup.
"""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterable, Sequence
from html import escape
from os import PathLike
from pathlib import Path

from iknow.core.text import as_flag, percent, shown, visible
from iknow.errors import InputError
from iknow.storage.files import write_bytes
from iknow.storage.info import BundleInfo, describe_bundle, list_facts, rule_of, short_line

CARD, CONFIG, BUNDLE = "README.md", "config.json", "bundle.iknow"
TAGS = ("iknow", "selective-classification", "uncertainty", "explainability")
MARKUP = re.compile(r"[\\`*_\[\]|~$]")
AT_THE_START = re.compile(r"^(\d+(?=[.)](?:\s|$))|(?=[#+\-=]))(.)")  # of headings and lists
LIMITS = """\
- What is promised holds for samples drawn as the validation samples were. If the world has
  changed since, tune again.
- IK says that the training data supports an answer, not that the answer is right.
- A bundle runs no code, but its maker can claim anything in it: get it from people you trust."""


def write_folder(
    bundle: str | PathLike[str],
    folder: str | PathLike[str],
    *,
    license: str | None = None,
    tags: Sequence[str] = (),
    overwrite: bool = False,
) -> Path:
    """Write a folder with a bundle and its card, ready to upload, and return its path.

    Args:
        bundle: The path of a bundle, whose name and note the card shows.
        folder: The folder, created if necessary.
        license: The identifier of a license, such as "apache-2.0".
        tags: Further tags.
        overwrite: Replace the card, the configuration and the bundle if they exist.

    Examples:
        >>> ec = EpistemicClassifier(FrozenEstimator(trained)).fit(X_train, y_train)
        >>> ec.tune(X_val, y_val).save("irises.iknow", name="Irises")
        >>> folder = write_folder("irises.iknow", "irises", license="cc0-1.0")
        >>> sorted(file.name for file in folder.iterdir())
        ['README.md', 'bundle.iknow', 'config.json']
    """
    place = Path(folder)
    front = make_front_matter(license, tags)
    taken = [each for each in (CARD, CONFIG, BUNDLE) if (place / each).exists()]
    if taken and not as_flag(overwrite, "overwrite"):
        raise InputError(f"{place / taken[0]} exists: choose another folder, or overwrite=True")
    if not isinstance(bundle, (str, PathLike)):
        raise InputError(f"the path of a bundle is needed, as save writes it; got {shown(bundle)}")
    describe_bundle(bundle)  # which refuses what is no bundle
    place.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(bundle, place / BUNDLE)
    info = describe_bundle(place / BUNDLE)
    write_bytes(place / CARD, (front + make_card(info)).encode("utf-8", "backslashreplace"))
    config = {"library_name": "iknow", "bundle": BUNDLE, **info.to_dict()}
    del config["path"]
    finite = json.loads(json.dumps(config), parse_constant=lambda _: None)  # JSON has no infinity
    write_bytes(place / CONFIG, json.dumps(finite, indent=2).encode())
    return place


def make_front_matter(license: str | None = None, tags: Sequence[str] = ()) -> str:
    """Make the YAML that hubs read; see `write_folder`."""
    if isinstance(tags, str):
        raise InputError(f"tags must be a list of tags; got the text {shown(tags)}")
    for each in (*tags, *([] if license is None else [license])):
        if not isinstance(each, str) or not each or visible(each) != each or len(each) > 100:
            raise InputError(f"tags and license must be one line of text each; got {shown(each)}")
    given = {"license": license} if license is not None else {}
    front = {"library_name": "iknow", "tags": [*TAGS, *tags], "metrics": ["accuracy", "coverage"]}
    # JSON is YAML too.
    lines = [f"{k}: {json.dumps(v, ensure_ascii=False)}" for k, v in (front | given).items()]
    return "\n".join(["---", *lines, "---", ""])


def make_card(info: BundleInfo) -> str:
    """Make the text of a card, in Markdown, for a bundle."""
    layers = [(each.name, each.n_features, each.metric, rule_of(each)) for each in info.layers]
    performance = ""
    if (chosen := info.selection) is not None:
        shares = chosen.coverage, chosen.accuracy, chosen.accuracy_outside
        titles = "coverage", "accuracy on IK", "accuracy elsewhere"
        headings = f"on {chosen.n_samples:,} validation samples", ""
        performance = _table(headings, zip(titles, map(percent, shares), strict=True))
    own, where = ", model)  # the trained model that it was made with", "is not part of the bundle."
    if info.is_portable:
        own, where = ")", "is in the bundle, as ONNX: whoever has the bundle has the model."
    needs = ", ".join(f"`{option}=...`" for option in info.needs)
    recognized = ", and nothing by which it could recognize its model."
    if info.recognizes_model:
        recognized = " and up to 32 training inputs, by which it recognizes its model."
    parts = [
        f"# {markdown(info.title)}",
        "\n".join(f"> {markdown(line)}" for line in info.note.split("\n") if info.note),
        "A model that says how well each of its answers is justified: IK (I know), IMK (I may "
        "know) or IDK (I don't know).",
        "## What is promised",
        "\n".join(f"- {markdown(short_line(said))}." for said in info.promises),
        performance,
        "## How to load it",
        "```python\nfrom iknow import EpistemicClassifier",
        f'ec = EpistemicClassifier.load("{BUNDLE}"{own}\nec.assess(X).to_frame()\n```',
        f"Pass {needs} too: a bundle holds no functions." if needs else "",
        "## What it was made of",
        _table(("", ""), list_facts(info).items()),
        _table(("layer", "features", "metric", "rule"), layers),
        "## Limits",
        f"{LIMITS}\n- The model itself {where}\n"
        f"- The bundle holds the activations of the training samples{recognized}",
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def markdown(value: object) -> str:
    r"""Any text in one line of Markdown that shows it as it is.

    Examples:
        >>> print(markdown("# <b>a_b|c</b>"))
        \# &lt;b&gt;a\_b\|c&lt;/b&gt;
    """
    text = MARKUP.sub(r"\\\g<0>", escape(visible(value), quote=False).strip())
    return AT_THE_START.sub(r"\1\\\2", text) or "–"


def _table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = [headings, ["---"] * len(headings), *(map(markdown, row) for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
