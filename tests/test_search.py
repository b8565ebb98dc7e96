"""Where searches begin and end: starts from the data, hyperpriors, ceilings, and one warning a fit."""

import logging
import warnings

import numpy as np
import pytest
from scipy.optimize import approx_fprime
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    Hyperparameter,
    Kernel,
    Matern,
    StationaryKernelMixin,
    WhiteKernel,
)

from postlin import ARDPrior, ConvergenceWarning, GPClassifier
from postlin.learning.hyperparameters import Hyperparameters
from postlin.learning.starts import Guide, constant_evidence, natural_length, spread
from postlin.likelihoods import Probit
from postlin.linalg.minimise import Worth, minimise, optimise
from postlin.rules import REGISTRY as RULES

NOISE = WhiteKernel(0.1, "fixed")


@pytest.fixture
def rng():
    return np.random.default_rng(11)


def one_hot(n=106, positions=57, seed=0):
    """Rows like those of promoter genes: 57 bases, of which a few decide, as standardised columns."""
    rng = np.random.default_rng(seed)
    y = np.where(np.arange(n) % 2, 1, -1)
    base = rng.integers(4, size=(n, positions))
    for k in range(8):
        base[:, k] = np.where(rng.random(n) < 0.5, np.where(y > 0, 1, 2), base[:, k])
    X = (base[:, :, None] == np.arange(4)).reshape(n, -1).astype(float)
    return (X - X.mean(axis=0)) / np.where(X.std(axis=0) > 0, X.std(axis=0), 1.0), y


@pytest.fixture(scope="module")
def genes():
    return one_hot()


def best_of_grid(X, y, inference, likelihood="probit"):
    """The largest log evidence of many kernels without any search, by one inference each."""
    d, values = X.shape[1], []
    for length in np.sqrt(d) * np.array([0.5, 1.0, 2.0, 4.0, 8.0]):
        for variance in 10.0 ** np.arange(-2, 5):
            kernel = ConstantKernel(variance) * RBF(length) + NOISE
            model = GPClassifier(kernel, inference=inference, likelihood=likelihood, optimizer=None)
            values.append(model.fit(X, y).log_marginal_likelihood_value_)
    return max(values)


@pytest.mark.parametrize("rule", ["pl", "laplace"])
@pytest.mark.parametrize("given", [False, True], ids=["default", "too short"])
def test_many_one_hot_columns_are_no_flat_start(genes, rule, given):
    # the matrix of RBF(1) is diagonal here: the search ended at once, with probability 0.5 everywhere
    X, y = genes
    kernel = ConstantKernel(10.0, (1e-5, 1e10)) * RBF(1.0, (1e-5, 1e5)) + NOISE if given else None
    model = GPClassifier(kernel, inference=rule).fit(X, y)
    assert model.log_marginal_likelihood_value_ > best_of_grid(X, y, rule)
    assert np.ptp(model.predict_proba(X)[:, 1]) > 0.5


@pytest.mark.parametrize("length", [1e-4, 1e4], ids=["diagonal", "constant"])
def test_a_flat_start_is_noticed_and_logged(data, length, caplog):
    here = data("crab", 60)
    good = GPClassifier(10.0 * RBF(1.0) + NOISE).fit(here.X, here.y)
    with caplog.at_level(logging.INFO, "postlin"):
        model = GPClassifier(10.0 * RBF(length) + NOISE).fit(here.X, here.y)
    assert any("nearly diagonal or constant" in line for line in caplog.messages)
    assert model.log_marginal_likelihood_value_ == pytest.approx(
        good.log_marginal_likelihood_value_, abs=1e-3
    )


class Cauchy(StationaryKernelMixin, Kernel):
    """A user's kernel with a parameter whose name says nothing: 1/(1 + γ |x − x'|²)."""

    def __init__(self, gamma=1.0, gamma_bounds=(1e-9, 1e9)):
        self.gamma, self.gamma_bounds = gamma, gamma_bounds

    @property
    def hyperparameter_gamma(self):
        return Hyperparameter("gamma", "numeric", self.gamma_bounds)

    def diag(self, X):
        return np.ones(len(X))

    def __call__(self, X, Y=None, eval_gradient=False):
        square = ((X[:, None] - (X if Y is None else Y)) ** 2).sum(axis=2)
        K = 1.0 / (1.0 + self.gamma * square)
        return (K, (-self.gamma * square * K**2)[:, :, None]) if eval_gradient else K


