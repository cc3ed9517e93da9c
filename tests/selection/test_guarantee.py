"""Certificates against scipy's binomial test and a recount of every sample by itself."""

import itertools
import re

import numpy as np
import pytest
from scipy.special import bdtr
from scipy.stats import binomtest

from iknow.core.evidence import Evidence
from iknow.errors import InputError, SelectionError
from iknow.rules import Ball, BallElseNearest, BallWithNearest, Nearest, RelativeBall
from iknow.selection import Goal, Validation, certify, guarantee
from iknow.selection.exact import depth
from iknow.selection.guarantee import _Test, least_samples, rank, samples_needed
from iknow.selection.selection import Candidate
from iknow.testing.rule import is_known

RULES = [(Ball, None), (BallElseNearest, 3), (BallWithNearest, 2), (RelativeBall, None)]
LABELS = np.array(["cat", "dog", "eel"])


def make_evidence(class_distances, neighbor_distances=None):
    class_distances = np.asarray(class_distances, dtype=float)
    if neighbor_distances is None:
        neighbor_distances = np.empty((len(class_distances), 0))
    exemplars = np.zeros(class_distances.shape, dtype=np.int64)
    return Evidence(class_distances, neighbor_distances, exemplars)


class Problem:
    """Random validation evidence: errors are rarer with a larger margin and a smaller distance."""

    def __init__(self, n, n_layers=1, n_classes=3, seed=0, errors=0.25):
        rng = np.random.default_rng(seed)
        rows = np.arange(n)
        self.belief = rng.integers(n_classes, size=n)
        rival = (self.belief + 1 + rng.integers(n_classes - 1, size=n)) % n_classes
        ease = rng.normal(size=n)
        self.evidence, chances = {}, []
        for layer in range(n_layers):
            own = rng.gamma(4, 0.25, size=n)
            margin = np.exp(0.8 + 0.4 * ease + 0.1 * rng.normal(size=n))
            distances = (own * margin)[:, None] * (1 + rng.exponential(0.5, size=(n, n_classes)))
            distances[rows, rival] = own * margin
            distances[rows, self.belief] = own
            steps = 1 + rng.exponential(0.1, size=(n, 4))
            nearest = distances.min(axis=1, keepdims=True)
            neighbors = nearest * np.cumprod(np.column_stack([np.ones(n), steps]), axis=1)
            self.evidence[f"layer{layer}"] = make_evidence(distances, neighbors)
            chances.append(errors * own * np.exp(-1.5 * (margin - 1)))
        wrong = rng.random(n) < np.clip(np.mean(chances, axis=0), 0, 0.9)
        self.y_true = np.where(wrong, rival, self.belief)

    def certify(self, rule=Ball, **options):
        classes = options.pop("classes", None)
        goal = Goal(**{"accuracy": 0.9, "confidence": 0.9} | options)
        return certify(goal, Validation(self.evidence, self.belief, self.y_true), rule, classes)

    def count(self, neighborhoods, rows, code=None):
        """IK samples and errors among some rows, optionally of one believed class."""
        known = np.logical_and.reduce(
            [
                is_known(self.evidence[layer], rule, self.belief)
                for layer, rule in neighborhoods.items()
            ]
        )
        rows = np.asarray(rows)
        known = rows[known[rows] & (True if code is None else self.belief[rows] == code)]
        return len(known), int((self.belief[known] != self.y_true[known]).sum())


