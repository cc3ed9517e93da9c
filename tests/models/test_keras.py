"""KerasModel against Keras' own predict and against dense layers computed by numpy."""

import keras
import numpy as np
import pytest
from sklearn.base import clone
from sklearn.datasets import load_digits

from iknow import EpistemicClassifier
from iknow.errors import InputError, LayerError, RefusedError
from iknow.models import KerasModel, as_model
from iknow.models.inputs import measure
from iknow.testing import ModelContract
from tests.choosing import level_layers, paper_layers
from tests.models.keeping import assert_comes_back

# Keras' own predict on torch.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation doesn't accept a copy")

layers = keras.layers
PIXELS, DIGITS = load_digits(return_X_y=True)
PIXELS = (PIXELS / 16).astype(np.float32)
IMAGES = PIXELS.reshape(-1, 8, 8, 1)
SOME = PIXELS[:20]


@pytest.fixture(autouse=True)
def seeded():
    keras.utils.set_random_seed(0)


def sequential(last="softmax", units=10):
    return keras.Sequential(
        [
            keras.Input((64,)),
            layers.Dense(24, activation="relu", name="first"),
            layers.Dropout(0.5),
            layers.BatchNormalization(name="norm"),
            layers.Dense(units, activation=last, name="last"),
        ]
    )


def branched():
    """Two inputs, two outputs, both by name."""
    left, right = keras.Input((32,), name="top"), keras.Input((32,), name="bottom")
    both = layers.Concatenate(name="both")([layers.Dense(5, name="a")(left), right])
    outputs = {"logits": layers.Dense(10, name="out")(both), "aux": layers.Dense(2)(both)}
    return keras.Model({"top": left, "bottom": right}, outputs)


def convolutional():
    """A model inside the model."""
    image = keras.Input((8, 8, 1))
    inner = layers.Conv2D(4, 3, activation="relu", name="conv")(image)
    backbone = keras.Model(image, layers.MaxPooling2D(name="small")(inner), name="backbone")
    image = keras.Input((8, 8, 1))
    vector = layers.GlobalAveragePooling2D(name="average")(backbone(image))
    return keras.Model(image, layers.Dense(10, name="head")(vector))


class Code(keras.Model):
    def __init__(self):
        super().__init__()
        self.hidden, self.out = layers.Dense(6), layers.Dense(10)

    def call(self, inputs):
        return self.out(keras.activations.relu(self.hidden(inputs)))


class Changed(keras.Sequential):
    def call(self, inputs, training=None):
        return -super().call(inputs, training=training)


def halves(rows):
    return {"top": rows[:, :32], "bottom": rows[:, 32:]}


def observe(model, names=(), inputs=SOME, **options):
    adapter = KerasModel(model, **options)
    return adapter.observe(adapter.prepare(inputs), names)


def predict(model, inputs=SOME):
    return model.predict(inputs, verbose=0)


class TestContract(ModelContract):
    def make_model(self):
        return KerasModel(sequential())

    def make_inputs(self):
        return SOME


class TestContractOfConvolutions(ModelContract):
    def make_model(self):
        return KerasModel(convolutional(), pool="mean")

    def make_inputs(self):
        return IMAGES[:20]


class TestContractOfSeveralInputs(ModelContract):
    def make_model(self):
        return KerasModel(branched())

    def make_inputs(self):
        return halves(SOME)


class TestContractOfCode(ModelContract):
    def make_model(self):
        model = Code()
        model(SOME)
        return KerasModel(model)

    def make_inputs(self):
        return SOME


# What it reads


