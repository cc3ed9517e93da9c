import pytest

from snippets import SnippetError, find_snippets, run_page, weave

PAGE = """# Title

```python
x = 2
print("one")
```

Between.

```sh
rm -rf nothing
```

```python
print(x + 1)
```
"""


def page(*snippets):
    return "\n\n".join(f"```python\n{snippet}\n```" for snippet in snippets) + "\n"


def test_only_python_is_run_and_names_stay(tmp_path):
    assert [output.text for output in run_page(PAGE, "page.md", tmp_path)] == ["one", "3"]


def test_lines_are_those_of_the_page():
    lines = PAGE.splitlines()
    for snippet in find_snippets(PAGE):
        assert lines[snippet.line - 1] == snippet.code.splitlines()[0]


def test_what_was_printed_stands_below_its_snippet(tmp_path):
    woven = weave(PAGE, run_page(PAGE, "page.md", tmp_path), [])
    assert woven.index("one\n````") < woven.index("Between.") < woven.index("\n3\n````")
    assert woven.replace("\n\n````{ .text .output }\none\n````\n", "").startswith(PAGE[:60])


def test_a_figure_becomes_a_picture(tmp_path):
    code = "from matplotlib.figure import Figure\nfigure = Figure(figsize=(2, 1))\n"
    code += "axes = figure.subplots()\n_ = axes.set_title('a [b] $c$')\nfigure"
    (output,) = run_page(page(code), "page.md", tmp_path)
    assert output.picture.png.startswith(b"\x89PNG")
    assert (output.picture.title, output.picture.width) == ("a b c", 300)
    assert not output.html
    woven = weave(page(code), [output], ["page-1.png"])
    assert "![a b c](page-1.png){ .figure width=300 }" in woven


def test_axes_show_their_figure(tmp_path):
    code = "from matplotlib.figure import Figure\nFigure().subplots()"
    (output,) = run_page(page(code), "page.md", tmp_path)
    assert output.picture is not None


def test_what_shows_itself_as_html_is_shown(tmp_path):
    code = "class Card:\n    def _repr_html_(self):\n        return '<b>hi</b>'\n\nCard()"
    (output,) = run_page(page(code), "page.md", tmp_path)
    assert output.html == "<b>hi</b>"
    assert "<b>hi</b>" in weave(page(code), [output], [])


@pytest.mark.parametrize("value", ["3", "'text'", "None", "LogisticRegression()"])
def test_other_values_are_not_shown(value, tmp_path):
    code = f"from sklearn.linear_model import LogisticRegression\n{value}"
    (output,) = run_page(page(code), "page.md", tmp_path)
    assert (output.text, output.html, output.picture) == ("", "", None)


def test_html_files_that_were_written_are_linked(tmp_path):
    code = "from pathlib import Path\n_ = Path('report.html').write_text('<p>')"
    outputs = run_page(page(code, "x = 1"), "page.md", tmp_path)
    assert [output.files for output in outputs] == [{"report.html": b"<p>"}, {}]
    assert "[Open report.html](report.html)" in weave(page(code, "x = 1"), outputs, [])


def test_the_repository_s_docs_are_at_hand(tmp_path):
    code = "from pathlib import Path\nprint(Path('docs/glossary.md').is_file())"
    assert run_page(page(code), "page.md", tmp_path)[0].text == "True"


def test_a_failure_names_page_snippet_and_line(tmp_path):
    text = page("x = 1", "y = 2\nx / 0")
    with pytest.raises(SnippetError, match=r"^page\.md, snippet 2, line 6: ZeroDivisionError: "):
        run_page(text, "page.md", tmp_path)


def test_absent_data_is_told_once_and_no_failure(tmp_path):
    absent = "from iknow.errors import DataError\nraise DataError('gone') from OSError('offline')"
    text = page("print(1)", absent, "never")
    outputs = run_page(text, "page.md", tmp_path)
    assert [output and output.text for output in outputs] == ["1", None, None]
    assert weave(text, outputs, []).count("Not run in this build") == 1


def test_damaged_data_is_a_failure(tmp_path):
    text = page("from iknow.errors import DataError\nraise DataError('damaged')")
    with pytest.raises(SnippetError, match="damaged"):
        run_page(text, "page.md", tmp_path)