def parts_of(n, seed):
    """The samples that choose, a fifth, and those that certify."""
    order = np.random.default_rng(seed).permutation(n)
    return order[: n // 5], order[n // 5 :]


def lower_bound(known, errors, confidence):
    test = binomtest(known - errors, known, alternative="greater")
    return test.proportion_ci(confidence, method="exact").low


def p_value(known, errors, accuracy):
    return binomtest(errors, known, 1 - accuracy, alternative="less").pvalue if known else 1.0


def uniform_problem(n, n_wrong_in_parts, seed=0):
    """Samples alike but for being right: any radius from 0.5 to 2 makes all of them IK."""
    problem = Problem(n)
    problem.belief = np.zeros(n, dtype=np.int64)
    problem.evidence = {"layer": make_evidence(np.tile([0.5, 2.0, 3.0], (n, 1)))}
    problem.y_true = problem.belief.copy()
    for part, n_wrong in zip(parts_of(n, seed), n_wrong_in_parts, strict=True):
        problem.y_true[part[:n_wrong]] = 1
    return problem


# The pieces


def make_test(known, errors):
    """A candidate with so many IK samples and errors, and seven samples that are not IK."""
    n = known + 7
    distances = np.where(np.arange(n)[:, None] < known, [0.5, 2.0], [0.5, 0.6])
    y_true = (np.arange(n) < errors) | (np.arange(n) >= known)
    belief = np.zeros(n, dtype=np.int64)
    part = Validation({"layer": make_evidence(distances)}, belief, y_true.astype(np.int64))
    return _Test(Candidate({"layer": Ball(1.0)}), part)


@pytest.mark.parametrize("known", [1, 2, 22, 299, 1000])
def test_p_value_and_bound_are_those_of_scipys_binomial_test(known):
    for errors in sorted({0, 1, known // 20, known // 2, known - 1, known}):
        test = make_test(known, errors)
        assert (test.counts, test.errors) == ([known], [errors])
        for accuracy in (0.5, 0.9, 0.99):
            assert test.p_value(accuracy) == pytest.approx(p_value(known, errors, accuracy))
        for confidence in (0.5, 0.9, 0.999):
            expected = lower_bound(known, errors, confidence)
            assert test.bounds(confidence) == pytest.approx([expected])
            assert (test.bounds(confidence) == 0) == (errors == known)


def test_without_samples_the_p_value_is_1_and_the_bound_0():
    test = make_test(0, 0)
    assert test.p_value(0.9) == 1
    assert test.bounds(0.9) == [0]


def test_the_bound_reaches_the_target_exactly_where_the_p_value_is_low_enough():
    for known, errors in itertools.product((25, 60, 150), range(8)):
        test = make_test(known, errors)
        assert (test.p_value(0.9) <= 0.1) == (test.bounds(0.9)[0] >= 0.9)


def test_299_samples_without_an_error_certify_99_percent_with_confidence_95_percent():
    assert least_samples(0.99, 0.95) == 299


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.95, 0.999])
@pytest.mark.parametrize("accuracy", [0.05, 0.5, 0.8, 0.9, 0.99, 0.999])
def test_least_samples_are_those_of_counting_up(accuracy, confidence):
    n = 1
    while accuracy**n > 1 - confidence:
        n += 1
    assert least_samples(accuracy, confidence) == n


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 0.8, 0.9])
@pytest.mark.parametrize(("accuracy", "confidence"), [(0.9, 0.9), (0.95, 0.99), (0.99, 0.95)])
def test_samples_needed_certify_and_are_hardly_more_than_counting_up_finds(
    accuracy, confidence, share
):
    error_rate = share * (1 - accuracy)
    sizes = np.arange(1, 100_000)
    errors = np.ceil(error_rate * sizes)
    certifies = bdtr(errors, sizes, 1 - accuracy) <= 1 - confidence
    from_here_on = sizes[~certifies].max() + 1
    assert from_here_on < 50_000  # the range shows the end of it
    needed = samples_needed(accuracy, confidence, error_rate)
    assert certifies[needed - 1]
    assert needed <= 1.05 * from_here_on + 1
    assert needed >= sizes[certifies].min()


@pytest.mark.parametrize("error_rate", [0.1, 0.3, 1.0])
def test_no_number_of_samples_certifies_what_is_not_so(error_rate):
    assert samples_needed(0.9, 0.95, error_rate) is None


# The certificate


