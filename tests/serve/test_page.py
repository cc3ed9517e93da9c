"""The page in a real browser, fed by the real live state of a small digit reader."""

import re
from itertools import pairwise

import numpy as np
import pytest

from iknow.serve.page import HEADERS, STATIC, page_files
from tests.browsing import PATIENCE, start_browser, wait_for
from tests.serve.canned import (
    ACCURACY,
    HOSTILE,
    NOW,
    QUIET,
    RINGING,
    Clock,
    converse,
    make_live,
    read_digits,
    serving,
    status_of,
)

PAGE = "modules['serve/static/main.js'].page"


class Page:
    """What a person sees and does."""

    def __init__(self, browser, server):
        self.browser, self.server = browser, server
        browser.get(f"http://127.0.0.1:{server.server_port}/")
        wait_for(lambda: self.state != "loading", "the page to ask the server")

    def run(self, script, *arguments):
        return self.browser.execute_script(script, *arguments)

    @property
    def state(self):
        return self.run("return document.body.dataset.state")

    def text(self, selector):
        return self.run("return document.querySelector(arguments[0]).innerText", selector)

    def texts(self, selector):
        return self.run(
            "return [...document.querySelectorAll(arguments[0])].map((e) => e.innerText)", selector
        )

    def refresh(self):
        """Ask the server now, and wait for what it says."""
        before = self.run(f"return {PAGE}.answers")
        self.run(f"{PAGE}.refresh()")
        wait_for(lambda: self.run(f"return {PAGE}.answers") > before, "an answer")
        return self

    def answers_drawn(self):
        """How many answers the columns over time stand for."""
        titles = self.run(
            "return [...document.querySelectorAll('.timeline title')].map((t) => t.textContent)"
        )
        return sum(
            int(re.search(r": ([\d,]+) answers", each)[1].replace(",", "")) for each in titles
        )

    def find(self, selector):
        return self.browser.find_element("css selector", selector)


@pytest.fixture(scope="module")
def browser():
    driver = start_browser()
    driver.set_script_timeout(PATIENCE)
    yield driver
    driver.quit()


@pytest.fixture(scope="module")
def reader():
    return read_digits()


@pytest.fixture
def clock():
    return Clock(NOW)


@pytest.fixture
def live(reader, clock):
    return make_live(*reader, clock)


@pytest.fixture
def server():
    with serving() as server:
        yield server


@pytest.fixture
def open_page(browser, server):
    """Opens the page; afterwards nothing but refused requests may be in the console."""

    def open_(status):
        server.status = status
        return Page(browser, server)

    browser.get_log("browser")
    yield open_
    browser.execute_script("sessionStorage.clear()")
    browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
    assert [each for each in browser.get_log("browser") if each["source"] != "network"] == []


def share(part, whole):
    return f"{100 * part / whole:.1f}%"


