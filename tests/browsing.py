"""A real browser, headless, for the tests of pages."""

import os
import shutil
import subprocess
import time

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
PATIENCE = 20.0


def refuse(reason):
    """Without a browser these tests are left out, unless somebody insists on them."""
    if os.environ.get("IKNOW_REQUIRE_BROWSER"):
        pytest.fail(f"IKNOW_REQUIRE_BROWSER is set, but {reason}")
    pytest.skip(reason)


def start_browser():
    try:
        from selenium import webdriver
    except ImportError:
        refuse("selenium is not installed")
    browser = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    driver = shutil.which("chromedriver")
    if browser is None or driver is None:
        refuse("chromium and chromedriver are not both on the PATH")
    options = webdriver.ChromeOptions()
    options.binary_location = browser
    for argument in (
        "--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu",
        "--window-size=1400,1000",
    ):  # fmt: skip
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    service = webdriver.ChromeService(executable_path=driver, log_output=subprocess.DEVNULL)
    return webdriver.Chrome(options=options, service=service)


def wait_for(condition, what):
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, f"waited {PATIENCE} s in vain for {what}"
        time.sleep(0.02)
