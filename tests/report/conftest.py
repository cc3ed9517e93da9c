"""A real browser, headless, and small assessments to fill pages with."""

import numpy as np
import pytest

from iknow import Assessment, Ball
from iknow.report import make_report
from iknow.selection import Selection
from iknow.selection.selection import Certificate
from tests.browsing import PATIENCE, start_browser, wait_for
from tests.oracles import gather

NAMES = "".join(
    f"const {name} = modules['{path}'];"
    for name, path in {
        "Algebra": "algebra.js", "Detail": "detail.js", "Dom": "dom.js", "Rules": "rules.js",
        "Reliability": "reliability.js", "Table": "table.js",
    }.items()
) + "const Report = modules['main.js'].report;"  # fmt: skip
"""The page's modules, by the names that scripts in tests call them."""
CERTIFICATE = Certificate(
    accuracy=0.5,
    confidence=0.95,
    bound=0.61,
    known=350,
    errors=2,
    n_samples=400,
    tested=3,
    procedure="exact tests",
)


@pytest.fixture(scope="session")
def browser():
    driver = start_browser()
    driver.set_script_timeout(PATIENCE)
    yield driver
    driver.quit()


@pytest.fixture
def open_page(browser, tmp_path):
    """Open a report, given as HTML, as by double-click; afterwards its console must be silent."""

    def open_(html, state="ready"):
        path = tmp_path / "report.html"
        path.write_text(html, encoding="utf-8")
        browser.get(path.as_uri())
        wait_for(
            lambda: browser.execute_script("return document.body.dataset.state") == state,
            f"the page to be {state}",
        )
        return Page(browser)

    browser.get_log("browser")
    yield open_
    assert browser.get_log("browser") == []


class Page:
    """What a person does with a report."""

    def __init__(self, browser):
        self.browser = browser

    def run(self, script, *arguments):
        return self.browser.execute_script(NAMES + script, *arguments)

    def text(self, selector):
        return self.run("return document.querySelector(arguments[0]).textContent", selector)

    def settle(self):
        """Wait until the page has drawn what was set."""
        self.browser.execute_async_script(
            "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(done))"
        )

    def set(self, selector, value, event="change"):
        self.run(
            "const field = document.querySelector(arguments[0]); field.value = arguments[1];"
            "field.dispatchEvent(new Event(arguments[2], { bubbles: true }));",
            selector, str(value), event,
        )  # fmt: skip
        self.settle()

    def find(self, selector, place=0):
        """An element on the page; it is brought into view."""
        found = self.browser.find_elements("css selector", selector)[place]
        self.run("arguments[0].scrollIntoView({ block: 'center' })", found)
        return found

    def click(self, selector, place=0):
        self.find(selector, place).click()
        self.settle()

    def press(self, selector, *keys):
        """Press keys, by the names selenium has for them, while an element has the focus."""
        from selenium.webdriver.common.keys import Keys

        self.run("document.querySelector(arguments[0]).focus()", selector)
        found = self.browser.find_element("css selector", selector)
        found.send_keys(*(getattr(Keys, key) for key in keys))
        self.settle()

    def click_at(self, element, x, y):
        """Click at an offset from the middle of an element."""
        from selenium.webdriver.common.action_chains import ActionChains

        self.run("arguments[0].scrollIntoView({ block: 'center' })", element)
        ActionChains(self.browser).move_to_element_with_offset(element, x, y).click().perform()
        self.settle()

    def rows(self):
        """The texts of the rows in view, cell by cell."""
        return self.run(
            "return [...document.querySelectorAll('.rows .row')].map("
            "row => [...row.children].map(cell => cell.textContent))"
        )

    def resize(self, width, height):
        self.browser.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600},
        )
        self.settle()

    def restore_size(self):
        self.browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def make_assessment(
    n=60, n_classes=4, n_neighbors=6, layers=("hidden", "logits"), seed=0, classes=None, rules=None,
    per_class=1,
):  # fmt: skip
    """An assessment by brute force from points in a plane, and the truth: mostly the belief."""
    rng = np.random.default_rng(seed)
    evidence = {}
    belief = rng.integers(n_classes, size=n)
    y_true = np.where(rng.random(n) < 0.8, belief, rng.integers(n_classes, size=n))
    seen = np.where(rng.random(n) < 0.5, belief, y_true)  # so some wrong beliefs are justified
    for layer in layers:
        labels = rng.integers(n_classes, size=80)
        labels[:n_classes] = np.arange(n_classes)
        centers = 5 * rng.normal(size=(n_classes, 2))
        train = centers[labels] + rng.normal(size=(80, 2))
        queries = centers[seen] + 1.2 * rng.normal(size=(n, 2))
        found = gather(train, labels, queries, n_classes, n_neighbors, per_class=per_class)
        evidence[layer] = found
    names = np.array([f"class {c}" for c in range(n_classes)]) if classes is None else classes
    assessment = Assessment(
        classes=names,
        belief_codes=belief,
        scores=np.eye(n_classes)[belief],
        evidence=evidence,
        neighborhoods=rules or {layer: Ball(0.8) for layer in layers},
        invalid=np.zeros(n, dtype=bool),
    )
    return assessment, names[y_true]


@pytest.fixture(scope="session")
def assessed():
    return make_assessment


@pytest.fixture(scope="session")
def gathered():
    return gather


@pytest.fixture(scope="session")
def digits_page():
    """A page with pictures: 120 samples of 5 × 4 pixels in two layers."""
    assessment, y_true = make_assessment(n=120)
    rng = np.random.default_rng(1)
    html = make_report(
        assessment, y_true, samples=rng.random((120, 5, 4)), training=rng.random((80, 5, 4))
    )
    return assessment, y_true, html


def make_selection(assessment, certificate):
    return Selection(
        neighborhoods=dict(assessment.neighborhoods),
        coverage=0.84,
        accuracy=0.993,
        accuracy_outside=0.7,
        method="exact",
        optimal=True,
        best_possible=0.84,
        n_samples=800,
        certificate=certificate,
        knowable=(0, 1) if certificate and certificate.by_class else None,
    )


@pytest.fixture(scope="session")
def selection_for():
    """Makes the record of a selection of an assessment's neighborhoods."""
    return make_selection


@pytest.fixture(scope="session")
def certificate():
    return CERTIFICATE