@pytest.mark.parametrize("gamma", [1e-7, 1e6])
def test_a_flat_start_of_a_users_kernel_is_noticed(data, gamma):
    here = data("crab", 60)
    ends = [
        GPClassifier(10.0 * Cauchy(g) + NOISE).fit(here.X, here.y).log_marginal_likelihood_value_
        for g in (0.1, gamma)
    ]
    assert ends[1] == pytest.approx(ends[0], abs=0.01)


@pytest.mark.parametrize("rule", RULES)
def test_rows_that_are_all_equal_cannot_be_told_apart(rule):
    X, y = np.ones((12, 3)), np.arange(12) % 2
    with pytest.warns(ConvergenceWarning, match="cannot tell the rows apart") as said:
        model = GPClassifier(inference=rule).fit(X, y)
    assert len(said) == 1
    np.testing.assert_allclose(model.predict_proba(X), 0.5, atol=1e-6)


def test_labels_that_have_nothing_to_do_with_the_rows_are_no_fault():
    rng = np.random.default_rng(6)
    X, y = rng.normal(size=(80, 3)), rng.integers(2, size=80)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = GPClassifier().fit(X, y)
    prior = constant_evidence(y, None)
    assert abs(model.log_marginal_likelihood_value_ - prior) < 4.0
    assert np.ptp(model.predict_proba(rng.normal(size=(50, 3)))[:, 1]) < 0.05
    assert "none found, all new rows have nearly the same probability" in model.summary()


def test_a_better_optimum_than_a_poor_start_finds(data):
    # from a short length scale the search ends in a worse optimum, and looks elsewhere afterwards
    rng = np.random.default_rng(3)
    X = rng.normal(size=(90, 6))
    y = np.sign(X @ [1.0, 0.8, 0.5, 0, 0, 0] + 0.8 * rng.normal(size=90))
    good = GPClassifier().fit(X, y)
    poor = GPClassifier(ConstantKernel(100.0) * RBF(0.3) + NOISE).fit(X, y)
    gap = good.log_marginal_likelihood_value_ - poor.log_marginal_likelihood_value_
    assert abs(gap) < 1e-3


@pytest.mark.parametrize("which", [slice(50, 100), slice(6)], ids=["two clusters", "some outliers"])
def test_rows_that_are_far_away_hide_nothing(which):
    rng = np.random.default_rng(8)
    X = rng.normal(size=(100, 3))
    y = np.where(X[:, 0] + 0.5 * rng.normal(size=100) > 0, 1, -1)
    X[which] += 1e5
    found = GPClassifier().fit(X, y).log_marginal_likelihood_value_
    apart = np.arange(100) < 0
    apart[which] = True
    kernel = ConstantKernel(80.0) * RBF(8.7) + NOISE
    groups = [GPClassifier(kernel, optimizer=None).fit(X[part], y[part]) for part in (apart, ~apart)]
    # they are as good as independent, at any kernel that suits them
    assert found > sum(group.log_marginal_likelihood_value_ for group in groups) - 0.1


@pytest.mark.parametrize("unit", [1e-6, 1.0, 1e6])
def test_the_default_start_does_not_depend_on_the_unit(data, unit):
    here = data("thyroid", 80)
    X = (here.X - here.X.mean(axis=0)) / here.X.std(axis=0)
    model = GPClassifier().fit(unit * X, here.y)
    start = np.exp(model.evidence_path_[0][0])
    np.testing.assert_allclose(start, [10.0, np.sqrt(5) * unit])
    assert model.log_marginal_likelihood_value_ == pytest.approx(
        GPClassifier().fit(X, here.y).log_marginal_likelihood_value_, abs=1e-6
    )


def test_weights_mean_repeated_rows_for_the_start_too(rng):
    X, weight = rng.normal(size=(30, 4)), rng.integers(1, 4, size=30)
    repeated = np.repeat(X, weight, axis=0)
    np.testing.assert_allclose(spread(X, weight), np.std(repeated, axis=0))
    y = np.arange(30) % 3
    counts = np.bincount(np.repeat(y, weight))
    expected = np.sum(counts * np.log(counts / counts.sum()))
    assert constant_evidence(y, weight) == pytest.approx(expected)


