"""The code in README and docs runs as it stands, links lead somewhere, and every page is found."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from blocks import find_blocks
from results import MAKERS
from snippets import run_page

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
PAGES = ["README.md", *sorted(str(p.relative_to(ROOT)) for p in DOCS.rglob("*.md"))]
TEXTS = {page: (ROOT / page).read_text("utf-8") for page in PAGES}


SETTINGS = yaml.safe_load((ROOT / "mkdocs.yml").read_text("utf-8"))


@pytest.mark.slow
def test_the_readme_runs(tmp_path):
    """The pages of the site run when it is built, and a snippet that fails ends the build."""
    assert None not in run_page(TEXTS["README.md"], "README.md", tmp_path)


@pytest.mark.parametrize("page", PAGES)
def test_links_within_the_repository_lead_somewhere(page):
    prose = re.sub(r"^```.*?^```$", "", TEXTS[page], flags=re.DOTALL | re.MULTILINE)
    links = re.findall(r"\]\(([^)#]+)", prose)
    for link in links:
        if not link.startswith("http"):
            assert (ROOT / page).parent.joinpath(link).exists(), link


@pytest.mark.parametrize("page", [page for page in PAGES if find_blocks(TEXTS[page])])
def test_what_is_made_from_results_is_what_they_say(page):
    """If not: python docs/hooks/blocks.py"""
    for name, text in find_blocks(TEXTS[page]).items():
        assert text.strip() == MAKERS[name]().strip(), name


def test_every_page_can_be_found_from_the_navigation():
    def pages(entry):
        if isinstance(entry, str):
            return [entry]
        each = entry.values() if isinstance(entry, dict) else entry
        return [page for part in each for page in pages(part)]

    listed = pages(SETTINGS["nav"])
    assert sorted(listed) == sorted(str(p.relative_to(DOCS)) for p in DOCS.rglob("*.md"))


def test_the_site_fetches_nothing():
    assert SETTINGS["theme"]["font"] is False
    assets = [p for p in DOCS.glob("assets/*") if p.suffix in (".css", ".js", ".svg")]
    texts = [p.read_text("utf-8") for p in [*assets, ROOT / "mkdocs.yml"]]
    addresses = [found for text in texts for found in re.findall(r"https?://[^\s\"]+", text)]
    assert set(addresses) <= {"http://www.w3.org/2000/svg"}  # a name, which nothing fetches


def test_developers_can_build_the_site():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    assert "docs" in re.findall(r"\w+", " ".join(extras["dev"]))
    pins = (ROOT / "constraints.txt").read_text("utf-8")
    names = {re.match(r"[\w.-]+", each)[0] for each in extras["docs"]} - {"iknow"}
    assert names <= set(re.findall(r"^([\w.-]+)==", pins, re.MULTILINE))