@pytest.mark.parametrize("n_layers", [1, 2])
@pytest.mark.parametrize(("rule", "k"), RULES)
def test_the_certificate_is_a_recount_of_the_samples_set_aside(rule, k, n_layers):
    problem = Problem(400, n_layers)
    selection = problem.certify(rule, k=k, random_state=3)
    assert selection.method == "certified"
    assert set(selection.neighborhoods) == set(problem.evidence)
    assert all(type(each) is rule for each in selection.neighborhoods.values())
    certificate = selection.certificate
    known, errors = problem.count(selection.neighborhoods, parts_of(400, seed=3)[1])
    assert (certificate.known, certificate.errors) == (known, errors)
    assert certificate.bound == pytest.approx(lower_bound(known, errors, 0.9))
    assert certificate.bound >= 0.9
    assert (certificate.accuracy, certificate.confidence) == (0.9, 0.9)
    assert (certificate.n_samples, certificate.by_class) == (320, None)
    assert certificate.tested >= 1
    assert certificate.proven
    assert selection.knowable is None
    known, errors = problem.count(selection.neighborhoods, range(400))
    assert selection.coverage == pytest.approx(known / 400)
    assert selection.accuracy == pytest.approx(1 - errors / known)
    assert selection.n_samples == 400
    assert not selection.optimal


def test_four_fifths_certify_and_the_remainder_too():
    assert Problem(404).certify().certificate.n_samples == 324
    assert Problem(405).certify().certificate.n_samples == 324


def test_a_seed_repeats_and_other_seeds_split_otherwise():
    problem = Problem(600)
    selections = [problem.certify(random_state=seed) for seed in range(5)]
    assert selections == [problem.certify(random_state=seed) for seed in range(5)]
    assert len({each.neighborhoods["layer0"] for each in selections}) > 1
    assert len({(each.certificate.known, each.certificate.errors) for each in selections}) > 1


def test_a_lower_target_never_gets_less_coverage_where_all_of_it_is_right():
    problem = Problem(600, errors=0)
    strict, lax = problem.certify(accuracy=0.95), problem.certify(accuracy=0.7)
    assert strict.coverage == lax.coverage > 0.3
    assert strict.accuracy == 1


@pytest.mark.parametrize(("rule", "k"), RULES)
def test_each_class_is_certified_by_its_own_samples(rule, k):
    problem = Problem(1500)
    selection = problem.certify(rule, k=k, each_class=True, classes=LABELS)
    certificate = selection.certificate
    second = parts_of(1500, seed=0)[1]
    counts = [problem.count(selection.neighborhoods, second, code) for code in selection.knowable]
    expected = {
        str(LABELS[code]): lower_bound(*count, 0.9)
        for code, count in zip(selection.knowable, counts, strict=True)
    }
    assert certificate.by_class == pytest.approx(expected)
    assert min(certificate.by_class.values()) == certificate.bound >= 0.9
    assert certificate.known == sum(known for known, _ in counts)
    assert certificate.errors == sum(errors for _, errors in counts)
    known = sum(
        problem.count(selection.neighborhoods, range(1500), c)[0] for c in selection.knowable
    )
    assert selection.coverage == pytest.approx(known / 1500)


def test_all_classes_are_certified_where_all_are_right():
    selection = Problem(1500, errors=0).certify(each_class=True, classes=LABELS)
    assert selection.knowable == (0, 1, 2)
    assert set(selection.certificate.by_class) == set(LABELS)


def test_a_class_that_is_never_believed_is_not_knowable():
    problem = Problem(1500)
    believed = problem.belief != 1
    problem.evidence = {"layer0": problem.evidence["layer0"][believed]}
    problem.belief, problem.y_true = problem.belief[believed], problem.y_true[believed]
    selection = problem.certify(RelativeBall, each_class=True)
    assert selection.knowable == (0, 2)
    assert set(selection.certificate.by_class) == {"0", "2"}


@pytest.mark.parametrize("n_believed", [1, 5, 60])
def test_a_class_that_is_believed_too_rarely_or_wrongly_is_not_knowable(n_believed):
    """What is left is certified, and counted, without it."""
    problem = Problem(1500, errors=0)
    problem.belief[problem.belief == 2] = 0
    problem.y_true = problem.belief.copy()
    rare = np.random.default_rng(0).permutation(1500)[:n_believed]
    problem.belief[rare] = 2
    problem.evidence["layer0"].class_distances[:] = np.where(
        np.arange(3) == problem.belief[:, None], 0.5, 2.0
    )
    selection = problem.certify(each_class=True)
    assert selection.knowable == (0, 1)
    assert selection.coverage == 1 - n_believed / 1500
    assert selection.accuracy == 1


