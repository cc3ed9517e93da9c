"""What the build of the site does with each page: fills its blocks, and runs its snippets."""

from __future__ import annotations

import logging
import tempfile
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from blocks import BlockError, fill
from outputs import Output
from results import MAKERS
from snippets import SnippetError, find_snippets, run_page, weave

log = logging.getLogger("mkdocs.hooks.snippets")


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """The page with its blocks filled and the outputs of its snippets; figures become files."""
    name = page.file.src_uri
    if name == "index.md":  # one screen, all of it for the start
        page.meta["hide"] = ["navigation", "toc"]
    try:
        markdown = fill(markdown, MAKERS)
        if not find_snippets(markdown):
            return markdown
        with tempfile.TemporaryDirectory() as folder:
            outputs = run_page(markdown, f"docs/{name}", Path(folder))
    except (BlockError, SnippetError) as error:
        raise PluginError(str(error)) from error
    if None in outputs:
        log.info("%s: its data is not at hand, so it was not run", name)
    return weave(markdown, outputs, _publish(name, outputs, config, files))


def _publish(
    page: str, outputs: list[Output | None], config: MkDocsConfig, files: Files
) -> list[str]:
    """Make files of the site from figures and HTML files; the names of the figures."""
    path = Path(page)
    images: list[str] = []
    for output in outputs:
        if output is not None and output.picture is not None:
            images.append(f"{path.stem}-{len(images) + 1}.png")
            _add(path.with_name(images[-1]), output.picture.png, config, files)
        for name, content in output.files.items() if output is not None else ():
            _add(path.with_name(name), content, config, files)
    return images


def _add(path: Path, content: bytes, config: MkDocsConfig, files: Files) -> None:
    files.append(File.generated(config, path.as_posix(), content=content))
