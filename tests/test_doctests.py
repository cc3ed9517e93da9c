"""Docstrings of public names: every argument is explained, and every example gives what it says.

Public is what the pages of the reference list. An example starts where the page's own code ends,
and with the names of the module that it is written in, as `python -m doctest` has it.
"""

import doctest
import importlib
import re
from functools import cache
from pathlib import Path

import griffe
import pytest

from snippets import find_snippets, run

ROOT = Path(__file__).parents[1]
PAGES = sorted((ROOT / "docs" / "reference").glob("*.md"))
ARGUMENTS = (griffe.DocstringSectionKind.parameters, griffe.DocstringSectionKind.attributes)

# Records that a function returns or takes, and methods that follow a protocol: the example of that
# function or protocol shows them.
SHOWN_ELSEWHERE = {
    "AccuracyReport", "Answers", "BundleInfo", "Certificate", "Comparison",
    "DriftReport", "Event", "Exemplar", "Explanation", "Features",
    "Image", "Label", "LayerExplanation", "LayerInfo", "Observation", "Probe",
    "RadiusCurve", "Reason", "Estimate", "Evaluation", "RiskCoverage", "Selection",
    "Sensitivity", "Series", "Sizes", "Slack", "Stability", "Threshold",
    "DkNN", "Energy", "FDBD", "GEN", "KNNDistance", "Mahalanobis", "NNGuide", "Observed", "SIRC",
    "Softmax", "TemperatureSoftmax", "TrustScore", "ViM", "Marginals",
    "Mixup", "Noise", "Scaling", "Swap",
}  # fmt: skip


@cache
def _package():
    return griffe.load(
        "iknow", search_paths=[ROOT / "src"], resolve_aliases=True, docstring_parser="google"
    )


@cache
def _listed():
    """Functions and classes of the reference where they are defined, and the page of each."""
    found = {}
    for page in PAGES:
        for name in re.findall(r"^::: iknow\.(\S+)$", page.read_text("utf-8"), re.MULTILINE):
            item = _package()[name]
            item = item.final_target if item.is_alias else item
            if item.is_class or item.is_function:
                found[item.path] = (item, page)
    return found


@cache
def _public():
    """What is listed, and the public methods of classes."""
    found = dict(_listed())
    for item, page in _listed().values():
        for member in item.all_members.values() if item.is_class else ():
            member = member.final_target if member.is_alias else member
            inside = member.path.startswith("iknow.")
            if inside and member.is_function and not member.name.startswith("_"):
                found.setdefault(member.path, (member, page))
    return found


def _text(path):
    docstring = _public()[path][0].docstring
    return docstring.value if docstring else ""


def _is_error(item):
    return item.is_class and "IknowError" in (item.name, *(base.name for base in item.mro()))


def _is_abstract(item):
    return item.is_class and not {"ABC", "Protocol"}.isdisjoint(map(str, item.bases))


@cache
def _promised():
    """The documented methods of abstract classes: those who implement them need not repeat it."""
    classes = [item for item, _ in _listed().values() if _is_abstract(item)]
    return {name for each in classes for name, method in each.members.items() if method.docstring}


def _needs_example(path):
    item = _listed()[path][0]
    described = _is_error(item) or _is_abstract(item) or item.name in SHOWN_ELSEWHERE
    return not described


@cache
def _names_of(page):
    """What the code of a page leaves behind."""
    names = {"__name__": "__main__"}
    for snippet in find_snippets(page.read_text("utf-8")):
        run(snippet, page.name, names)
    return names


@pytest.mark.parametrize("path", [path for path in sorted(_public()) if ">>>" in _text(path)])
def test_examples_give_what_they_say(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    item, page = _public()[path]
    if ".torch" in item.module.path:
        pytest.importorskip("torch")
    if ".integrations" in item.module.path:
        pytest.importorskip("mlflow")
        pytest.importorskip("pandas")
    module = importlib.import_module(item.module.path)
    names = {**_names_of(page), **vars(module)}
    where = (path, str(item.filepath), item.docstring.lineno)
    test = doctest.DocTestParser().get_doctest(_text(path), names, *where)
    runner = doctest.DebugRunner(optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    try:
        runner.run(test)
    except doctest.DocTestFailure as failure:
        raise AssertionError(
            f"{failure.example.source}gave\n{failure.got}not\n{failure.example.want}"
        ) from None


@pytest.mark.parametrize("path", [path for path in sorted(_listed()) if _needs_example(path)])
def test_every_public_name_has_an_example(path):
    assert ">>>" in _text(path)


@pytest.mark.parametrize("path", sorted(_public()))
def test_every_argument_is_explained(path):
    """In a section, or, where there is none, by its name in the text."""
    item = _public()[path][0]
    if _is_error(item) or (item.docstring is None and item.name in _promised()):
        return
    sections = item.docstring.parsed if item.docstring else []
    listed = [each.name for part in sections if part.kind in ARGUMENTS for each in part.value]
    given = {each.name for each in item.parameters} - {"self", "cls"}
    if item.is_class:
        given = {name for name in given if not name.startswith("_")}
    if not listed:
        listed = re.findall(r"`(\w+)`", _text(path))
    assert given <= {name.lstrip("*") for name in listed}