def test_natural_lengths_of_extreme_features():
    assert natural_length(np.ones(9)) == pytest.approx(3.0)
    assert natural_length(np.zeros(4)) == pytest.approx(2.0)
    assert natural_length(spread(np.array([[1e308], [-1e308]]))) == pytest.approx(1e308)
    assert len(spread(np.array(["a", "b"], dtype=object))) == 0


def test_length_scales_of_several_parts_keep_their_ratios(rng):
    kernel = RBF(0.1) + 3.0 * Matern(0.4) + DotProduct()
    at = Hyperparameters(kernel, Probit())
    X = rng.normal(size=(40, 4))
    guide = Guide(at, X, spread(X), [0.0])
    (where, other) = at.where("length_scale")
    for theta in guide.looks:
        assert theta[other] - theta[where] == pytest.approx(np.log(4.0))
    mean = 0.5 * (guide.looks[0][where] + guide.looks[0][other])
    np.testing.assert_allclose(np.exp(mean), natural_length(spread(X)))


def test_a_variance_passes_its_ceiling_only_where_that_is_worth_it():
    # −log(1 + e^(2 − t)): from 11.5 on nothing is left to gain; t/4 has no optimum within the bounds
    def objective(rises):
        def value_and_slope(x):
            t = x[0]
            flat = np.log1p(np.exp(2.0 - t)), -1.0 / (1.0 + np.exp(t - 2.0))
            return (flat[0] - rises * t, np.array([flat[1] - rises]))

        return value_and_slope

    bounds, worth = np.array([[-10.0, 23.0]]), Worth()
    soft = np.array([11.5])
    kept = minimise(objective(1e-3), np.array([2.0]), bounds, worth, soft=soft)
    assert kept.x[0] == pytest.approx(11.5, abs=1e-9)
    passed = minimise(objective(0.25), np.array([2.0]), bounds, worth, soft=soft)
    assert passed.x[0] == 23.0


def test_an_unbounded_variance_costs_few_evaluations(genes):
    X, y = genes
    wide = ConstantKernel(10.0, (1e-5, 1e10)) * RBF(np.sqrt(X.shape[1])) + NOISE
    default, given = GPClassifier().fit(X, y), GPClassifier(wide).fit(X, y)
    assert np.exp(default.kernel_.theta[0]) <= 1.001e5 < np.exp(given.kernel_.theta[0])
    assert len(default.evidence_path_) < len(given.evidence_path_)
    gap = given.log_marginal_likelihood_value_ - default.log_marginal_likelihood_value_
    assert 0 <= gap < 0.1


def test_one_warning_names_all_problems_once(three_classes):
    X, y = three_classes
    kernel = ConstantKernel(1.0, (0.5, 2.0)) * RBF([9.0, 9.0], (5.0, 10.0))
    with pytest.warns(ConvergenceWarning) as said:
        GPClassifier(kernel, hyperprior=None).fit(X, y)
    assert len(said) == 1
    text = str(said[0].message)
    assert "(1) " in text
    assert "(2) " in text
    assert text.count("upper bound of k1__constant_value") == 1
    assert "(1) a against the rest, c against the rest: the log evidence still rises" in text


@pytest.fixture(scope="module")
def three_classes():
    rng = np.random.default_rng(7)
    X = rng.normal(size=(90, 2))
    return X, np.array(list("abc"))[np.digitize(np.sin(2 * X[:, 0]) + X[:, 1], [-0.5, 0.5])]


def test_a_bound_that_costs_nothing_is_not_mentioned(data):
    here = data("thyroid", 60)
    free = GPClassifier(10.0 * RBF(1.0) + NOISE).fit(here.X, here.y)
    length = 1.01 * free.kernel_.k1.k2.length_scale
    kernel = ConstantKernel(10.0) * RBF(length, (length, 10 * length)) + NOISE
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = GPClassifier(kernel).fit(here.X, here.y)
    assert model.kernel_.k1.k2.length_scale == length


def test_the_log_names_the_class(three_classes, caplog):
    with caplog.at_level(logging.INFO, "postlin"):
        GPClassifier(verbose=1).fit(*three_classes)
    for name in "abc":
        assert sum(f"{name} against the rest: " in line for line in caplog.messages) == 1


def reference_density(theta, scale):
    """The log density of variance and length scales as the documentation writes it."""
    relative, d = theta[1:] - np.log(scale), len(scale)
    mean = relative.mean()
    return (
        -np.log(1 + ((relative - mean) / 0.2) ** 2).sum()
        - 0.5 * ((mean - np.log(2 * np.sqrt(d))) / 2) ** 2
        - 0.5 * ((theta[0] - np.log(10)) / 3) ** 2
    )