def test_a_class_without_training_samples_is_never_known_and_disturbs_nothing():
    for rule, k in RULES:
        problem = Problem(500)
        distances = problem.evidence["layer0"].class_distances
        distances[:, 2] = np.inf
        problem.evidence["layer0"].neighbor_distances[:, 0] = distances.min(axis=1)
        assert (problem.belief == 2).sum() > 100
        selection = problem.certify(rule, k=k, accuracy=0.8)
        known, errors = problem.count(selection.neighborhoods, parts_of(500, seed=0)[1])
        assert (selection.certificate.known, selection.certificate.errors) == (known, errors)
        if rule in (Ball, RelativeBall):
            assert problem.count(selection.neighborhoods, range(500), code=2) == (0, 0)


# The order of the tests


@pytest.fixture
def ranked(monkeypatch):
    """The lists of candidates that were put to the test, in their order."""
    recorded = []

    def rank_and_record(*arguments):
        recorded.append(rank(*arguments))
        return recorded[-1]

    monkeypatch.setattr(guarantee, "rank", rank_and_record)
    return recorded


@pytest.mark.parametrize("each_class", [False, True])
def test_candidates_pass_until_the_first_fails_and_the_largest_coverage_is_chosen(
    ranked, each_class
):
    n_tested, n_barred = set(), 0
    for seed in range(40):
        problem = Problem(300, seed=seed, errors=0.4)
        second = parts_of(300, seed)[1]
        try:
            selection = problem.certify(RelativeBall, each_class=each_class, random_state=seed)
        except SelectionError:
            selection = None
        passes = []
        for candidate in ranked[-1]:
            codes = [None] if candidate.classes is None else candidate.classes
            counts = [problem.count(candidate.neighborhoods, second, code) for code in codes]
            passes.append(max(p_value(*count, 0.9) for count in counts) <= 0.1)
        n_passed = [*passes, False].index(False)
        n_barred += any(passes[n_passed:])
        if n_passed == 0:
            assert selection is None
            continue
        known = [
            sum(
                problem.count(candidate.neighborhoods, second, code)[0]
                for code in ([None] if candidate.classes is None else candidate.classes)
            )
            for candidate in ranked[-1][:n_passed]
        ]
        best = ranked[-1][int(np.argmax(known))]
        assert (selection.neighborhoods, selection.knowable) == (best.neighborhoods, best.classes)
        assert selection.certificate.known == max(known)
        assert selection.certificate.tested == min(n_passed + 1, len(passes))
        n_tested.add(selection.certificate.tested)
    assert len(n_tested) > 1
    assert n_barred > 0  # some would have passed, had the first failure not ended it


@pytest.mark.parametrize("each_class", [False, True])
def test_candidates_and_their_order_do_not_depend_on_the_samples_that_certify(ranked, each_class):
    outcomes = []
    for change in range(6):
        problem = Problem(900)
        rows = parts_of(900, seed=0)[1]
        rng = np.random.default_rng(change)
        if change:
            problem.y_true[rows] = np.where(
                rng.random(len(rows)) < 0.15 * rng.random(), 0, problem.belief[rows]
            )
            problem.evidence["layer0"].class_distances[rows] *= rng.uniform(1, 1.1, (len(rows), 3))
            if not each_class:  # how often a class is believed may be looked at
                problem.belief[rows] = problem.belief[rng.permutation(rows)]
        try:
            certificate = problem.certify(RelativeBall, each_class=each_class).certificate
            outcomes.append((certificate.known, certificate.errors, certificate.tested))
        except SelectionError:
            outcomes.append(None)
    assert len(ranked[0]) > 3
    assert all(each == ranked[0] for each in ranked)
    assert len(set(outcomes)) > 1  # only who passes changes


