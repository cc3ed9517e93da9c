"""Makes the two pictures of the README: the regions of a plane, and the demonstration's report.

Run as `python docs/figures/readme.py`, with Chromium and its driver on the PATH.
"""

from __future__ import annotations

import base64
import io
import shutil
import tempfile
from pathlib import Path

from matplotlib.figure import Figure
from PIL import Image
from selenium import webdriver
from sklearn.datasets import make_moons
from sklearn.neural_network import MLPClassifier

from iknow import EpistemicClassifier
from iknow.cli.demo import demonstrate, make_report
from iknow.evaluation.plots import draw_regions
from iknow.evaluation.regions import map_regions

ASSETS = Path(__file__).parents[1] / "assets"
WIDTH, HEIGHT = 1180, 1010
COLORS = 200  # are enough for the eye, and make a file half the size


def make_regions() -> Figure:
    """Two moons, a network, and what it knows where."""
    X, y = make_moons(900, noise=0.2, random_state=0)
    network = MLPClassifier((16, 16), max_iter=1500, random_state=0).fit(X[:300], y[:300])
    classifier = EpistemicClassifier(network, ["input"], progress=False)
    classifier.fit(X[:300], y[:300]).tune(X[300:], coverage=0.85)
    regions = map_regions(classifier.assess, (-2, 3), (-1.8, 2.2), 500)
    figure = Figure(figsize=(4.4, 3.77), layout="constrained")
    draw_regions(figure.subplots(), regions, X[:300], y[:300])
    return figure


def photograph(page: str) -> bytes:
    """The top of a page as a browser shows it, twice as fine."""
    options = webdriver.ChromeOptions()
    for argument in ("--headless=new", "--no-sandbox", "--hide-scrollbars"):
        options.add_argument(argument)
    options.binary_location = shutil.which("chromium") or ""
    service = webdriver.ChromeService(executable_path=shutil.which("chromedriver"))
    driver = webdriver.Chrome(options=options, service=service)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.html"
        file.write_text(page, encoding="utf-8")
        size = {"width": WIDTH, "height": HEIGHT, "deviceScaleFactor": 1.5, "mobile": False}
        driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        driver.get(file.as_uri())
        driver.implicitly_wait(10)
        driver.find_element("css selector", 'body[data-state="ready"]')
        shot = driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
    driver.quit()
    picture = Image.open(io.BytesIO(base64.b64decode(shot["data"])))
    buffer = io.BytesIO()
    picture.convert("RGB").quantize(COLORS).save(buffer, "png", optimize=True)
    return buffer.getvalue()


if __name__ == "__main__":
    make_regions().savefig(ASSETS / "regions.png", dpi=180, metadata={"Software": None})
    (ASSETS / "report.png").write_bytes(photograph(make_report(demonstrate())))
