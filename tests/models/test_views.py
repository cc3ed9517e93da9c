"""Views: the confidence over changed images, by a loop over samples and views; which are harmless;
and that belief, layers and what is proven of them stay those of the image itself.
"""

import copy
import pickle
import warnings
from contextlib import suppress

import numpy as np
import pytest
import torch
from scipy import ndimage
from scipy.stats import binom
from torch import nn

from iknow import Ball, EpistemicClassifier
from iknow.errors import InputError, SelectionError
from iknow.evaluation import compare
from iknow.models import FunctionModel, Model, PrecomputedModel, as_model
from iknow.models.probe import MOST_ROWS
from iknow.models.views import NAMED, ask_views, check_views, mean_confidence
from iknow.selection.validation import split_rows

RNG = np.random.default_rng(0)
X = RNG.random((420, 1, 7, 9)).astype(np.float32)
X[:, :, :, :4] += RNG.normal(0, 0.25, (420, 1, 1, 1)).astype(np.float32)
BRIGHTER = (X[..., :4].mean((1, 2, 3)) > X[..., 5:].mean((1, 2, 3))).astype(int)
Y = np.where(RNG.random(420) < 0.05, 1 - BRIGHTER, BRIGHTER)
TRAIN, VALIDATION, TEST = slice(0, 200), slice(200, 320), slice(320, 420)


class Sides(nn.Module):
    """Which side is brighter: so it does not mind a shift much, and a mirror a lot."""

    def __init__(self):
        super().__init__()
        self.pool, self.head = nn.Flatten(), nn.Linear(63, 2)
        side = torch.tensor([1.0] * 4 + [0.0] + [-1.0] * 4)
        weight = (side / 7).repeat(7)
        with torch.no_grad():
            self.head.weight.copy_(torch.stack([-4 * weight, 4 * weight]))
            self.head.bias.zero_()

    def forward(self, x):
        return self.head(self.pool(x))


def fitted(model, **goal):
    ec = EpistemicClassifier(model, progress=False).fit(X[TRAIN], Y[TRAIN])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return ec.tune(X[VALIDATION], **(goal or {"coverage": 0.7}))


@pytest.fixture(scope="module")
def classifier():
    return fitted(as_model(Sides(), views=("shift", "mirror")))


def probabilities(module, images):
    return torch.softmax(module(torch.tensor(images)).double(), 1).detach().numpy()


def test_confidence_is_that_of_the_probabilities_averaged_over_views(classifier):
    module, found = Sides(), []
    for image in X[TEST]:
        passes = [image[0], *(ndimage.shift(image[0], by, order=0, mode="nearest")
                              for by in ((-1, 0), (1, 0), (0, -1), (0, 1)))]  # fmt: skip
        each = [probabilities(module, view[None, None])[0] for view in passes]
        belief = each[0].argmax()
        p = np.mean([one[belief] for one in each])
        found.append(np.log(p / (1 - p)))
    a = classifier.assess(X[TEST])
    np.testing.assert_allclose(a.confidence, found, rtol=1e-5)
    levels, least = classifier.selection_.levels, classifier.selection_.least_confidence
    np.testing.assert_array_equal(a.doubted, a.confidence < least)
    voice = next(each for each in levels.voices if each.layer is None)
    again = classifier.assess(X[VALIDATION])
    np.testing.assert_array_equal(np.sort(again.confidence), voice.reference)
    assert (again.assertion == "IK").mean() == classifier.selection_.coverage


def test_probabilities_are_averaged_as_logits_are(classifier):
    module = Sides()
    ec = fitted(as_model(FunctionModel(lambda batch: probabilities(module, batch)), views="shift"))
    assert ec.selection_.levels.from_probabilities
    ours, theirs = (each.assess(X[TEST]).confidence for each in (ec, classifier))
    np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-5)


def test_a_mirror_that_changes_answers_is_left_out_and_said():
    ec = EpistemicClassifier(as_model(Sides(), views=("shift", "mirror")), progress=False)
    ec.fit(X[TRAIN], Y[TRAIN])
    with pytest.warns(UserWarning, match=r"view 'mirror' is left out: .* answers 100.0% otherwise"):
        ec.tune(X[VALIDATION], coverage=0.7)
    shift, mirror = ec.selection_.views
    assert (shift.kind, shift.passes, shift.is_used) == ("shift", 4, True)
    assert (mirror.kind, mirror.agreement, mirror.is_used) == ("mirror", 0.0, False)
    assert ec.selection_.levels.views == ("shift",)
    said = str(ec.selection_)
    assert "averaged over 5 passes of the model for each sample: as it is, shift (" in said
    assert "Views left out, as the model changes its answers: mirror (0.0% alike)" in said