def test_the_order_for_each_class_goes_by_the_class_that_is_least_sure():
    sure, unsure = {"layer": Ball(1.0)}, {"layer": Ball(1.6)}
    kinds = [  # distance, belief, truth, how many
        (0.5, 0, 0, 100),
        (1.5, 0, 0, 400),
        (0.5, 1, 1, 40),
        (1.5, 1, 0, 12),  # within the larger ball one class goes wrong
    ]
    rows = [kind[:3] for kind in kinds for _ in range(kind[3])]
    own, belief, y_true = (np.array(column) for column in zip(*rows, strict=True))
    distances = np.full((len(own), 2), 10.0)
    distances[np.arange(len(own)), belief] = own
    part = Validation({"layer": make_evidence(distances)}, belief, y_true)

    def ranked_for(eligible):
        settings = [Candidate(sure), Candidate(unsure)]
        ranked = rank(settings, part, eligible, 0.9, 0.01)
        return [(candidate.neighborhoods, candidate.classes) for candidate in ranked]

    assert ranked_for(None) == [(unsure, None), (sure, None)]
    for_each = ranked_for(np.array([0, 1]))
    both = [setting for setting, classes in for_each if classes == (0, 1)]
    assert both == [sure, unsure]
    # The class that is sure of itself comes first, alone, and with the larger ball.
    assert for_each[0] == (unsure, (0,))
    assert ranked_for(np.array([1]))[0] == (sure, (1,))


# Errors


@pytest.mark.parametrize("value", [0, 1, -0.1, 1.5, float("nan"), float("inf")])
@pytest.mark.parametrize("name", ["accuracy", "confidence"])
def test_probabilities_lie_between_0_and_1(name, value):
    with pytest.raises(InputError, match=f"{name} must lie between 0 and 1, .*; got {value}"):
        Problem(100).certify(**{name: value})


def test_a_rule_without_a_radius_is_refused():
    with pytest.raises(
        SelectionError, match=r"only rules with parameters .*RelativeBall; got Near"
    ):
        Problem(100).certify(Nearest, k=3)


@pytest.mark.parametrize("rule", [BallElseNearest, BallWithNearest])
def test_a_rule_with_k_needs_it(rule):
    with pytest.raises(InputError, match=f"{rule.__name__} needs k, .*; got None"):
        Problem(100).certify(rule)
    with pytest.raises(InputError, match="holds 5 neighbor distances, too few for k=6"):
        Problem(100).certify(rule, k=6)


def test_too_few_samples_for_any_certificate_are_refused_and_the_number_named_is_enough():
    message = r"at least 22 IK samples without an error, .* holds 21: give at least 28$"
    with pytest.raises(SelectionError, match=message):
        uniform_problem(26, (0, 0)).certify()
    certificate = uniform_problem(27, (0, 0)).certify().certificate
    assert (certificate.known, certificate.errors) == (22, 0)
    bound = f"reaches a lower bound of {lower_bound(22, 1, 0.9):.4g} (22 IK samples, 1 wrong)"
    with pytest.raises(SelectionError, match=re.escape(bound)):
        uniform_problem(27, (0, 1)).certify()


def test_where_every_class_is_too_rare_to_be_certified_the_error_says_so():
    message = (
        "at least 22 IK samples without an error in a believed class, .* "
        "holds 20: give at least 28 in a believed class"
    )
    problem = uniform_problem(75, (0, 0))
    for code, rows in enumerate(np.array_split(parts_of(75, 0)[1], 3)):
        problem.belief[rows] = code
    with pytest.raises(SelectionError, match=message):
        problem.certify(each_class=True, classes=LABELS)