def test_the_page_is_three_files_that_load_nothing_else():
    files = page_files()
    html, css, script = (files[path].content.decode() for path in ("/", "/page.css", "/page.js"))
    assert [file.content_type for file in files.values()] == [
        "text/html; charset=utf-8", "text/css; charset=utf-8", "text/javascript; charset=utf-8",
    ]  # fmt: skip
    assert not re.search(r"<style|<script>| style=| on\w+=", html)
    assert set(re.findall(r"(?:src|href)=\"([^\"]*)\"", html)) == {
        "data:,", "page.css", "page.js", "#models", "metrics", "openapi.json",
    }  # fmt: skip
    assert "@import" not in css
    assert "url(" not in css
    elsewhere = set(re.findall(r"https?://[^\s\"']+", html + css + script))
    assert elsewhere == {"http://www.w3.org/2000/svg"}  # a name, not a place
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|eval\(", script)
    assert "unsafe" not in HEADERS["Content-Security-Policy"]


def test_an_entity_tag_is_strong_and_follows_the_content():
    files = page_files()
    tags = {file.etag for file in files.values()}
    assert len(tags) == 3
    assert all(re.fullmatch(r'"[0-9a-f]{32}"', tag) for tag in tags)
    first = files["/"]
    assert first._replace(content_type="text/plain").etag == first.etag
    assert first._replace(content=first.content + b" ").etag != first.etag


def test_the_script_holds_no_module_that_the_page_does_not_use():
    script = page_files()["/page.js"].content.decode()
    held = set(re.findall(r'^modules\["(.+?)"\] = ', script, re.M))
    assert {f"serve/static/{path.name}" for path in STATIC.glob("*.js")} <= held
    assert held - {f"serve/static/{path.name}" for path in STATIC.glob("*.js")} == {
        "report/static/dom.js",
    }  # fmt: skip


@pytest.mark.slow
def test_from_the_first_request_to_an_alarm_and_after(open_page, live, reader, clock, server):
    page = open_page(status_of(live, QUIET))
    assert page.state == "healthy"
    assert "No request has come yet" in page.text(".now")
    assert page.texts(".unknown li") == []

    converse(live, reader[0], clock)
    server.status = status_of(live, QUIET, ACCURACY)
    page.refresh()
    found = server.status["models"][0]["live"]
    lately = found["lately"]
    assert page.texts(".now .tile .big") == [
        share(lately[name], lately["rows"]) for name in ("IK", "IMK", "IDK")
    ]
    assert (
        page.run("return document.title") == f"{share(lately['IK'], lately['rows'])} known · iknow"
    )
    assert page.run("return document.querySelectorAll('.unknown li').length") == len(
        found["unknown"]
    )
    assert len(page.texts(".classes tbody tr")) == len(found["by_class"]["rows"])
    assert "No sign of drift" in page.text(".alarm-card")
    assert "98.7% of 310 labels" in page.text(".accuracy-card")
    assert page.answers_drawn() == lately["rows"]
    page.find(".choice label:last-child").click()  # a day, from the minutes instead
    assert page.answers_drawn() == lately["rows"]

    server.status = status_of(live, RINGING)
    page.refresh()
    assert page.state == "alarm"
    assert page.text("#alert") == f"digits 3: {RINGING['text']}"
    assert "Drift, since sample 2,502" in page.text(".alarm-card")
    assert page.run("return document.title") == "Alarm · iknow"
    assert page.texts(".strongest tr.over th")[1:] == ["nine", "input"]

    server.status = None
    page.refresh()
    assert page.state == "gone"
    assert "The server is shutting down. Everything below is as of" in page.text("#alert")
    server.status = status_of(live, QUIET)
    page.refresh()
    assert page.state == "healthy"
    assert not page.find("#alert").is_displayed()


@pytest.mark.slow
def test_the_page_asks_again_by_itself(open_page, live, server):
    page = open_page(status_of(live))
    server.status = None
    wait_for(lambda: page.state == "gone", "the page to ask again")
    server.status = status_of(live)
    wait_for(lambda: page.state == "healthy", "the page to find the server again")


@pytest.mark.slow
def test_text_of_the_server_never_becomes_markup(open_page, live, reader, clock):
    converse(live, reader[0], clock)
    status = status_of(live, {**RINGING, "by_layer": {HOSTILE: 3.0}}, {**ACCURACY, "text": HOSTILE})
    model = status["models"][0]
    model["promises"], model["version"] = [HOSTILE], HOSTILE
    entry = model["live"]["unknown"][0]
    entry |= dict.fromkeys(("belief", "reason", "request", "sentence", "decides"), HOSTILE)
    near = {"row": 1, "label": HOSTILE, "distance": 2.0}
    entry["layers"] = [
        {
            "layer": HOSTILE,
            "reach": 1.0,
            "limit": HOSTILE,
            "findings": [HOSTILE],
            "for": [near],
            "against": [],
            "features": [
                {
                    "feature": HOSTILE,
                    "value": HOSTILE,
                    "values": [HOSTILE],
                    "share": 1.0,
                    "unseen": HOSTILE,
                }
            ],
        }
    ]
    entry["picture"] = {"png": "javascript:alert(1)", "width": 1, "height": 1}
    model["live"]["by_class"]["rows"][0]["label"] = HOSTILE
    status["server"]["audit"] = {"ok": True, HOSTILE: HOSTILE}
    page = open_page(status)
    page.run("document.querySelectorAll('.unknown details').forEach((d) => { d.open = true; })")
    wait_for(lambda: HOSTILE in page.text(".unknown .detail"), "the evidence")
    assert (
        page.run("return document.querySelectorAll('img:not([src^=\"data:image/png\"])').length")
        == 0
    )
    assert page.run("return document.querySelectorAll('[onerror]').length") == 0
    assert page.run("return document.title") == "Alarm · iknow"
    assert page.run("return document.body.innerText").count("onerror=") > 10


@pytest.mark.slow
def test_an_idk_opens_to_its_evidence_and_stays_open_as_others_come(
    open_page, live, reader, clock, server
):
    requests = converse(live, reader[0], clock, n_requests=3)
    page = open_page(status_of(live))
    place, newest = next(  # an input that is no number has no picture
        (i, each) for i, each in enumerate(live.to_dict()["unknown"]) if each["picture"]
    )
    page.run("document.querySelectorAll('.unknown summary')[arguments[0]].focus()", place)
    page.run("document.activeElement.click()")
    wait_for(lambda: page.texts(".unknown .detail"), "the evidence")
    shown = page.text(".unknown details[open] .detail")
    assert newest["request"] in shown
    for layer in newest["layers"]:
        assert all(f"#{each['row']} of" in shown for each in layer["for"] + layer["against"])
    pixels = page.run(
        "const image = document.querySelector('.unknown details[open] .portrait img');"
        "const pen = new OffscreenCanvas(8, 8).getContext('2d');"
        "pen.drawImage(image, 0, 0); return [...pen.getImageData(0, 0, 8, 8).data]"
    )
    sample = requests[newest["request"]][newest["row"]]
    assert pixels[0::4] == np.rint(255 * sample).tolist()

    converse(live, reader[0], clock, n_requests=2, seed=1)
    server.status = status_of(live)
    page.refresh()
    assert live.to_dict()["unknown"][0]["request"] != newest["request"]
    opened = page.texts(".unknown details[open] .detail")
    assert len(opened) == 1
    assert newest["request"] in opened[0]
    assert page.run("return document.activeElement.tagName") == "SUMMARY"


@pytest.mark.slow
def test_a_token_is_asked_for_and_kept_in_this_tab_alone(open_page, live, browser, server):
    server.token = "s3cret"
    page = open_page(status_of(live))
    assert page.state == "token"
    assert not page.find("main").is_displayed()
    field = page.find("#token")
    assert field == browser.switch_to.active_element
    asked = server.asked
    field.send_keys("wróng\n")
    wait_for(lambda: "plain letters" in page.text("#refused"), "the word to be refused")
    assert server.asked == asked
    field.clear()
    field.send_keys("wrong\n")
    wait_for(lambda: "got none or a wrong one" in page.text("#refused"), "the token to be refused")
    field.send_keys("s3cret\n")
    wait_for(lambda: page.state == "healthy", "the page to show")
    assert page.run("return [{...sessionStorage}, {...localStorage}, document.cookie]") == [
        {"iknow-token": "s3cret"}, {}, "",
    ]  # fmt: skip
    page.find("#forget").click()
    wait_for(lambda: page.state == "token", "the token to be forgotten")
    assert page.run("return sessionStorage.length") == 0


@pytest.mark.slow
def test_several_models_are_tabs_for_mouse_and_keys(open_page, live):
    from selenium.webdriver.common.keys import Keys

    status = status_of(live, QUIET, models=("digits", "signs", "waves"))
    status["models"][1]["alarm"] = RINGING
    page = open_page(status)
    chosen = "[role=tab][aria-selected=true]"
    assert "signs" in page.text(chosen)  # the one to look at
    page.find(chosen).send_keys(Keys.ARROW_RIGHT)
    assert "waves" in page.text(chosen)
    page.find(chosen).send_keys(Keys.ARROW_RIGHT)
    assert "digits" in page.text(chosen)
    visible = (
        "return [...document.querySelectorAll('[role=tabpanel]')].filter((p) => !p.hidden).length"
    )
    assert page.run(visible) == 1
    page.refresh()
    assert "digits" in page.text(chosen)


@pytest.mark.slow
def test_a_status_that_misses_something_is_shown_as_far_as_it_goes(open_page, live):
    status = status_of(live)
    del status["models"][0]["live"]["lately"], status["models"][0]["alarm"], status["server"]
    page = open_page(status)
    assert page.run("return document.querySelectorAll('.broken').length") == 1
    assert "No alarm watches this model" in page.text(".alarm-card")
    page.server.status = {"models": [None]}
    page.refresh()
    assert page.state == "gone"
    assert "cannot be shown" in page.text("#alert")
    page.server.status = {"server": {"ready": False}}
    page.refresh()
    assert page.state == "starting"
    assert page.find("#empty").is_displayed()


@pytest.mark.slow
@pytest.mark.parametrize("width", [320, 390, 820, 1400])
def test_nothing_is_wider_than_the_screen(open_page, live, reader, clock, browser, width):
    converse(live, reader[0], clock, n_requests=2)
    status = status_of(live, RINGING, ACCURACY, models=("digits", "w" * 100))
    browser.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": width < 600},
    )
    page = open_page(status)
    page.run("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    wait_for(lambda: page.texts(".unknown .detail"), "the evidence")
    assert page.run("return document.documentElement.scrollWidth") <= width


CONTRASTS = """
const pen = new OffscreenCanvas(1, 1).getContext("2d", { willReadFrequently: true });
const blend = (...colors) => {
  pen.clearRect(0, 0, 1, 1);
  for (const color of colors) { pen.fillStyle = color; pen.fillRect(0, 0, 1, 1); }
  return [...pen.getImageData(0, 0, 1, 1).data.slice(0, 3)];
};
const light = (rgb) => rgb.map((v) => v / 255)
  .map((v) => (v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
  .reduce((sum, v, c) => sum + v * [0.2126, 0.7152, 0.0722][c], 0);
const found = [];
for (const element of document.querySelectorAll("body *")) {
  const own = [...element.childNodes].some((n) => n.nodeType === 3 && n.textContent.trim());
  const sign = element.closest("[aria-hidden=true]");  // repeats what words say beside it
  if (!own || sign || !element.checkVisibility()) continue;
  const style = getComputedStyle(element), behind = [];
  for (let e = element; e; e = e.parentElement) behind.unshift(getComputedStyle(e).backgroundColor);
  const ink = element instanceof SVGElement ? style.fill : style.color;
  const [a, b] = [blend(...behind, ink), blend(...behind)].map(light);
  const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
  if (ratio < 4.5) found.push([element.className, element.textContent.slice(0, 40), ratio]);
}
return found;
"""


@pytest.mark.slow
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_can_be_read_and_all_controls_have_names(
    open_page, live, reader, clock, browser, scheme
):
    converse(live, reader[0], clock, n_requests=2)
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia",
        {"features": [{"name": "prefers-color-scheme", "value": scheme}]},
    )
    page = open_page(status_of(live, RINGING, {**ACCURACY, "alarmed": True}, ("digits", "signs")))
    page.run("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    wait_for(lambda: page.texts(".unknown .detail"), "the evidence")
    assert page.run(CONTRASTS) == []
    controls = browser.find_elements("css selector", "button, input, a, summary, [role=img]")
    assert [each.tag_name for each in controls if each.is_displayed()]
    assert all(each.accessible_name for each in controls if each.is_displayed())
    headings = page.run(
        "return [...document.querySelectorAll('h1, h2, h3, h4')].map((h) => +h.tagName[1])"
    )
    assert headings[0] == 1
    assert all(below <= above + 1 for above, below in pairwise(headings))
    assert page.run("return document.querySelectorAll('th:not([scope])').length") == 0
    assert page.run("return document.querySelectorAll('[aria-live], [role=status]').length") == 0
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})


