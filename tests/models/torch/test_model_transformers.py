"""TorchModel on Hugging Face transformers, against the hidden states that these return."""

import numpy as np
import pytest
import torch

from iknow import EpistemicClassifier
from iknow.core.assertion import Assertion
from iknow.errors import InputError, LayerError
from iknow.models.inputs import measure
from iknow.models.torch import TorchModel
from iknow.testing import ModelContract
from tests.choosing import level_layers, paper_layers
from tests.models.keeping import assert_comes_back

transformers = pytest.importorskip("transformers")

N, TOKENS = 9, 7


def bert():
    config = transformers.BertConfig(
        vocab_size=50, hidden_size=16, num_hidden_layers=2, num_attention_heads=2,
        intermediate_size=20, max_position_embeddings=32, num_labels=3,
    )  # fmt: skip
    return transformers.BertForSequenceClassification(config)


def distilbert():
    config = transformers.DistilBertConfig(
        vocab_size=50, dim=16, n_layers=2, n_heads=2, hidden_dim=20,
        max_position_embeddings=32, num_labels=3,
    )  # fmt: skip
    return transformers.DistilBertForSequenceClassification(config)


def gpt2():
    config = transformers.GPT2Config(
        vocab_size=50, n_embd=16, n_layer=2, n_head=2, n_positions=32, num_labels=3,
        pad_token_id=0, bos_token_id=0, eos_token_id=0,
    )  # fmt: skip
    return transformers.GPT2ForSequenceClassification(config)


def vit():
    config = transformers.ViTConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=20,
        image_size=8, patch_size=4, num_labels=3,
    )  # fmt: skip
    return transformers.ViTForImageClassification(config)


def tokens(n=N, width=TOKENS, seed=0):
    """Token numbers, padded by 0 after 3 tokens or more."""
    rng = np.random.default_rng(seed)
    mask = (np.arange(width) < rng.integers(3, width + 1, n)[:, None]).astype(np.int64)
    return {"input_ids": rng.integers(1, 50, (n, width)) * mask, "attention_mask": mask}


def pixels():
    images = np.random.default_rng(0).normal(size=(N, 3, 8, 8)).astype(np.float32)
    return {"pixel_values": images}


CASES = {
    "bert": (bert, tokens, ("bert.embeddings", "bert.encoder.layer.0", "bert.encoder.layer.1")),
    "distilbert": (
        distilbert,
        tokens,
        ("distilbert.embeddings", *(f"distilbert.transformer.layer.{i}" for i in range(2))),
    ),
    "gpt2": (gpt2, tokens, ("transformer.drop", "transformer.h.0", "transformer.ln_f")),
    "vit": (vit, pixels, ("vit.embeddings", "vit.layers.0", "vit.layers.1")),
}  # fmt: skip


@pytest.fixture(name="case", params=CASES)
def some_case(request):
    make, inputs, layers = CASES[request.param]
    torch.manual_seed(0)
    return make().eval(), inputs(), layers


def ask(net, inputs):
    with torch.no_grad():
        given = {name: torch.as_tensor(values) for name, values in inputs.items()}
        return net(**given, output_hidden_states=True)


def loop(states, inputs, pool):
    """Pooling, one sample at a time."""
    mask = inputs.get("attention_mask", np.ones(states.shape[:2]))
    real = [rows[seen != 0] for rows, seen in zip(states, mask, strict=True)]
    ways = {"mean": lambda rows: rows.mean(axis=0), "cls": lambda rows: rows[0]}
    return np.stack([ways.get(pool, lambda rows: rows[-1])(rows) for rows in real])


@pytest.mark.parametrize("pool", ["mean", "cls", "last"])
def test_scores_and_pooled_layers_are_those_of_the_hidden_states(case, pool):
    net, inputs, layers = case
    said = ask(net, inputs)
    model = TorchModel(net, pool=pool)
    seen = model.observe(model.prepare(inputs), layers)
    np.testing.assert_allclose(seen.scores, said.logits, rtol=1e-4, atol=1e-5)
    for layer, states in zip(layers, said.hidden_states, strict=True):
        expected = loop(states.numpy(), inputs, pool)
        np.testing.assert_allclose(seen.activations[layer], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "middle", "hidden", "head"),
    [
        ("bert", "bert.encoder.layer.0", "bert.pooler.activation", "classifier"),
        ("distilbert", "distilbert.transformer.layer.0", "classifier.input", "classifier"),
        ("gpt2", "transformer.h.0", "transformer.ln_f", "output"),
        ("vit", "vit.layers.0", "classifier.input", "classifier"),
    ],
)
def test_the_default_layer_is_what_enters_the_head(name, middle, hidden, head):
    make, inputs, _ = CASES[name]
    model = TorchModel(make())
    batch = model.prepare(inputs())
    assert paper_layers(model, batch) == (hidden, head)
    first = ("input",) if name == "vit" else ()  # token numbers are not near each other
    assert level_layers(model, batch) == (*first, f"{middle}.moments", hidden)


