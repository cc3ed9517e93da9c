"""What CONTRIBUTING, the workflow and the hooks name is there: paths, commands, versions."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[1]
MAKEFILE = (ROOT / "Makefile").read_text("utf-8")
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
WORKFLOW = (ROOT / ".github/workflows/ci.yml").read_text("utf-8")
HOOKS = (ROOT / ".pre-commit-config.yaml").read_text("utf-8")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
NOT_OURS = {".venv", "site/index.html", "/path/to/data"}  # made by make, or the reader's own


def named_paths(text):
    """Words that look like paths: with a slash inside or at the end, or with a file's ending."""
    words = {word.rstrip(".,:;") for word in re.findall(r"[\w./-]+", text)}
    ending = r"\.(py|js|md|txt|toml|yml|csv)$"
    paths = {w for w in words if re.search(r"\w/", w) or re.search(ending, w)}
    return sorted(paths - NOT_OURS - {w for w in words if w.startswith(".venv/")})


def targets_of(text):
    """What make is asked for in a text."""
    return set(re.findall(r"\bmake ([a-z][a-z-]*)", text))


@pytest.mark.parametrize("path", named_paths(CONTRIBUTING))
def test_every_path_in_contributing_exists(path):
    assert (ROOT / path).exists() or (ROOT / "src/iknow" / path).exists()


def named_places(text):
    """What a text finds in a file, such as (Plan.need, classifier/plan.py)."""
    for names, path in re.findall(r"((?:`[\w.]+`(?:, | and )?)+) in `([\w/]+\.\w+)`", text):
        yield from ((name, path) for name in re.findall(r"`([\w.]+)`", names))


@pytest.mark.parametrize(("name", "path"), sorted(set(named_places(CONTRIBUTING))))
def test_every_name_in_contributing_is_defined_where_it_says(name, path):
    source = (ROOT if (ROOT / path).exists() else ROOT / "src/iknow") / path
    for part in name.split("."):
        defined = rf"^ *(?:async |export )?(?:def|class|function) {part}\b|^{part}\b.*="
        assert re.search(defined, source.read_text("utf-8"), flags=re.MULTILINE), part


def test_a_stranger_finds_these_places():
    rows = re.findall(r"^\| (.+?) \| (.+) \|$", CONTRIBUTING, flags=re.MULTILINE)
    answers = {question: len(list(named_places(answer))) for question, answer in rows}
    for words in (
        "a level becomes IK", "a quorum of 3 is applied", "the service answers 429",
        "a certificate becomes stale", "bounds are chosen over products", "the default layers are",
        "ONNX export of a torch module", "a bundle is opened and verified", "the alarm's betting",
        "a Pipeline is taken apart", "the streaming loop of `iknow assess`", "the report's sliders",
        "a removed row does to a mapped bundle", "which voices are heard", "which middle stages",
        "a lost Ray shard is rebuilt",
    ):  # fmt: skip
        (places,) = (n for question, n in answers.items() if words in question)
        assert places, words


def test_every_room_is_on_the_map():
    rooms = {p.name for p in (ROOT / "src/iknow").iterdir() if (p / "__init__.py").exists()}
    assert rooms == set(re.findall(r"^\| `(\w+)/` \|", CONTRIBUTING, flags=re.MULTILINE))


def test_the_layers_of_the_map_are_those_that_import_linter_keeps():
    contract = PROJECT["tool"]["importlinter"]["contracts"][0]
    kept = [set(re.findall(r"iknow\.(\w+)", layer)) for layer in contract["layers"]]
    listed = re.findall(r"^    (\d)  (.*)$", CONTRIBUTING, flags=re.MULTILINE)
    assert [number for number, _ in listed] == list("12345678")
    assert [set(re.findall(r"\w+", names)) for _, names in listed] == kept


@pytest.mark.parametrize("text", [CONTRIBUTING, WORKFLOW, HOOKS], ids=["map", "workflow", "hooks"])
def test_make_knows_every_target_that_is_named(text):
    words = {"sets"}  # "which make sets up" is prose
    assert targets_of(text) - words <= set(re.findall(r"^([a-z-]+):", MAKEFILE, flags=re.MULTILINE))


def test_the_workflow_tests_files_that_exist_on_every_python_that_is_supported():
    core = yaml.safe_load(WORKFLOW)["jobs"]["core"]
    (command,) = [s["run"] for s in core["steps"] if "pytest" in s.get("run", "").split()]
    paths = [word for word in shlex.split(command) if word.startswith("tests/")]
    assert paths
    assert [path for path in paths if not (ROOT / path).exists()] == []
    assert f">={core['strategy']['matrix']['python'][0]}" == PROJECT["project"]["requires-python"]
    assert (ROOT / ".ci/run").stat().st_mode & 0o100


def test_a_commit_is_checked_by_every_tool_of_make_check():
    checks = re.search(r"^check:.*\n((?:\t.*\n)+)", MAKEFILE, flags=re.MULTILINE)[1]
    tools = set(re.findall(r"\$\(BIN\)/([a-z-]+(?: (?:check|format))?)", checks))
    assert len(tools) >= 4
    entries = [hook["entry"] for repo in yaml.safe_load(HOOKS)["repos"] for hook in repo["hooks"]]
    assert {tool for tool in tools if not any(f".venv/bin/{tool}" in e for e in entries)} == set()
    parts = re.findall(r"\$\(MAKE\) .*?([a-z-]+)$", checks, flags=re.MULTILINE)
    assert [part for part in parts if f"make {part}" not in entries] == []
