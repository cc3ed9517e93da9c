"""The Open Inference Protocol, asked by Triton's own client; what it must say is known from the
classifier itself.
"""

import json
from urllib.request import Request, urlopen

import numpy as np
import pytest

triton = pytest.importorskip("tritonclient.http")
Refused = triton.InferenceServerException
OUTPUTS = ["belief", "assertion", "reason", "level", "probability", "scores"]


@pytest.fixture
def client(url):
    made = triton.InferenceServerClient(url.removeprefix("http://"))
    yield made
    made.close()


@pytest.fixture
def expected(digits):
    return digits.classifier.assess(digits.X[:7])


def tensor(array, kind, *, binary, name="rows"):
    made = triton.InferInput(name, list(array.shape), kind)
    made.set_data_from_numpy(array, binary_data=binary)
    return made


def check(result, expected):
    np.testing.assert_array_equal(result.as_numpy("belief"), expected.belief)
    for name in ("assertion", "reason"):
        words = [
            text.decode() if isinstance(text, bytes) else text for text in result.as_numpy(name)
        ]
        assert words == [word.name for word in getattr(expected, name)]
    np.testing.assert_allclose(result.as_numpy("level"), expected.level)
    np.testing.assert_allclose(result.as_numpy("probability"), expected.probability)


@pytest.mark.parametrize("binary_out", [True, False], ids=["bytes out", "JSON out"])
@pytest.mark.parametrize("binary_in", [True, False], ids=["bytes in", "JSON in"])
@pytest.mark.parametrize("kind", ["FP64", "FP32"])
def test_infer(client, digits, expected, kind, binary_in, binary_out):
    X = digits.X[:7].astype({"FP64": np.float64, "FP32": np.float32}[kind])  # sixteenths: exact
    asked = [triton.InferRequestedOutput(name, binary_data=binary_out) for name in OUTPUTS]
    inputs = [tensor(X, kind, binary=binary_in)]
    result = client.infer("digits", inputs, outputs=asked, request_id="r-1")
    check(result, expected)
    np.testing.assert_allclose(result.as_numpy("scores"), expected.scores)
    said = result.get_response()
    assert (said["model_name"], said["model_version"], said["id"]) == ("digits", "1", "r-1")


def test_infer_with_nothing_said_about_outputs(client, digits, expected):
    result = client.infer("digits", [tensor(digits.X[:7], "FP64", binary=True)])
    check(result, expected)
    assert result.as_numpy("scores") is None  # on request only


def test_some_outputs_as_bytes_and_some_as_text(client, digits, expected):
    asked = [
        triton.InferRequestedOutput("level", binary_data=True),
        triton.InferRequestedOutput("belief", binary_data=False),
    ]
    result = client.infer("digits", [tensor(digits.X[:7], "FP64", binary=True)], outputs=asked)
    np.testing.assert_array_equal(result.as_numpy("belief"), expected.belief)
    np.testing.assert_array_equal(result.as_numpy("level"), expected.level)
    assert result.as_numpy("assertion") is None


def test_integers_are_numbers_too(client):
    zeros = client.infer("digits", [tensor(np.zeros((2, 64), np.uint8), "UINT8", binary=True)])
    assert zeros.as_numpy("belief").shape == (2,)


def test_a_version_by_its_name(client, digits, expected):
    inputs = [tensor(digits.X[:7], "FP64", binary=False)]
    check(client.infer("digits", inputs, model_version="1"), expected)
    with pytest.raises(Refused, match="2"):
        client.infer("digits", inputs, model_version="2")


def test_asynchronous_requests(client, digits, expected):
    inputs = [tensor(digits.X[:7], "FP64", binary=True)]
    check(client.async_infer("digits", inputs).get_result(), expected)


def test_a_compressed_request_is_told_to_come_plain(client, digits):
    inputs = [tensor(digits.X[:7], "FP64", binary=True)]
    with pytest.raises(Refused, match="compressed bodies are not read"):
        client.infer("digits", inputs, request_compression_algorithm="gzip")


def test_a_compressed_response_may_come_plain(client, digits, expected):
    inputs = [tensor(digits.X[:7], "FP64", binary=True)]
    check(client.infer("digits", inputs, response_compression_algorithm="gzip"), expected)


def test_health_and_metadata(client):
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("digits")
    assert client.is_model_ready("digits", "1")
    assert not client.is_model_ready("cats")
    assert not client.is_model_ready("digits", "2")
    server = client.get_server_metadata()
    assert server["name"] == "iknow"
    model = client.get_model_metadata("digits")
    assert model["inputs"] == [{"name": "rows", "datatype": "FP32", "shape": [-1, 64]}]
    assert [each["name"] for each in model["outputs"]] == OUTPUTS
    assert model["versions"] == ["1"]
    assert model == client.get_model_metadata("digits", "1")


def test_a_client_that_knows_only_the_metadata_can_ask(client, digits, expected):
    """As KServe's and Triton's generic tools do: names, types and shapes come from the server."""
    model = client.get_model_metadata("digits")
    (described,) = model["inputs"]
    X = digits.X[:7].astype(triton.triton_to_np_dtype(described["datatype"]))
    asked = [triton.InferRequestedOutput(each["name"]) for each in model["outputs"]]
    inputs = [tensor(X, described["datatype"], binary=True, name=described["name"])]
    result = client.infer(model["name"], inputs, outputs=asked)
    check(result, expected)
    for each in model["outputs"]:
        found = result.get_output(each["name"])
        assert found["datatype"] == each["datatype"], each["name"]
        assert len(found["shape"]) == len(each["shape"])


@pytest.mark.parametrize(
    ("array", "kind", "message"),
    [
        (np.zeros((2, 3)), "FP64", "64 features"),
        (np.zeros((0, 64)), "FP64", "at least one"),
        (np.array([["a"] * 64], dtype=object), "BYTES", "array or a data frame|numbers"),
    ],
)
def test_errors_reach_the_client_as_sentences(client, array, kind, message):
    with pytest.raises(Refused, match=message):
        client.infer("digits", [tensor(array, kind, binary=True)])
    with pytest.raises(Refused, match="the outputs are"):
        client.infer(
            "digits", [tensor(np.zeros((1, 64)), "FP64", binary=True)],
            outputs=[triton.InferRequestedOutput("nothing")],
        )  # fmt: skip


def test_a_row_that_is_not_finite_is_invalid_and_no_other(client, digits):
    X = digits.X[:3].copy()
    X[1, 0] = np.inf
    result = client.infer("digits", [tensor(X, "FP64", binary=True)])
    reasons = [bytes(each).decode() for each in result.as_numpy("reason")]
    assert [reason == "INVALID" for reason in reasons] == [False, True, False]
    assert result.as_numpy("belief")[1] == -1  # the protocol has no null


@pytest.mark.parametrize("shape", [[2, 64], [128]], ids=["nested", "flat"])
def test_plain_json_as_the_protocol_shows_it(url, digits, shape):
    data = digits.X[:2].reshape(shape).tolist()
    body = {"inputs": [{"name": "rows", "shape": [2, 64], "datatype": "FP64", "data": data}]}
    request = Request(f"{url}/v2/models/digits/infer", json.dumps(body).encode())
    said = json.load(urlopen(request))
    outputs = {each["name"]: each["data"] for each in said["outputs"]}
    expected = digits.classifier.assess(digits.X[:2])
    assert outputs["belief"] == expected.belief.tolist()
    assert outputs["assertion"] == [word.name for word in expected.assertion]
