"""The hook of mkdocs: it adds the generated pages and puts all pages in order."""

import posixpath
import re
from pathlib import Path

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

from docs.hooks.navigation import SECTIONS, navigation
from docs.hooks.reference import generated_pages
from docs.hooks.results import result_pages
from docs.hooks.short_code import mark_short_code

ROOT = Path(__file__).parents[2]
LINK = re.compile(r"\[([^\]\n]*)\]\(([^)\s#]+\.md)(?:#[\w-]+)?\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made from the registries and from the records' own pages, then set the navigation."""
    for path, content in {**generated_pages(), **result_pages(ROOT / "results")}.items():
        files.append(File.generated(config, path, content=content))
    config["nav"] = navigation([file.src_uri for file in files.documentation_pages()])
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Links to pages of the navigation that are still to be written become plain text."""

    def link(match: re.Match[str]) -> str:
        target = posixpath.normpath(posixpath.join(posixpath.dirname(page.file.src_uri), match[2]))
        planned = any(target in pages for _, pages in SECTIONS)
        return match[1] if planned and files.get_file_from_path(target) is None else match[0]

    return LINK.sub(link, markdown)


def on_page_content(html: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Options and names break nowhere."""
    return mark_short_code(html)
