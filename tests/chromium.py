"""A real browser for the tests of pages."""

import shutil
from collections.abc import Iterator

import pytest

CHROMIUM = shutil.which("chromium")
IN_A_BROWSER = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="there is no browser: chromium is not on the PATH"),
    # Chromium's pipe may be closed by the interpreter after the test that used it.
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
]


@pytest.fixture(scope="module")
def browser() -> Iterator:
    playwright = pytest.importorskip("playwright.sync_api", reason="playwright is not installed")
    with playwright.sync_playwright() as engine:
        # Containers run as root, where Chromium's sandbox cannot start.
        chromium = engine.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield chromium
        chromium.close()