def test_a_layer_of_tokens_must_be_pooled_where_there_is_padding():
    model = TorchModel(gpt2())
    with pytest.raises(LayerError, match="padding would count as text: say pool='mean'"):
        model.observe(model.prepare(tokens()), ("transformer.ln_f",))


@pytest.mark.parametrize("name", ["bert", "distilbert", "gpt2"])
def test_padding_further_changes_no_answer(name):
    make, _, layers = CASES[name]
    torch.manual_seed(0)
    model = TorchModel(make(), pool="mean")
    inputs = tokens()
    wider = {k: np.pad(values, ((0, 0), (0, 5))) for k, values in inputs.items()}
    one, other = (model.observe(model.prepare(x), layers) for x in (inputs, wider))
    np.testing.assert_allclose(one.scores, other.scores, rtol=1e-4, atol=1e-5)
    for layer in layers:
        np.testing.assert_allclose(
            one.activations[layer], other.activations[layer], rtol=1e-4, atol=1e-5
        )


def test_a_tokenizers_lists_and_tensors_are_as_good_as_arrays():
    model = TorchModel(bert())
    lists = transformers.BatchEncoding({k: v.tolist() for k, v in tokens().items()})
    tensors = {k: torch.as_tensor(v) for k, v in tokens().items()}
    wanted = model.observe(model.prepare(tokens()), ("classifier.input",))
    for given in (lists, tensors):
        seen = model.observe(model.prepare(given), ("classifier.input",))
        np.testing.assert_array_equal(
            seen.activations["classifier.input"], wanted.activations["classifier.input"]
        )
    with pytest.raises(InputError, match=r"X\['input_ids'\] holds sequences .* 2 to 3.*padding=T"):
        model.prepare(transformers.BatchEncoding({"input_ids": [[1, 2], [1, 2, 3]]}))


def test_labels_among_the_inputs_do_not_disturb():
    model = TorchModel(bert())
    inputs = tokens()
    wanted = model.observe(model.prepare(inputs), ())
    labels = np.full(N, 99)  # of no class
    np.testing.assert_array_equal(
        model.observe(model.prepare({**inputs, "labels": labels}), ()).scores, wanted.scores
    )


def test_several_inputs_are_no_layer_and_promise_nothing():
    model = TorchModel(distilbert())
    with pytest.raises(LayerError, match=r"\(input_ids, attention_mask\) have no single layer"):
        model.observe(model.prepare(tokens()), ("input",))
    with pytest.raises(LayerError, match="inputs in several arrays"):
        model.sensitivity("input", measure(model.prepare(tokens())))


def test_a_sample_that_is_all_padding_is_invalid_where_tokens_are_pooled():
    model = TorchModel(distilbert(), pool="mean")
    inputs = tokens()
    inputs["attention_mask"][4] = 0
    seen = model.observe(model.prepare(inputs), ("distilbert.transformer.layer.1",))
    assert seen.invalid.tolist() == [row == 4 for row in range(N)]


def test_an_image_with_a_bad_pixel_by_name_is_invalid_and_the_others_are_not():
    torch.manual_seed(0)
    model, inputs = TorchModel(vit()), pixels()
    clean = model.observe(model.prepare(inputs), ("classifier.input",))
    inputs["pixel_values"][2, 0, 0, 0] = np.nan
    seen = model.observe(model.prepare(inputs), ("classifier.input",))
    assert seen.invalid.tolist() == [row == 2 for row in range(N)]
    rest = np.arange(N) != 2
    np.testing.assert_allclose(seen.scores[rest], clean.scores[rest], rtol=1e-4, atol=1e-5)


@pytest.fixture(name="trained", scope="module")
def some_trained():
    """A network that tells whether the third token is 1, 2 or 3."""
    torch.manual_seed(0)
    net, optimizer = bert(), None
    inputs, labels = labeled(300, 0)
    optimizer = torch.optim.Adam(net.parameters(), 1e-2)
    for step in range(40):
        rows = np.random.default_rng(step).integers(0, 300, 64)
        batch = {name: torch.as_tensor(values[rows]) for name, values in inputs.items()}
        loss = net(**batch, labels=torch.as_tensor(labels[rows])).loss
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return net


def labeled(n, seed):
    inputs = tokens(n, TOKENS, seed)
    labels = np.random.default_rng(seed).integers(0, 3, n)
    inputs["input_ids"][:, 2] = labels + 1
    return inputs, labels


def test_a_classifier_takes_it_and_comes_back(trained, tmp_path):
    ec = EpistemicClassifier(trained, progress=False).fit(*labeled(300, 0))
    ec.tune(*labeled(200, 1))
    inputs, labels = labeled(200, 2)
    assessed = ec.assess(inputs)
    known = assessed.assertion == Assertion.IK
    assert known.mean() > 0.3
    right = assessed.belief == labels
    assert right[known].mean() >= right[~known].mean()
    torch.manual_seed(1)
    assert_comes_back(ec, trained, inputs, tmp_path, other=bert())


class TestBert(ModelContract):
    def make_model(self):
        torch.manual_seed(0)
        return TorchModel(bert(), pool="mean")

    def make_inputs(self):
        return tokens(12)
