"""Assembly: text, data, style and script → one page, and the policy that guards it."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from iknow.cards import SHADES
from iknow.report.album import Album
from iknow.report.modules import bundle
from iknow.report.packing import pack_arrays, to_json
from iknow.report.words import describe_pictures, paragraphs

STATIC = Path(__file__).parent / "static"


def assemble(
    prose: Mapping[str, str],
    facts: Mapping[str, Any],
    columns: Mapping[str, NDArray[Any]],
    album: Album,
) -> str:
    """The whole page. prose: markup by the name of its place in page.html."""
    pictures = _picture_columns(album, facts["n"])
    arrays, packed = pack_arrays({**columns, **pictures})
    n_pictured = int((pictures["samplePictures"] >= 0).sum())
    style = read_style()
    modules = {path.relative_to(STATIC).as_posix(): path for path in STATIC.rglob("*.js")}
    script = bundle({name: path.read_text("utf-8") for name, path in modules.items()}, "main.js")
    parts = {
        **prose,
        "pictured": paragraphs(describe_pictures(n_pictured, facts["n"])),
        "style": style,
        "script": script,
        "policy": f"{style_policy(style)}; script-src {_fingerprint(script)}",
        "facts": to_json({**facts, "arrays": arrays, "names": list(album.names)}),
        "arrays": packed,
        "pictures": "\n".join(
            f'<script type="application/octet-stream" id="pictures-{place}">{part}</script>'
            for place, part in enumerate(album.parts)
        ),
    }
    # One pass: what is inserted is not searched again.
    return re.sub(r"\{\{(\w+)\}\}", lambda place: parts[place[1]], _read("page.html"))


def _picture_columns(album: Album, n_samples: int) -> dict[str, NDArray[Any]]:
    """The positions of the pictures of samples and training rows; -1 for a sample without one."""
    training = album.training_rows()
    places = [album.place(("training", row)) for row in training]
    samples = [album.place(("sample", at)) for at in range(n_samples)]
    return {
        "pictures": album.index().astype(np.int32),
        "samplePictures": np.array(samples, dtype=np.int32),
        "trainingRows": np.array(training, dtype=np.int64),
        "trainingPictures": np.array(places, dtype=np.int32),
    }


def read_style() -> str:
    """The style sheet of every page."""
    return _colors() + _read("page.css")


def style_policy(style: str) -> str:
    """The policy of a page that loads nothing and has this style sheet alone."""
    return (
        "default-src 'none'; base-uri 'none'; form-action 'none'; img-src data:; "
        f"style-src {_fingerprint(style)}"
    )


def _colors() -> str:
    """The colors of the assertions, under names for the style sheet to choose from."""
    shades = (
        f"--{assertion.name.lower()}-{on.replace('_', '-')}: {shade}; "
        for assertion, colors in SHADES.items()
        for on, shade in colors._asdict().items()
    )
    return f":root {{ {''.join(shades)}}}\n"


def _read(name: str) -> str:
    return (STATIC / name).read_text("utf-8")


def _fingerprint(text: str) -> str:
    """How a content security policy names an inline style or script."""
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"