def test_the_ard_prior_and_its_gradient(rng):
    at = Hyperparameters(2.0 * RBF(np.ones(4)) + NOISE, Probit())
    scale = np.array([1.0, 3.0, 1e-3, 0.5])
    prior = ARDPrior().bound(at, scale)
    for _ in range(5):
        theta = rng.normal(size=5)
        value, gradient = prior(theta)
        assert value == pytest.approx(reference_density(theta, scale))
        differences = approx_fprime(theta, lambda t: prior(t)[0], 1e-6)
        np.testing.assert_allclose(gradient, differences, atol=1e-4)
    assert ARDPrior().bound(Hyperparameters(RBF(1.0), Probit()), scale) is None


@pytest.mark.parametrize("optimizer", ["bfgs", "fmin_l_bfgs_b"])
def test_a_hyperprior_moves_the_optimum_and_stays_out_of_the_evidence(data, optimizer):
    here = data("crab", 60)
    kernel = ConstantKernel(10.0, (1e-5, 1e10)) * RBF(np.ones(6)) + NOISE
    spreads = []
    for spread_ in (0.02, 0.2, 5.0):
        prior = ARDPrior(spread=spread_)
        model = GPClassifier(kernel, hyperprior=prior, optimizer=optimizer).fit(here.X, here.y)
        spreads.append(np.std(model.kernel_.theta[1:]))
        alone = GPClassifier(model.kernel_, optimizer=None).fit(here.X, here.y)
        assert model.log_marginal_likelihood_value_ == pytest.approx(
            alone.log_marginal_likelihood_value_, abs=1e-7
        )
        # the end is stationary for evidence and prior together
        at = Hyperparameters(model.kernel_, Probit())
        _, slope = model.log_marginal_likelihood(model.kernel_.theta, eval_gradient=True)
        _, by_prior = prior.bound(at, spread(here.X))(model.kernel_.theta)
        assert np.abs(slope + by_prior).max() < 0.02
    assert spreads[0] < spreads[1] < spreads[2]


def test_a_hyperprior_of_ones_own(data):
    here = data("crab", 60)

    def strong(theta):
        return -0.5e4 * (theta[1] - 1.0) ** 2, np.array([0.0, -1e4 * (theta[1] - 1.0)])

    model = GPClassifier(hyperprior=strong).fit(here.X, here.y)
    assert model.kernel_.theta[1] == pytest.approx(1.0, abs=0.02)
    assert model.evidence_path_[-1][1] == pytest.approx(model.log_marginal_likelihood_value_, abs=1e-4)


def test_auto_is_none_for_one_length_scale_and_the_prior_for_many(data):
    here = data("crab", 40)
    for kernel, prior in ((None, None), (5.0 * RBF(np.ones(6)) + NOISE, ARDPrior())):
        auto, given = (
            GPClassifier(kernel, hyperprior=h).fit(here.X, here.y).kernel_.theta
            for h in ("auto", prior)
        )
        np.testing.assert_array_equal(auto, given)


@pytest.mark.parametrize(
    ("prior", "message"),
    [
        ("none", "hyperprior must be 'auto', None, an ARDPrior or a function"),
        (ARDPrior(), "ARDPrior needs a kernel with a free length scale for each feature"),
        (lambda theta: (np.nan, np.zeros(2)), "hyperprior must return a number"),
        (lambda theta: (0.0, np.full(2, np.nan)), "hyperprior must return a number"),
        (lambda theta: ("a", np.zeros(2)), "hyperprior must return a number"),
        (lambda theta: 1.0, "hyperprior must return a number and a gradient of 2 numbers"),
        (
            lambda theta: (0.0, np.zeros(3)),
            "hyperprior must return a number and a gradient of 2 numbers",
        ),
    ],
)
def test_hyperpriors_that_cannot_be_used(data, prior, message):
    here = data("crab", 40)
    with pytest.raises(ValueError, match=message):
        GPClassifier(hyperprior=prior).fit(here.X, here.y)
    with pytest.raises(ValueError, match="spread of ARDPrior must be a positive number"):
        ARDPrior(spread=-1.0)


