"""The order of the pages. A page that does not exist yet is left out, and a page that is not listed comes last."""

from collections.abc import Collection
from pathlib import PurePosixPath

# section -> pages (path under docs/) or {title: page}; a section of one string is a page at the top.
SECTIONS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (
        "Start",
        ("index.md", "install.md", "first-results.md", "choose-a-format.md", "check-a-model.md"),
    ),
    (
        "Guides",
        (
            "gate-in-ci.md",
            "compare-methods.md",
            "quantize.md",
            "best-file.md",
            "long-contexts.md",
            "cache-policies.md",
            "retrieval-policies.md",
            "sparse-prefill.md",
            "prefix-store.md",
            "breakeven.md",
            "larger-than-memory.md",
            "many-devices.md",
            "displaced-patches.md",
            "serve.md",
            "security-and-limits.md",
            "cpu-and-gpu-kernels.md",
            "python.md",
        ),
    ),
    (
        "Measuring",
        ("how-we-measure.md", "statistics.md", "real-models.md", "reference-models.md", "troubleshooting.md"),
    ),
    (
        "Reference",
        (
            "reference/commands.md",
            "reference/python.md",
            "reference/recipes.md",
            "reference/formats.md",
            "reference/kv-formats.md",
            "reference/policies.md",
            "reference/suites.md",
            "reference/records.md",
        ),
    ),
    (
        "Contributing",
        (
            "contribute/architecture.md",
            "contribute/add-a-format.md",
            "contribute/add-a-method.md",
            "contribute/add-a-policy.md",
            "contribute/add-a-family.md",
            "contribute/add-a-command.md",
            "contribute/add-a-kernel.md",
            "contribute/questions.md",
            "glossary.md",
        ),
    ),
)
COMMANDS = "reference/commands/"  # one page per command, below the list of commands
RESULTS = "results/"


def navigation(pages: Collection[str]) -> list[dict]:
    """The `nav` of mkdocs for the pages that exist.

    pages    paths under docs/, with those that are generated
    returns  [{section: [page, ...]}, ...]; each page is in it once
    """
    rest = {page for page in pages if PurePosixPath(page).suffix == ".md"}
    nav: list[dict] = []
    for section, listed in SECTIONS:
        entries: list = [page for page in listed if page in rest]
        rest -= set(entries)
        if section == "Reference":
            commands = sorted(page for page in rest if page.startswith(COMMANDS))
            rest -= set(commands)
            entries.append({"Each command": commands})
        nav.append({section: entries})
    results = sorted(page for page in rest if page.startswith(RESULTS))
    nav.append({"Results": sorted(results, key=lambda page: page != f"{RESULTS}index.md")})
    if others := sorted(rest - set(results)):
        nav.append({"More": others})
    return nav
