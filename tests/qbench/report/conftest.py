import pytest
from support.browser import WatchedPage, chromium
from support.sample_records import write_records

from qbench.report import write_page


@pytest.fixture(scope="module")
def browser():
    """It ends with the module, as its event loop would refuse another one."""
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def opened(browser, tmp_path_factory):
    """opened(records, address, ...) -> a watched page of them, checked when the module ends."""
    pages = []

    def open_page(records, address="#/", **window):
        folder = tmp_path_factory.mktemp("page")
        path = write_page(write_records(folder / "records.jsonl", records), folder / "page.html")
        pages.append(WatchedPage(browser, path, address, **window))
        return pages[-1]

    yield open_page
    for page in pages:
        page.close()