@pytest.mark.parametrize("kind", [{"multi_class": "joint", "shared_kernel": False}, {"inducing": 12}])
def test_hyperpriors_of_joint_and_sparse_fits(three_classes, kind):
    X, y = three_classes
    if "inducing" in kind:
        y = y == "a"
    kernel = ConstantKernel(10.0) * RBF(np.ones(2)) + NOISE
    tight, loose = (
        GPClassifier(kernel, hyperprior=ARDPrior(spread=s), random_state=0, **kind).fit(X[:60], y[:60])
        for s in (0.005, 2.0)
    )

    def ratios(model):
        at = model.base_estimator_.hyperparameters
        return [abs(np.diff(at.theta[where])[0]) for where in at.where("length_scale")]

    assert max(ratios(tight)) < 0.1 < max(ratios(loose))


def test_a_search_gives_up_where_nothing_can_be_computed():
    calls = []

    def objective(x):
        calls.append(x)
        return (0.0, np.array([-1.0, 2.0])) if len(calls) == 1 else (1e100, np.zeros(2))

    end = minimise(objective, np.zeros(2), np.array([[-9.0, 9.0]] * 2), Worth())
    np.testing.assert_array_equal(end.x, 0.0)
    assert len(calls) <= 6


def test_a_search_steps_back_from_where_nothing_can_be_computed():
    def objective(x):
        if x[0] > 0.15:
            return 1e100, np.zeros(1)
        return 50 * (x[0] - 0.1) ** 2, np.array([100 * (x[0] - 0.1)])

    end = minimise(objective, np.zeros(1), np.array([[-9.0, 9.0]]), Worth())
    assert end.x[0] == pytest.approx(0.1, abs=1e-4)
    assert end.message is None


@pytest.mark.parametrize("order", ["sorted", "shuffled"])
def test_rows_in_order_of_time_are_told_apart(order):
    # the nearest rows are next to each other, and few rows drawn evenly would not show it
    x = np.arange(400.0)[:, None]
    y = np.sin(2 * np.pi * x[:, 0] / 8.3) > 0
    rows = np.arange(400) if order == "sorted" else np.random.default_rng(0).permutation(400)
    kernel = ConstantKernel(10.0) * RBF(0.7, "fixed") + NOISE
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = GPClassifier(kernel).fit(x[rows], y[rows])
    assert not model.base_estimator_.constant


def test_a_warm_start_on_another_scale_is_moved(data):
    here = data("crab", 60)
    model = GPClassifier(10.0 * RBF(1.0, (1e-5, 1e9)) + NOISE, warm_start=True).fit(here.X, here.y)
    value = model.log_marginal_likelihood_value_
    model.fit(1e7 * here.X, here.y)
    assert model.log_marginal_likelihood_value_ == pytest.approx(value, abs=0.01)


@pytest.mark.parametrize("optimizer", [None, "bfgs_finite_differences", "bfgs"])
def test_equal_rows_are_named_whatever_the_optimiser(optimizer):
    X, y = np.ones((12, 3)), np.arange(12) % 2
    with pytest.warns(ConvergenceWarning, match="cannot tell the rows apart"):
        GPClassifier(optimizer=optimizer).fit(X, y)


def test_the_constant_of_a_hyperprior_changes_nothing(rng):
    X, y = rng.normal(size=(50, 3)), rng.integers(2, size=50)
    paths = [
        GPClassifier(hyperprior=lambda theta, c=c: (c, np.zeros(2))).fit(X, y).evidence_path_
        for c in (-1e3, 0.0, 1e3)
    ]
    assert [len(path) for path in paths] == [len(paths[1])] * 3


class Counted:
    """A quadratic with its minimum at 1, 2, …, that counts how often it is computed at each point."""

    def __init__(self, known=True):
        self.known, self.points = known, []

    def __call__(self, x):
        self.points.append(tuple(x))
        away = x - np.arange(1.0, 1.0 + len(x))
        return (away @ away, 2.0 * away) if self.known else (1e100, np.zeros_like(x))

    def value(self, x):
        return self(x)[0]


@pytest.mark.parametrize("known", [True, False])
def test_l_bfgs_computes_the_evidence_once_at_the_start(known):
    objective, start = Counted(known), np.array([4.0, -3.0])
    bounds = np.array([[-9.0, 9.0]] * 2)
    end = optimise(objective, start, bounds, "fmin_l_bfgs_b", Worth())
    assert objective.points.count(tuple(start)) == 1
    np.testing.assert_allclose(end.x, [1.0, 2.0] if known else start, atol=1e-4)
