"""What is in a piece of HTML, for tests of cards."""

from html.parser import HTMLParser

VOID = {"img", "br", "polyline"}


class Page(HTMLParser):
    """What is in a piece of HTML: its words, its tags, and whether they are well closed."""

    def __init__(self, markup):
        super().__init__()
        self.words, self.tags, self.open = "", [], []
        self.feed(markup)
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.words += data + " "