def test_where_nothing_is_certified_the_error_tells_the_bound_and_the_samples_needed():
    problem = uniform_problem(250, (8, 14))
    with pytest.raises(SelectionError) as error:
        problem.certify(accuracy=0.92)
    said = re.search(r"About ([\d,]+) validation samples would be needed", str(error.value))[1]
    needed, exact = int(said.replace(",", "")), np.ceil(1.25 * samples_needed(0.92, 0.9, 0.07))
    bound = lower_bound(200, 14, 0.9)
    assert (
        "no setting is certified to be right on 0.92 of IK with confidence 0.9: the most "
        f"promising reaches a lower bound of {bound:.4g} (200 IK samples, 14 wrong)"
    ) in str(error.value)
    assert 500 < exact <= needed < 1.1 * exact
    more = uniform_problem(needed, (needed // 60, int(0.07 * needed * 0.8)))
    assert more.certify(accuracy=0.92).certificate.bound >= 0.92


def test_where_errors_are_too_frequent_the_error_says_that_no_number_of_samples_would_do():
    message = r"\(200 IK samples, 60 wrong\)\. At these error rates no number of samples would"
    with pytest.raises(SelectionError, match=message):
        uniform_problem(250, (15, 60)).certify()
    with pytest.raises(SelectionError, match="wherever there are IK samples, too many of them are"):
        uniform_problem(250, (50, 200)).certify()


def test_a_class_that_is_never_within_reach_is_not_knowable():
    problem = Problem(600, errors=0)
    rows = problem.belief == 2
    problem.evidence["layer0"].class_distances[rows, 2] = 50.0
    assert problem.certify(each_class=True, classes=LABELS).knowable == (0, 1)
    problem.evidence["layer0"].class_distances[np.arange(600), problem.belief] = 50.0
    with pytest.raises(SelectionError, match="no Ball makes any of the"):
        problem.certify(each_class=True)


def test_a_setting_that_would_have_passed_after_the_first_failed_is_not_called_a_bound_reached():
    """The near samples look best on the first half and fail; the far ones would then pass."""
    n = 140
    distances, y_true = np.empty((n, 2)), np.zeros(n, dtype=np.int64)
    for part, (near_wrong, far_wrong) in zip(parts_of(n, 0), [(0, 3), (15, 0)], strict=True):
        near, far = np.split(part, [len(part) * 50 // 112])
        distances[near], distances[far] = (0.5, 1.0), (2.0, 3.0)
        y_true[near[:near_wrong]] = y_true[far[:far_wrong]] = 1
    whole = Validation({"layer": make_evidence(distances)}, np.zeros(n, dtype=np.int64), y_true)
    message = r"of 0\.6\d+ \(50 IK samples, 15 wrong\)\. More than 140 validation samples"
    with pytest.raises(SelectionError, match=message):
        certify(Goal(accuracy=0.8, confidence=0.9), whole, Ball)


@pytest.mark.parametrize(("rule", "k"), RULES)
def test_where_no_sample_can_be_known_the_error_says_so(rule, k):
    problem = Problem(100)
    # With the ratio 0 no other class contradicts, wherever it is; without samples there is no IK.
    distances = np.full((100, 3), np.inf if rule is RelativeBall else 0.0)
    problem.evidence = {"layer": make_evidence(distances, distances)}
    with pytest.raises(SelectionError, match=f"no {rule.__name__} makes any of the"):
        problem.certify(rule, k=k)


# The time limit


@pytest.mark.parametrize("time_limit", [0, 30])
def test_a_certificate_says_whether_its_candidates_were_proven(time_limit):
    """Three layers are searched by cells, which takes time; the promise is tested all the same."""
    selection = Problem(1500, n_layers=3, errors=0).certify(time_limit=time_limit)
    assert selection.certificate.proven == (time_limit > 0)
    assert selection.certificate.bound >= 0.9


def test_the_time_limit_is_shared_by_all_prices(monkeypatch):
    limits = []
    find = depth.deepest_point

    def remember(lows, highs, weights, limit):
        limits.append(limit)
        return find(lows, highs, weights, limit)

    monkeypatch.setattr("iknow.selection.guarantee.deepest_point", remember)
    Problem(600).certify(time_limit=1000)
    assert len(limits) == 17
    assert limits[0] <= 1000 / 17
    assert limits[-1] <= 1000
    assert sorted(limits) == limits  # what one price leaves, the next may use


@pytest.mark.parametrize(
    ("n", "said"),
    [(1, "About 1"), (97, "About 97"), (3728, "About 3,800"), (13_892_670, "About 14 million")],
)
def test_a_number_of_samples_is_said_in_two_digits(n, said):
    assert guarantee._in_words(n) == said
