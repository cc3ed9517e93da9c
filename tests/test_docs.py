"""The code in README and docs runs as it stands."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = ["README.md", *sorted(str(p.relative_to(ROOT)) for p in (ROOT / "docs").rglob("*.md"))]
SNIPPETS = {
    page: re.findall(r"^```python\n(.*?)^```", (ROOT / page).read_text("utf-8"), re.S | re.M)
    for page in PAGES
}


@pytest.mark.parametrize("page", [page for page in PAGES if SNIPPETS[page]])
def test_snippets_run_in_the_order_of_the_page(page, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {}
    for snippet in SNIPPETS[page]:
        exec(compile(snippet, page, "exec"), names)


@pytest.mark.parametrize("page", PAGES)
def test_links_within_the_repository_lead_somewhere(page):
    links = re.findall(r"\]\(([^)#]+)", (ROOT / page).read_text("utf-8"))
    for link in links:
        if not link.startswith("http"):
            assert (ROOT / page).parent.joinpath(link).exists(), link
