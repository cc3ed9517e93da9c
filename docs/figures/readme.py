"""Makes the README's pictures: regions of a plane, the demonstration's report, the service's page.

Run as `python docs/figures/readme.py`, with Chromium and its driver on the PATH.
"""

from __future__ import annotations

import base64
import io
import shutil
import socket
import tempfile
import threading
from pathlib import Path

import numpy as np
import uvicorn
from matplotlib.figure import Figure
from PIL import Image
from selenium import webdriver
from sklearn.datasets import make_moons
from sklearn.neural_network import MLPClassifier

from iknow import Client, EpistemicClassifier, as_image
from iknow.cli.demo import (
    LEFT_OUT,
    SEED,
    UNSEEN,
    demonstrate,
    make_demo_service,
    make_digits,
    make_page,
)
from iknow.evaluation.plots import draw_regions
from iknow.serve import Settings, create_app
from iknow.serve.served import serve_classifier
from iknow.serve.service import Service

ASSETS = Path(__file__).parents[1] / "assets"
WIDTH, HEIGHT, SERVICE_HEIGHT = 1280, 1010, 1060
COLORS = 200  # are enough for the eye, and make a file half the size


def make_regions() -> Figure:
    """Two moons, a network, and what it knows where."""
    X, y = make_moons(900, noise=0.2, random_state=0)
    network = MLPClassifier((16, 16), max_iter=1500, random_state=0).fit(X[:300], y[:300])
    classifier = EpistemicClassifier(network, ["input"], progress=False)
    classifier.fit(X[:300], y[:300]).tune(X[300:], coverage=0.85)
    figure = Figure(figsize=(4.4, 3.77), layout="constrained")
    plane = classifier.assess, (-2, 3), (-1.8, 2.2)
    draw_regions(figure.subplots(), *plane, X[:300], y[:300], resolution=500)
    return figure


def photograph(url: str, ready: str, height: int = HEIGHT) -> bytes:
    """The top of a page as a browser shows it, once an element is there."""
    options = webdriver.ChromeOptions()
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--hide-scrollbars",
        "--disable-dev-shm-usage",
    ):
        options.add_argument(argument)
    options.binary_location = shutil.which("chromium") or ""
    service = webdriver.ChromeService(executable_path=shutil.which("chromedriver"))
    driver = webdriver.Chrome(options=options, service=service)
    size = {"width": WIDTH, "height": height, "deviceScaleFactor": 1.5, "mobile": False}
    driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    driver.get(url)
    driver.implicitly_wait(10)
    driver.find_element("css selector", ready)
    shot = driver.execute_cdp_cmd("Page.captureScreenshot", {"format": "png"})
    driver.quit()
    picture = Image.open(io.BytesIO(base64.b64decode(shot["data"])))
    buffer = io.BytesIO()
    picture.convert("RGB").quantize(COLORS).save(buffer, "png", optimize=True)
    return buffer.getvalue()


def photograph_report() -> bytes:
    """The demonstration's report."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "report.html"
        file.write_text(make_page(demonstrate()), encoding="utf-8")
        return photograph(file.as_uri(), 'body[data-state="ready"]')


def photograph_service() -> bytes:
    """The page of the demonstration as a service, after the unseen digit has come."""
    with make_demo_service() as demo, socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        classifier = EpistemicClassifier.load(demo.bundle)
        models = [serve_classifier("digits", classifier, picture=as_image(8, 8))]
        app = create_app(Service(models, Settings(audit=str(demo.audit))))
        server = uvicorn.Server(uvicorn.Config(app, log_level="error"))
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        with Client(url) as client:
            client.wait_until_ready()
            _converse(client)
        picture = photograph(url, ".unknown li", SERVICE_HEIGHT)
        server.should_exit = True
        thread.join()
        return picture


def _converse(client: Client) -> None:
    """Ask about ordinary digits, tell the truth about some, then ask about the unseen one."""
    digits, rng = make_digits(LEFT_OUT, SEED), np.random.default_rng(0)
    images, truth = digits.conditions["clean"]
    for start in range(0, len(images), 4):
        answers = client.assess("digits", images[start : start + 4])
        client.labels(answers.label(truth[start : start + 4]))
    unseen, _ = digits.conditions[UNSEEN]
    for rows in np.array_split(rng.permutation(len(unseen))[:60], 20):
        client.assess("digits", unseen[rows])


if __name__ == "__main__":
    make_regions().savefig(ASSETS / "regions.png", dpi=180, metadata={"Software": None})
    (ASSETS / "report.png").write_bytes(photograph_report())
    (ASSETS / "service.png").write_bytes(photograph_service())