def test_harmlessness_is_judged_without_the_samples_that_certify():
    choose, _ = split_rows(120, np.random.RandomState(0).randint(np.iinfo(np.int32).max))

    def changed(batch):
        """Turns every image around but those of the samples that choose."""
        known = {image.tobytes() for image in X[VALIDATION][choose]}
        return np.stack([x if x.tobytes() in known else x[..., ::-1] for x in batch])

    ec = EpistemicClassifier(as_model(Sides(), views=changed), progress=False)
    ec.fit(X[TRAIN], Y[TRAIN]).tune(X[VALIDATION], Y[VALIDATION])
    assert [(each.agreement, each.is_used) for each in ec.selection_.views] == [(1.0, True)]
    with pytest.warns(UserWarning, match="view 'changed' is left out"):
        ec.tune(X[VALIDATION], coverage=0.7)  # which promises nothing, and goes by all
    with pytest.warns(UserWarning, match="view 'changed' is left out"):
        ec.tune(X[VALIDATION], Y[VALIDATION], reference=X[TEST])


def test_belief_scores_and_layers_stay_those_of_the_image(classifier):
    plain = fitted(Sides())
    one, other = plain.assess(X[TEST]), classifier.assess(X[TEST])
    np.testing.assert_array_equal(one.belief, other.belief)
    np.testing.assert_array_equal(one.scores, other.scores)
    np.testing.assert_array_equal(plain.predict(X[TEST]), classifier.predict(X[TEST]))
    np.testing.assert_array_equal(plain.predict_proba(X[TEST]), classifier.predict_proba(X[TEST]))
    for layer in plain.layers_:
        ours, theirs = one.evidence[layer], other.evidence[layer]
        np.testing.assert_array_equal(ours.class_distances, theirs.class_distances)
    rules = classifier.neighborhoods_
    np.testing.assert_array_equal(one.under(rules).robust_radius, other.robust_radius)
    assert (other.robust_radius > 0).any()


class Counting(Model):
    """Counts how often the model runs about how many samples."""

    def __init__(self):
        self.inner, self.asked = as_model(Sides()), []

    def layers(self, batch):
        return self.inner.layers(batch)

    def observe(self, batch, layers):
        self.asked.append((len(batch), tuple(layers)))
        return self.inner.observe(batch, layers)


def test_each_view_is_one_pass_without_layers_and_only_where_confidence_counts():
    counting = Counting()
    ec = EpistemicClassifier(as_model(counting, views="shift"), progress=False)
    ec.fit(X[TRAIN], Y[TRAIN])
    assert all(layers for _, layers in counting.asked)
    for call, passes in ((lambda: ec.tune(X[VALIDATION], coverage=0.7), 5),
                         (lambda: ec.assess(X[TEST]), 5),
                         (lambda: ec.predict(X[TEST]), 1)):  # fmt: skip
        counting.asked.clear()
        call()
        asked = [layers for n, layers in counting.asked if n != MOST_ROWS]  # of its probe
        assert len(asked) == passes
        assert asked[1:] == [()] * (passes - 1)


def test_batches_parts_and_invalid_samples_keep_their_confidence(classifier):
    strange = X[TEST].copy()
    strange[3, 0, 2, 2] = np.nan
    whole, part = classifier.assess(X[TEST]), classifier.assess(strange)
    rest = np.arange(100) != 3
    assert part.assertion[3].name == "IDK"
    assert part.level[3] == 0
    np.testing.assert_allclose(part.confidence[rest], whole.confidence[rest], rtol=1e-5)
    np.testing.assert_array_equal(whole[10:20].level, whole.level[10:20])
    classifier.batch_size = 7
    again = classifier.assess(X[TEST])
    classifier.batch_size = None
    np.testing.assert_allclose(again.confidence, whole.confidence, rtol=1e-5)
    loader = ((torch.tensor(X[TEST][i : i + 30]), Y[TEST][i : i + 30]) for i in range(0, 100, 30))
    np.testing.assert_allclose(classifier.assess(loader).confidence, whole.confidence, rtol=1e-5)


