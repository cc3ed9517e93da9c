"""The bundle runs modules as a browser would: in the order of their imports, and with their names.

The oracle is the browser's own loader, which gets the same files from a server.
"""

import functools
import http.server
import threading
from graphlib import CycleError

import pytest

from iknow.errors import InputError
from iknow.report.assemble import STATIC, bundle
from iknow.report.columns import has_mirror
from iknow.rules import RULES

EXPORTS = """
const [base, paths, done] = arguments;
Promise.all(paths.map((path) => import(base + path)))
  .then((found) => done(found.map((exported) => Object.keys(exported).sort())), String);
"""


@pytest.fixture
def served():
    class Quiet(http.server.SimpleHTTPRequestHandler):
        def do_GET(self):
            if self.path != "/favicon.ico":
                return super().do_GET()
            self.send_response(204)
            return self.end_headers()

        def log_message(self, *_):
            pass

    handler = functools.partial(Quiet, directory=STATIC)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()
        thread.join()


def test_modules_export_what_the_browsers_own_loader_says(digits_page, browser, open_page, served):
    page = open_page(digits_page[2])
    found = page.run(
        "return Object.fromEntries(Object.entries(modules).map("
        "([path, exported]) => [path, Object.keys(exported).sort()]))"
    )
    assert set(found) == {path.relative_to(STATIC).as_posix() for path in STATIC.rglob("*.js")}
    assert page.run("return Object.keys(Rules.RULES)") == [
        name for name, rule in RULES.items() if has_mirror(rule)
    ]
    paths = sorted(set(found) - {"main.js"})  # which would start a page
    browser.get(served + "page.css")
    exported = browser.execute_async_script(EXPORTS, served, paths)
    assert dict(zip(paths, exported, strict=True)) == {path: found[path] for path in paths}


def test_what_is_imported_comes_first_and_once():
    script = bundle(
        {
            "main.js": 'import * as A from "./a.js";\nimport { c } from "./deep/c.js";\nA.a(c);\n',
            "a.js": 'import { c } from "./deep/c.js";\nexport function a() {}\n',
            "deep/c.js": 'import {\n  b,\n} from "../b.js";\nexport const c = b;\n',
            "b.js": "const [b, d] = [1, 2];\nexport { b, d };\n",
            "unused.js": "export const never = 0;\n",
        },
        "main.js",
    )
    order = ["b.js", "deep/c.js", "a.js", "main.js"]
    assert [line[9:-13] for line in script.splitlines() if line.endswith("(() => {")] == order
    assert 'const { b } = modules["b.js"];' in script
    assert script.startswith('"use strict";')
    assert "import" not in script
    assert "export" not in script


@pytest.mark.parametrize(
    ("sources", "words"),
    [
        ({"m.js": 'import { a as b } from "./m.js";\n'}, "import { a as b }"),
        ({"m.js": 'import a from "./m.js";\n'}, "import a from"),
        ({"m.js": "export default 1;\n"}, "export default 1;"),
        ({"m.js": "export let a = 1;\n"}, "export let a"),
        ({"m.js": "  export const a = 1;\n"}, "export const a"),
        ({"m.js": 'const end = "</SCRIPT>";\n'}, "m.js: </SCRIPT"),
        ({"m.js": "x <!-- y;\n"}, "<!--"),
    ],
)
def test_what_the_bundle_would_read_differently_is_refused(sources, words):
    with pytest.raises(InputError) as refused:
        bundle(sources, "m.js")
    assert words in str(refused.value)


def test_modules_that_are_missing_or_import_each_other_are_refused():
    with pytest.raises(KeyError, match=r"a\.js"):
        bundle({"m.js": 'import { a } from "./a.js";\n'}, "m.js")
    with pytest.raises(CycleError, match=r"m\.js"):
        bundle({"m.js": 'import { a } from "./m.js";\n'}, "m.js")