def test_layers_are_those_of_a_forward_pass_by_hand():
    model = sequential("linear")
    found = observe(model, ("input", "first", "norm", "last.input", "last", "output"))
    weights = {layer.name: layer.get_weights() for layer in model.layers}
    first = np.maximum(SOME @ weights["first"][0] + weights["first"][1], 0)
    scale, shift, mean, variance = weights["norm"]
    norm = (first - mean) / np.sqrt(variance + 1e-3) * scale + shift
    last = norm @ weights["last"][0] + weights["last"][1]
    by_hand = {"input": SOME, "first": first, "norm": norm, "last": last}
    for name, same in {"last.input": "norm", "output": "last"}.items():
        by_hand[name] = by_hand[same]
    for name, values in found.activations.items():
        np.testing.assert_allclose(values, by_hand[name], rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.scores, last, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("last", ["softmax", "linear"])
def test_scores_are_what_the_model_predicts(last):
    model = sequential(last)
    for names in ((), ("first",), ("output",)):
        np.testing.assert_array_equal(observe(model, names).scores, predict(model))


def test_a_single_number_is_read_as_the_user_says():
    model = sequential("sigmoid", units=1)
    chance = predict(model)[:, 0].astype(float)
    found = observe(model, scores="probability")
    np.testing.assert_allclose(found.scores, np.column_stack([1 - chance, chance]))
    with pytest.raises(InputError, match="scores='logit'"):
        observe(model)


def test_the_layers_of_a_model_inside_the_model_are_read():
    model = convolutional()
    backbone = model.get_layer("backbone")
    inner = keras.Model(backbone.inputs, backbone.get_layer("conv").output)
    found = observe(model, ("backbone.conv", "backbone", "head.input"), IMAGES[:5]).activations
    np.testing.assert_array_equal(found["backbone.conv"], predict(inner, IMAGES[:5]).reshape(5, -1))
    np.testing.assert_array_equal(found["backbone"], predict(backbone, IMAGES[:5]).reshape(5, -1))
    means = predict(backbone, IMAGES[:5]).mean(axis=(1, 2))
    np.testing.assert_allclose(found["head.input"], means, rtol=1e-6)


@pytest.mark.parametrize("pool", ["mean", {"backbone": "mean"}, lambda v: v.mean(axis=(1, 2))])
def test_places_are_pooled(pool):
    model = convolutional()
    found = observe(model, ("backbone",), IMAGES[:5], pool=pool).activations["backbone"]
    means = predict(model.get_layer("backbone"), IMAGES[:5]).mean(axis=(1, 2))
    np.testing.assert_allclose(found, means, rtol=1e-6)


@pytest.mark.parametrize("make", [halves, lambda rows: [rows[:, 32:], rows[:, :32]]])
def test_several_inputs_come_by_name_or_in_the_models_order(make):
    model = branched()
    names = [tensor.name for tensor in model.inputs]
    given = make(SOME) if make is halves else [halves(SOME)[name] for name in names]
    found = observe(model, ("both",), given)
    np.testing.assert_array_equal(found.scores, predict(model, halves(SOME))["logits"])
    assert found.activations["both"].shape == (20, 37)
    other = observe(model, ("both",), given, scores="aux")
    np.testing.assert_array_equal(other.scores, predict(model, halves(SOME))["aux"])


def test_the_usual_layers_are_around_the_last_dense_one():
    model = KerasModel(sequential())
    assert paper_layers(model, SOME) == ("last.input", "last")
    assert level_layers(model, SOME) == ("input", "last.input")
    several = KerasModel(branched())
    assert level_layers(several, several.prepare(halves(SOME)))[0].endswith(".input")
    code = Code()
    code(SOME)
    assert paper_layers(KerasModel(code), SOME) == ("input", "output")


def test_numbers_of_words_are_no_place():
    words = keras.Sequential(
        [
            keras.Input((7,), dtype="int32"),
            layers.Embedding(50, 4, name="words"),
            layers.GlobalAveragePooling1D(),
            layers.Dense(3, name="last"),
        ]
    )
    ids = np.arange(35).reshape(5, 7)
    assert level_layers(KerasModel(words), ids) == ("last.input",)
    found = observe(words, ("last.input",), ids).activations["last.input"]
    table = words.get_layer("words").get_weights()[0]
    np.testing.assert_allclose(found, table[ids].mean(axis=1), rtol=1e-5, atol=1e-7)


def residual():
    """Three stages of two residual blocks, without a module for any."""
    x = image = keras.Input((16, 16, 3))
    for stage, width in enumerate((4, 6, 8)):
        for block in range(2):
            stride = 2 if stage and not block else 1
            y = layers.BatchNormalization()(layers.Conv2D(width, 3, stride, "same")(x))
            x = layers.Conv2D(width, 1, stride)(x) if x.shape[-1] != width else x
            x = layers.Activation("relu", name=f"out{stage}{block}")(layers.Add()([y, x]))
    average = layers.GlobalAveragePooling2D()(x)
    return keras.Model(image, layers.Dense(3, name="head")(average))


def inside_another():
    whole, image = residual(), keras.Input((16, 16, 3))
    inner = keras.Model(whole.input, whole.get_layer("out21").output, name="backbone")
    return keras.Model(image, layers.Dense(3)(layers.GlobalAveragePooling2D()(inner(image))))


def transformer():
    """Five blocks that normalize first, over patches of an image."""
    image = keras.Input((16, 16, 3))
    x = layers.Reshape((16, 8))(layers.Conv2D(8, 4, 4)(image))
    for block in range(5):
        y = layers.LayerNormalization()(x)
        x = layers.Add(name=f"middle{block}")([x, layers.MultiHeadAttention(2, 4)(y, y)])
        y = layers.Dense(16, "gelu")(layers.LayerNormalization()(x))
        x = layers.Add(name=f"end{block}")([x, layers.Dense(8)(y)])
    return keras.Model(image, layers.Dense(3)(layers.LayerNormalization()(x)[:, 0]))


class Block(layers.Layer):
    """A block as a layer of its own."""

    def __init__(self, **settings):
        super().__init__(**settings)
        self.attention, self.norm = layers.MultiHeadAttention(2, 4), layers.LayerNormalization()

    def call(self, x):
        return self.norm(x + self.attention(x, x))


def custom_blocks():
    x = tokens = keras.Input((12, 8))
    for block in range(4):
        x = Block(name=f"block{block}")(x)
    return keras.Model(tokens, layers.Dense(3)(layers.GlobalAveragePooling1D()(x)))


def series():
    steps = [keras.Input((16, 2))]
    for name, width in (("a", 4), ("b", 6), ("c", 8)):
        convolution = layers.Conv1D(width, 3, padding="same", activation="relu", name=name)
        steps += [convolution, layers.MaxPooling1D()]
    return keras.Sequential([*steps, layers.Flatten(), layers.Dense(3)])


@pytest.mark.parametrize(
    ("make", "stages"),
    [
        (residual, ["out01", "out11"]),
        (inside_another, ["backbone.out01", "backbone.out11"]),
        (transformer, ["end0", "end2", "end3"]),
        (custom_blocks, ["block0", "block1", "block2"]),
        (series, ["a", "b", "c"]),
        (convolutional, ["backbone.conv"]),
        (sequential, []),
    ],
)
def test_middle_stages_are_found_and_pooled(make, stages):
    network = make()
    model, X = KerasModel(network), np.random.default_rng(0).random((5, *network.input_shape[1:]))
    found = [each.name for each in model.layers(X) if each.role == "middle"]
    assert found == [f"{name}.moments" for name in stages]
    seen = model.observe(X, [*stages, *found])
    for name in stages:
        *outer, inner = name.split(".")
        part = network.get_layer(outer[0]) if outer else network
        places = seen.activations[name].reshape(5, -1, part.get_layer(inner).output.shape[-1])
        wanted = np.hstack([places.mean(axis=1), places.std(axis=1)])
        pooled = seen.activations[f"{name}.moments"]
        np.testing.assert_allclose(pooled, wanted, rtol=1e-4, atol=1e-5)


def test_a_model_with_its_own_call_is_taken_by_what_it_does():
    model = Changed([keras.Input((64,)), layers.Dense(10, name="only")])
    found = observe(model)
    np.testing.assert_array_equal(found.scores, predict(model))
    with pytest.raises(LayerError, match="it has 'input', 'output'"):
        observe(model, ("only",))


def test_nothing_is_promised_about_it():
    with pytest.raises(LayerError, match="nothing is known"):
        KerasModel(sequential()).sensitivity("input", measure(SOME))


# The model is left as it is


def test_reading_changes_nothing_in_the_model():
    model = convolutional()
    before = [weights.copy() for weights in model.get_weights()]
    nodes = [len(layer._inbound_nodes) for layer in model.layers]
    said = predict(model, IMAGES[:5])
    observe(model, ("backbone.conv", "head.input"), IMAGES[:5])
    assert [len(layer._inbound_nodes) for layer in model.layers] == nodes
    for old, new in zip(before, model.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)
    np.testing.assert_array_equal(predict(model, IMAGES[:5]), said)


# The classifier


@pytest.fixture(scope="module")
def trained():
    keras.utils.set_random_seed(0)
    model = sequential()
    model.compile("adam", "sparse_categorical_crossentropy")
    model.fit(PIXELS[:700], DIGITS[:700], epochs=8, verbose=0)
    return model


@pytest.fixture(scope="module")
def fitted(trained):
    ec = EpistemicClassifier(trained).fit(PIXELS[:700], DIGITS[:700])
    return ec.tune(PIXELS[700:1000], DIGITS[700:1000], coverage=0.7)


def test_what_is_known_is_more_often_right(fitted, trained):
    a = fitted.assess(PIXELS[1000:])
    right = predict(trained, PIXELS[1000:]).argmax(axis=1) == DIGITS[1000:]
    known = a.assertion == max(a.assertion)
    assert right[known].mean() > right[~known].mean() + 0.1


def test_it_comes_back_and_another_model_is_refused(fitted, trained, tmp_path):
    assert_comes_back(fitted, trained, PIXELS[1000:1100], tmp_path, other=sequential())


def test_the_size_of_batches_does_not_matter(fitted, trained):
    small = clone(fitted).set_params(batch_size=13).fit(PIXELS[:700], DIGITS[:700])
    small.tune(PIXELS[700:1000], DIGITS[700:1000], coverage=0.7)
    found, expected = small.assess(PIXELS[1000:]), fitted.assess(PIXELS[1000:])
    assert (found.assertion == expected.assertion).mean() > 0.99


# Errors


@pytest.mark.parametrize(
    ("make", "names", "inputs", "kind", "words"),
    [
        (sequential, ("nope",), SOME, LayerError, "'input', 'first', 'dropout.*', 'norm', 'last'"),
        (sequential, ("nope.input",), SOME, LayerError, "has no layer 'nope.input'"),
        (convolutional, ("backbone.nope",), IMAGES[:5], LayerError, "'backbone.conv'"),
        (branched, ("both.input",), halves(SOME), LayerError, "holds 2 tensors"),
        (branched, ("input",), halves(SOME), LayerError, "no single layer .input."),
        (branched, (), SOME, InputError, "has 2 inputs: pass a dict with 'bottom', 'top'"),
        (sequential, (), SOME[:, :5], RefusedError, r"'sequential.*' failed .* \(20, 5\)"),
        (sequential, (), [["a"] * 64], InputError, "X must hold real numbers"),
    ],
)
def test_what_cannot_be_read_is_said(make, names, inputs, kind, words):
    with pytest.raises(kind, match=words):
        observe(make(), names, inputs)


def test_a_layer_that_runs_twice_is_refused():
    inputs, shared = keras.Input((64,)), layers.Dense(64, name="shared")
    model = keras.Model(inputs, layers.Dense(3)(shared(shared(inputs))))
    with pytest.raises(LayerError, match="'shared' runs 2 times"):
        observe(model, ("shared",))


@pytest.mark.parametrize("options", [{"pool": "sum"}, {"scores": 1.5}, {"embed": len}])
def test_strange_options_are_refused(options):
    with pytest.raises(InputError):
        as_model(sequential(), **options)