@pytest.mark.parametrize("make", [np.asarray, torch.tensor])
@pytest.mark.parametrize("shape", [(5, 6), (1, 5, 6), (3, 5, 6), (5, 6, 3), (4, 5, 6)])
def test_images_of_any_layout_are_changed_alike(make, shape):
    channels = 0 if len(shape) == 3 and shape[0] < 5 else -1
    images = RNG.random((4, *shape)).astype(np.float32)
    for kind in NAMED:
        for i, change in enumerate(NAMED[kind]):
            found = np.asarray(change(make(images)))
            planes = [images] if len(shape) == 2 else np.moveaxis(images, channels or 1, 0)
            new = [found] if len(shape) == 2 else np.moveaxis(found, channels or 1, 0)
            for plane, changed in zip(planes, new, strict=True):
                by = [(-1, 0), (1, 0), (0, -1), (0, 1)][i]
                wanted = [np.fliplr(x) if kind == "mirror" else
                          ndimage.shift(x, by, order=0, mode="nearest") for x in plane]  # fmt: skip
                np.testing.assert_array_equal(changed, wanted)


@pytest.mark.parametrize(
    ("batch", "got"),
    [
        (np.ones((5, 63), np.float32), r"float32 of shape \(5, 63\)"),
        (np.ones((5, 1, 24), np.float32), r"float32 of shape \(5, 1, 24\)"),
        (np.ones((5, 2, 8, 8), np.float32), r"float32 of shape \(5, 2, 8, 8\)"),
        (np.ones((5, 8, 8), np.int64), r"int64 of shape \(5, 8, 8\)"),
        (["a text"], r"list of shape \(\)"),
    ],
)
def test_named_views_of_what_is_no_image_are_refused(batch, got):
    with pytest.raises(InputError, match=f"change images: floats or uint8 .*; got {got}"):
        check_views(NAMED, batch)
    check_views({"own": (np.copy,)}, batch)


def test_fit_refuses_views_that_cannot_help():
    ec = EpistemicClassifier(as_model(Sides(), views="shift"), progress=False, rule=Ball)
    with pytest.raises(InputError, match="which levels alone go by: leave views= out"):
        ec.fit(X[TRAIN], Y[TRAIN])
    flat = FunctionModel(lambda rows: rows[:, :2])
    ec = EpistemicClassifier(as_model(flat, views="shift"), progress=False)
    with pytest.raises(InputError, match="change images"):
        ec.fit(X[TRAIN].reshape(200, -1), Y[TRAIN])


@pytest.mark.parametrize("views", ["tilt", (1,), (np.ndarray,), ("shift", "shift")])
def test_unknown_views_are_refused(views):
    with pytest.raises(InputError, match=r"views (must be some of|need different names)"):
        as_model(Sides(), views=views)


def test_a_view_returns_as_many_samples_as_it_gets():
    model = as_model(Sides(), views=lambda batch: batch[1:])
    with pytest.raises(InputError, match="must return as many samples as it gets, 5"):
        ask_views(model, X[:5], model.views)


def test_the_mean_of_sure_answers_does_not_saturate():
    odds = np.array([[80.0, 80.0, np.inf, -np.inf], [80.0, 90.0, 50.0, 2.0]])
    found = mean_confidence(odds)
    np.testing.assert_allclose(found[:3], [80.0, 80 + np.log(2), 50 + np.log(2)], rtol=1e-6)
    np.testing.assert_allclose(found[3], np.log((p := 0.5 / (1 + np.exp(-2.0))) / (1 - p)), 1e-6)


def test_views_survive_a_bundle(classifier, tmp_path):
    classifier.save(tmp_path / "x.iknow")
    before = classifier.assess(X[TEST])
    for model in (Sides(), as_model(Sides()), as_model(Sides(), views=("shift", "mirror"))):
        loaded = EpistemicClassifier.load(tmp_path / "x.iknow", model)
        after = loaded.assess(X[TEST])
        np.testing.assert_array_equal(before.level, after.level)
        np.testing.assert_array_equal(before.confidence, after.confidence)
        assert loaded.selection_.views == classifier.selection_.views
        assert list(loaded.model_.views) == ["shift", "mirror"]
        loaded.save(tmp_path / "again.iknow")
    outputs = EpistemicClassifier.load(tmp_path / "again.iknow")
    assert isinstance(outputs.model_, PrecomputedModel)
    said = as_model(Sides()).observe(X[TEST], classifier.layers_)
    with pytest.raises(InputError, match="averaged over views, 'shift', in which the model itself"):
        outputs.assess((said.scores, said.activations))