@pytest.mark.slow
def test_numbers_as_a_person_says_them(open_page, live):
    page = open_page(status_of(live))
    said = page.run(
        "const w = modules['serve/static/words.js'];"
        "return [w.share(0, 0), w.share(1, 3), w.share(1, 9999), w.share(9998, 9999),"
        "w.share(3, 3),"
        "w.duration(1), w.duration(119), w.duration(86400 * 3), w.ago(0.4), w.ago(61),"
        "w.latency(0.0042), w.latency(12.34), w.latency(null), w.odds(-3), w.odds(2), w.odds(31.7),"
        "w.level(0), w.level(0.004), w.level(0.5), w.sentence('no'), w.perSecond(0.21)]"
    )
    assert said == [
        "–", "33.3%", "< 0.1%", "> 99.9%", "100.0%", "1 second", "1 minute", "3 days", "just now",
        "1 minute ago", "4.2 ms", "12.3 s", "–", "below 1", "100", "> 10⁶", "0", "0.004", "0.50",
        "No.", "0.21/s",
    ]  # fmt: skip


def test_the_estimated_accuracy_is_shown_where_it_is_known(open_page, live):
    status = status_of(live)
    assert status["models"][0]["live"]["estimate"] is None
    page = open_page(status)
    assert page.run("return document.querySelector('.estimate-card').hidden")
    status["models"][0]["live"]["estimate"] = {
        "n": 5300, "accuracy": 0.8561, "low": 0.786, "high": 0.927, "unseen": 0.066,
    }  # fmt: skip
    page.server.status = status
    told = page.refresh().text(".estimate-card")
    assert "85.6% of the last 5,300 answers" in told
    assert "Between 78.6% and 92.7%, if the data comes like the validation data" in told
    assert "6.6% of it is unlike anything seen before" in told
