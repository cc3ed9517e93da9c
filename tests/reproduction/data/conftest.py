"""A web server on this machine, in place of the network."""

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest


class Server:
    """A web server on this machine. pages: by path, what to send; requests: the paths asked for."""

    def __init__(self):
        self.pages, self.requests = {}, []
        self.headers = {}  # by path, those of the last request
        self.announced = {}  # by path, a length that differs from the page's
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                outer.requests.append(self.path)
                outer.headers[self.path] = self.headers
                page = outer.pages.get(self.path)
                if page is None:
                    self.send_error(404)
                    return
                self.send_response(200)
                self.send_header("Content-Length", str(outer.announced.get(self.path, len(page))))
                self.end_headers()
                self.wfile.write(page)

            def log_message(self, *args):
                pass

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}"


@pytest.fixture
def server(monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    it = Server()
    thread = threading.Thread(target=it.http.serve_forever, args=(0.01,))
    thread.start()
    yield it
    it.http.shutdown()
    thread.join()
    it.http.server_close()
