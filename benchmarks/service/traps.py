"""Traps: requests made by hand to break a server, in every format."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np

from benchmarks.service.asking import LENGTH_HEADER, NPY, as_json, as_npy, assess_path, tensor
from benchmarks.service.small import digits
from benchmarks.service.wire import Asked

INFER = "/v2/models/digits/infer"
DIGITS = assess_path("digits")


@cache
def traps() -> tuple[Asked, ...]:
    """All of them."""
    return (*_json_traps(), *_npy_traps(), *_v2_traps(), *_label_traps(), *_odd())


def _json_traps() -> Iterator[Asked]:
    row = "[" + ",".join(["1"] * 63) + ",%s]"
    values = ("1e999", "-1e999", "NaN", "Infinity", "-Infinity", "null", "true", '"1"', "[]", "{}",
              "9" * 400, "-" + "9" * 5000, "1e-999", "0.0e0", "1" + "0" * 300 + ".5", "[1]", "1e",
              '"\\ud800"', "--1", "0x10", "+1", "01", ".5")  # fmt: skip
    bodies = ['{"rows":[%s]}' % (row % value) for value in values]
    bodies += ['{"rows":%s}' % ("[" * n + "]" * n) for n in (2, 33, 65, 150, 1000, 100_000)]
    bodies += ['{"rows":%s' % ('{"a":' * n) for n in (1, 100, 100_000)]
    bodies += [
        "", " ", "null", "0", '"rows"', "[]", "[[1]]", "{}", '{"rows":null}', '{"rows":{}}',
        '{"rows":[]}', '{"rows":[[]]}', '{"rows":[[[]]]}', '{"rows":[[],[1]]}', '{"rows":[{}]}',
        '{"rows":[{},{"a":1}]}', '{"rows":["a",1]}', '{"rows":[[1],2]}', '{"rows":[null]}',
        '{"rows":[1,2]}', '{"rows":[true]}', '{"rows":[[1]],"rows":[[2]]}', '{"inputs":{}}',
        '{"rows":[{"a":1,"a":2}]}', '{"rows":[{"\\ud800":1}]}', '{"rows":["\\udfff"]}',
        '{"inputs":{"rows":[[1]],"rows":[[2]]}}', '{"inputs":{"a":[1],"b":[1,2]}}',
        '{"inputs":[]}', '{"inputs":{"a":[]}}', '{"inputs":{"a":[{"b":1}]}}', '{"rows":[[1]]}x',
        '{"inputs":{"\\u0000":["\\u0000"]}}', '{"rows":[["a"]]}', '{"rows":[[[[[[1]]]]]]}',
        '{"rows":[{"width":1,"height":2,"color":[1]}]}', '{"rows":[{"width":null,"height":1}]}',
        '{"rows":[{"width":"x","height":1,"color":"red"}]}', '\ufeff{"rows":[[1]]}',
        '{"rows":[{"width":1e400,"height":NaN,"color":null}]}', '{"rows":[{"color":{}}]}',
        '{"rows":[{"width":1,"height":2,"color":7},{"width":1,"height":2,"color":"red"}]}',
        '{"rows":[{"width":true,"height":false,"color":"\\u0000"}]}',
        json.dumps({"rows": [[0] * 100_000]}), json.dumps({"rows": [[0]] * 20_000}),
    ]  # fmt: skip
    for body in bodies:
        for model in ("digits", "table", "texts"):
            yield Asked(assess_path(model), body.encode(), what="json trap")
    for raw in (b'{"rows":["\xff\xfe"]}', b"\x00" * 50, b'{"ro\xc3ws":1}', b"\xff\xfe{\x00}\x00",
                b'{"rows":["\xed\xa0\x80"]}'):  # fmt: skip
        yield Asked(assess_path("texts"), raw, what="json trap")


def _npy_traps() -> Iterator[Asked]:
    rows = digits()[1][:2]
    arrays: list[Any] = [
        rows[0], rows[0, 0], rows[:0], rows[:, :0], rows[:, :63], rows[..., None],
        rows.astype("S8"), rows.astype(complex), rows.astype(">f8"), rows.astype(np.float16),
        rows > 3,
        rows.astype("M8[s]"), np.zeros(2, dtype=[("a", "f8"), ("b", "i4")]), np.array(["a", "b"]),
        np.array([["a"]]), np.full((2, 64), np.nan), np.full((2, 64), np.inf),
        np.full((1, 64), 1e308), np.full((1, 64), -1e308), np.zeros((2, 64), np.longdouble),
        np.zeros((20_000, 1)), np.zeros((1,) * 32), np.array(["\ud800"]), np.zeros((2, 64), "V8"),
    ]  # fmt: skip
    bodies = [as_npy(array) for array in arrays]
    bodies += [as_npy(np.array([[{}, []], [None, 1]], dtype=object), objects=True)]
    for shape in ("(1000000000000, 64)", "(-1, 64)", "(2, -64)", "(9999999999999999999999, 64)",
                  "(2.5, 64)", "()", "(2,64,0)", "'x'", "None", "(True, 64)"):  # fmt: skip
        bodies.append(_npy_head("<f8", shape) + bytes(1024))
    for dtype in ("O", "|O", "<f9", "V0", "<U0", "S0", "<U99999999", "f8,f8", "", "<M8"):
        bodies.append(_npy_head(dtype, "(2, 64)") + bytes(1024))
    bodies += [b"\x93NUMPY", b"\x93NUMPY\x09\x00", b"\x93NUMPY\x01\x00\xff\xff", b"PK\x03\x04"]
    bodies.append(b"\x93NUMPY\x02\x00" + struct.pack("<I", 2**32 - 1) + b"{}")
    bodies.append(b"\x93NUMPY\x01\x00" + struct.pack("<H", 2000) + b"(" * 2000)
    for body in bodies:
        for model in ("digits", "texts", "table"):
            yield Asked(assess_path(model), body, NPY, what="npy trap")


def _npy_head(dtype: str, shape: str) -> bytes:
    text = f"{{'descr': '{dtype}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text


def _v2_traps() -> Iterator[Asked]:
    rows = digits()[1][:2]
    good = tensor(rows)
    changes: list[dict[str, Any]] = [
        {"shape": shape}
        for shape in ([2**62, 2**62], [-2, -64], [64, 2], [], [2, 64, 1], None, "2", [True, 128],
                      [0, 64], [2, 64] * 9, [2.0, 64], [128], [10**30], [1] * 8 + [128])
    ]  # fmt: skip
    kinds: tuple[Any, ...] = (
        "FP16", "INT8", "UINT64", "BOOL", "BYTES", "fp64", "", None, 7, "OBJECT",
    )  # fmt: skip
    data: tuple[Any, ...] = (
        None, [], [[]], [None] * 128, ["1"] * 128, {}, "x", [1e400] * 128, [2**70] * 128,
        [[1, 2], [3]],
    )  # fmt: skip
    sizes: tuple[Any, ...] = (0, -1, 1, 1024, 10**15, True, "1024", None, 1.5)
    names: tuple[Any, ...] = (None, 7, "", "\ud800", "x" * 10_000)
    changes += [{"datatype": each} for each in kinds] + [{"data": each} for each in data]
    changes += [{"name": each} for each in names]
    changes += [{"parameters": {"binary_data_size": each}} for each in sizes]
    said: list[Any] = [{"inputs": [good | change]} for change in changes]
    inputs: tuple[Any, ...] = ([], None, {}, [1], [good, good], [{}], [[]])
    said += [{"inputs": each} for each in inputs]
    outputs: tuple[Any, ...] = (
        [1], {}, "x", [{"name": "nothing"}], [{"name": None}], [{"name": []}],
        [{"name": "belief", "parameters": 3}], [{"name": "scores"}] * 50,
    )  # fmt: skip
    said += [{"inputs": [good], "outputs": each} for each in outputs]
    ids: tuple[Any, ...] = (1, None, [], "\x00\r\n", "x" * 100_000)
    said += [{"inputs": [good], "id": each} for each in ids]
    parameters: tuple[Any, ...] = (1, [], {"binary_data_output": 7})
    said += [{"inputs": [good], "parameters": each} for each in parameters]
    said += [None, 1, [], {"inputs": [good | {"data": []}] * 100}]
    for each in said:
        text = as_json(each)
        yield Asked(INFER, text, what="v2 trap")
        for length in (0, len(text), len(text) + 1, "x", -1, "9" * 30, "1e3", " ", "٣"):
            header = ((LENGTH_HEADER, str(length)),)
            yield Asked(INFER, text, headers=header, what="v2 trap")


def _label_traps() -> Iterator[Asked]:
    good = {"request": "a", "row": 0, "label": 1}
    changes: tuple[dict[str, Any], ...] = (
                   {}, {"row": -1}, {"row": 2**70}, {"row": 2**63}, {"row": True}, {"row": 1.5},
                   {"request": None}, {"request": "\ud800"}, {"request": "x" * 10_000},
                   {"request": "'; drop table records; --"}, {"label": None}, {"label": []},
                   {"label": 1e400}, {"label": "\ud800"}, {"label": 10**400}, {"more": 1},
                   {"request": "\x00"},
    )  # fmt: skip
    for change in changes:
        yield Asked("/v1/labels", as_json({"labels": [{**good, **change}]}), what="label trap")
    for body in ("{}", '{"labels":[]}', '{"labels":{}}', '{"labels":[1]}', "[]", "x", "",
                 json.dumps({"labels": [good] * 10_001})):  # fmt: skip
        yield Asked("/v1/labels", body.encode(), what="label trap")


def _odd() -> Iterator[Asked]:
    """Odd paths, methods and heads."""
    names = ("nothing", "..", "%2e%2e", "%00", "digits%2f", "digits%0a", "%ff", "x" * 5000, " ",
             "digits;x", "é", "%ud800", "a" * 100 + "/b", "digits/versions/", "digits?x",
             "")  # fmt: skip
    body = as_json({"rows": digits()[1][:1].tolist()})
    for name in names:
        path = assess_path(name)
        yield Asked(path, body, broken=not path.isascii() or " " in path, what="odd")
        yield Asked(f"/v2/models/{name}".replace(" ", "%20"), method="GET", kind=None,
                    broken=not name.isascii(), what="odd")  # fmt: skip
    for version in ("0", "2", "1.0", "%31", "latest", "-1", "x" * 300, "%00", "1%2f"):
        yield Asked(f"/v1/models/digits/versions/{version}/assess", body, what="odd")
    for query in ("?evidence=maybe", "?evidence=1&evidence=0", "?exemplars=", "?watch=%00", "?=&&",
                  "?evidence=true&x=" + "y" * 3000, "?%ff=%ff", "?watch[]=1"):  # fmt: skip
        yield Asked(DIGITS + query, body, what="odd")
    for method in ("GET", "PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "TRACE"):
        yield Asked(DIGITS, body, method=method, what="odd")
    for path in ("/v1/reload", "/v1/models/digits/alarm/reset", "/v1/models/nothing/alarm/reset"):
        yield Asked(path, method="POST", what="odd")
    for kind in ("text/plain", "application/json; charset=utf-16", "", ";", "x" * 2000, "*/*",
                 "application/x-npy;", "APPLICATION/JSON", "multipart/form-data; boundary=x",
                 "application/x-www-form-urlencoded", "application/json\x01", None):  # fmt: skip
        yield Asked(DIGITS, body, kind, broken=kind is not None and "\x01" in kind, what="odd")
    for name, value in (("X-Request-Id", "\x01\x02"), ("X-Request-Id", "x" * 500),
                        ("X-Request-Id", "a\tb"), ("X-Request-Id", "<script>"),
                        ("X-Request-Id", "é"), ("Authorization", "Bearer \udcff"),
                        ("Authorization", "Basic x"), ("Host", "evil.example"), ("Host", ""),
                        ("Host", "[::1"), ("Host", "127.0.0.1:99999999"),
                        ("Expect", "100-continue"), ("traceparent", "00-zz-zz-zz"),
                        ("Accept", "text/html"), ("X", "y" * 9000),
                        ("Accept-Encoding", "\x7f"), ("Content-Encoding", "gzip"),
                        ("Upgrade", "websocket"), ("Connection", "upgrade"),
                        ("Range", "bytes=0-1")):  # fmt: skip
        yield Asked(DIGITS, body, headers=((name, value),), broken=True, what="odd")
    for length in ("0", "1", str(len(body) - 1), str(len(body) + 1), "-1", "x", "9" * 30, "1e3",
                   "+5", "33554433", "99999999999"):  # fmt: skip
        yield Asked(DIGITS, body, length=length, broken=True, what="odd")
    for encoding in ("chunked", "gzip", "identity", "x"):
        headers = (("Transfer-Encoding", encoding),)
        yield Asked(DIGITS, b"5\r\n" + body, headers=headers, broken=True, what="odd")
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in (body[:9], body[9:]))
    headers = (("Transfer-Encoding", "chunked"),)
    yield Asked(DIGITS, chunks + b"0\r\n\r\n", headers=headers, what="odd")
