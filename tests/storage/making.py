"""Bundles taken apart and put together again, as somebody can who knows the format."""

import hashlib
import json
import zipfile

from iknow.storage.archive import (
    ALIGNMENT,
    FIRST_DAY,
    SECTOR,
    START,
    Head,
    Mark,
    encode_mark,
    open_file,
    read_marks,
    read_zip,
    write_file,
)
from iknow.storage.manifest import About, ClassifierRecord, Reading


def unpack(path):
    """The contents of a bundle's file by their names."""
    whole = path.read_bytes()
    return {name: whole[place] for name, place in open_file(path).places.items()}


def place_of(path, name):
    """Where in a bundle's file a content lies."""
    return open_file(path).places[name]


def pack(path, contents):
    """Write contents, whatever they are, in a file without a fault."""
    with path.open("w+b") as file:
        write_file(file, [(name, [content]) for name, content in contents.items()])


def change(path, name, edit):
    """Change one content without touching the checksums in the manifest."""
    contents = unpack(path)
    contents[name] = edit(contents[name])
    pack(path, contents)


def write_manifest(manifest):
    """The text of any JSON, as a manifest is written, without any of the writer's own checks."""

    def encode(value):
        return json.dumps(value, ensure_ascii=False)

    lines = [f"{encode(key)}: {encode(value)}" for key, value in manifest.items()]
    return ("{\n" + ",\n".join(lines) + "\n}\n").encode("utf-8", "backslashreplace")


def rewrite_manifest(path, edit):
    """Change a manifest as JSON, and seal the file again."""

    def rewrite(text):
        manifest = json.loads(text)
        edit(manifest)
        return write_manifest(manifest)

    change(path, "manifest.json", rewrite)


def seal_frame(whole):
    """The same file with marks that are right for what lies around its contents."""

    def read(start, stop):
        return bytes(whole[start:stop])

    mark = read_marks(read).last
    frame = read_zip(read, START, mark.zip_end)[1]
    return 2 * encode_mark(mark._replace(frame=frame)) + whole[START:]


def set_format(path, number, *, sealed):
    """Claim another format in both marks; sealed: with the checksum of ours."""
    marks = b""
    for place in (0, SECTOR):
        sector = path.read_bytes()[place : place + SECTOR]
        text = b"iknow bundle %d\n" % number
        body = text.ljust(24, b"\0") + sector[24:152]
        seal = hashlib.sha256(body).digest() if sealed else bytes(32)
        marks += (body + seal).ljust(SECTOR, b"\0")
    path.write_bytes(marks + path.read_bytes()[START:])


def write_sparse(path, contents):
    """Write a file of contents, each a name, its first bytes, and how many zeros follow.

    The zeros take no room, and their CRC-32 is not computed.
    """
    with path.open("w+b") as file:
        file.write(bytes(START))
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            for name, start, more in contents:
                entry = zipfile.ZipInfo(name, FIRST_DAY)
                padding = -(file.tell() + 30 + len(name) + 4 + 20) % ALIGNMENT
                entry.extra = b"\x35\xd9" + padding.to_bytes(2, "little") + bytes(padding)
                with archive.open(entry, "w", force_zip64=True) as content:
                    content.write(start)
                    content._file_size += more
                    file.seek(more, 1)
        end = file.tell()

        def read(start, stop):
            file.seek(start)
            return file.read(stop - start)

        digest = hashlib.sha256(contents[0][1]).digest()
        frame = read_zip(read, START, end)[1]
        file.seek(0)
        file.write(2 * encode_mark(Mark(0, end, frame, digest, Head(0, end, digest))))


def make_settings(counts, **given):
    """Settings of a classifier with one rule for all layers, and samples of these counts."""
    about = About(None, None, "", "2026-01-31T12:00:00Z", "a model", counts, None)
    usual = {
        "rule": None,
        "fixed": "one",
        "k": 5,
        "batch_size": None,
        "layers": False,
        "metric": None,
        "classes": False,
        "validation_fraction": 0.25,
        "random_state": 0,
        "progress": True,
        "quorum": None,
        "n_features_in": None,
        "feature_names_in": None,
        "probe": "nothing is known",
        "about": about,
        "reading": Reading(None, None, None, None, []),
    }
    return ClassifierRecord(**usual | given)
