"""A headless Chromium, driven over its own driver; `make browser` installs both where the distribution has them."""

from __future__ import annotations

import contextlib
import os
import resource
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
SECONDS = 30  # after which a page counts as not answering


def missing() -> str | None:
    """Why no browser can be driven here; None where one can."""
    try:
        import selenium  # noqa: F401
    except ImportError:
        return "selenium is not installed (pip install -e '.[dev]')"
    if resource.getrlimit(resource.RLIMIT_AS)[0] != resource.RLIM_INFINITY:
        return "Chromium does not run with a limited address space: it reserves terabytes"
    if not shutil.which("chromedriver") or not find_browser():
        return "no Chromium with chromedriver here: `make browser` installs them where the distribution has them"
    return None


def find_browser() -> str | None:
    return next((path for name in BROWSERS if (path := shutil.which(name))), None)


@contextlib.contextmanager
def browser(*switches: str) -> Iterator[Any]:
    """Leaving the block ends it and its processes."""
    from selenium import webdriver
    from selenium.webdriver.chrome.service import Service

    options = webdriver.ChromeOptions()
    options.binary_location = find_browser() or ""
    for switch in (
        *("--headless=new", "--no-first-run", "--disable-gpu", "--disable-quic", "--disable-dev-shm-usage"),
        *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--hide-scrollbars"),
        *(("--no-sandbox",) if os.geteuid() == 0 else ()),  # Chromium's own refuses to run as root
        *switches,
    ):
        options.add_argument(switch)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options.add_argument(f"--user-data-dir={profile}")
        driver = webdriver.Chrome(options, Service(shutil.which("chromedriver")))
        try:
            driver.set_page_load_timeout(SECONDS)
            driver.set_script_timeout(SECONDS)
            yield driver
        finally:
            driver.quit()


def choose_theme(driver: Any, theme: str) -> None:
    """What the system prefers: light or dark."""
    features = [{"name": "prefers-color-scheme", "value": theme}]
    driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


def choose_size(driver: Any, width: int, height: int, phone: bool = False) -> None:
    """Of the page, in CSS pixels."""
    metrics = {"width": width, "height": height, "deviceScaleFactor": 2 if phone else 1, "mobile": phone}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def take_picture(driver: Any, path: Any, whole_page: bool = False) -> None:
    """A PNG of what is in view, or of the whole page."""
    import base64
    from pathlib import Path

    answer = driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": whole_page})
    Path(path).write_bytes(base64.b64decode(answer["data"]))