def test_a_bundle_with_its_model_averages_over_the_same_views(classifier, tmp_path):
    pytest.importorskip("onnxscript")
    classifier.save(tmp_path / "x.iknow", onnx=True, samples=X[TEST])
    loaded = EpistemicClassifier.load(tmp_path / "x.iknow")
    before, after = classifier.assess(X[TEST]), loaded.assess(X[TEST])
    np.testing.assert_allclose(before.confidence, after.confidence, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(before.assertion, after.assertion)
    loaded.save(tmp_path / "again.iknow")
    again = EpistemicClassifier.load(tmp_path / "again.iknow")
    np.testing.assert_array_equal(again.assess(X[TEST]).level, after.level)


def test_a_function_as_a_view_is_heard_and_cannot_be_saved(tmp_path):
    def darker(batch):
        batch *= 0.9  # a view may write to what it gets
        return batch

    before = X[VALIDATION].copy()
    ec = fitted(as_model(Sides(), views=("shift", darker)))
    np.testing.assert_array_equal(X[VALIDATION], before)
    assert ec.selection_.levels.views == ("shift", "darker")
    with pytest.raises(InputError, match="the view 'darker' is a function, which no bundle"):
        ec.save(tmp_path / "x.iknow")
    assert not (tmp_path / "x.iknow").exists()


def test_a_comparison_shows_what_views_bring():
    ec = fitted(Sides())
    pairs = [(X[part], Y[part]) for part in (TRAIN, VALIDATION, TEST)]
    found = compare(ec, *pairs, perturbations=(), views="shift", accuracy=0.8)
    assert found.methods[:3] == ("iknow", "iknow, views", "softmax")
    plain = compare(ec, *pairs, perturbations=(), accuracy=0.8)
    np.testing.assert_array_equal(plain.augrc, np.delete(found.augrc, 1, axis=0))
    viewed = fitted(as_model(Sides(), views="shift"))
    assert not ec.model_.views
    alone = compare(viewed, *pairs, perturbations=(), accuracy=0.8)
    np.testing.assert_array_equal(alone.augrc[0], found.augrc[1])
    np.testing.assert_array_equal(alone.certified[0], found.certified[1])


def test_a_copy_and_a_pickle_average_over_the_same_views(classifier):
    before = classifier.assess(X[TEST]).confidence
    for other in (copy.deepcopy(classifier), pickle.loads(pickle.dumps(classifier))):
        np.testing.assert_array_equal(other.assess(X[TEST]).confidence, before)


def test_no_views_are_none(tmp_path):
    fitted(as_model(Sides(), views=())).save(tmp_path / "x.iknow")
    loaded = EpistemicClassifier.load(tmp_path / "x.iknow", Sides())
    assert loaded.assess(X[TEST]).over_views is None


@pytest.mark.slow
def test_promises_hold_with_views_that_the_samples_choose():
    """An accuracy fails no more often, and false alarms are no more frequent, than promised."""
    rng = np.random.default_rng(0)

    def draw(n):
        y = rng.integers(0, 2, n)
        columns = [2 * y - 1 + rng.normal(size=n), *rng.normal(size=(3, n))]
        return np.column_stack(columns).astype(np.float32), y

    def scores(batch):
        odds = batch[:, 0] + 0.35 * batch[:, 1]
        return np.column_stack([-odds, odds])

    def turned(batch):
        return batch * np.array([1, -1, 1, 1], np.float32)

    def noisy(batch):
        return batch + 0.5 * batch[:, [0, 2, 0, 0]] * np.array([0, 1, 0, 0], np.float32)

    model = as_model(FunctionModel(scores), views=(turned, noisy))
    ec = EpistemicClassifier(model, progress=False).fit(*draw(300))
    new, truth = draw(6000)
    failures, alarms, used, n = 0, [], set(), 150
    for seed in range(n):
        ec.random_state = seed
        inputs, labels = draw(250)
        with warnings.catch_warnings(), suppress(SelectionError):
            warnings.simplefilter("ignore")
            alarms.append((ec.tune(inputs, false_alarm=0.2).assess(new).assertion != "IK").mean())
            ec.tune(inputs, labels, accuracy=0.92, confidence=0.8)
            known = ec.assess(new).assertion == "IK"
            failures += (ec.predict(new) == truth)[known].mean() < 0.92
            used.add(ec.selection_.levels.views)
    assert len(used) > 1
    assert failures <= binom.isf(1e-3, n, 0.2)
    assert np.mean(alarms) <= 0.2 + 3 * np.std(alarms) / np.sqrt(n)
