"""Verification: the exact posterior by Monte Carlo, against quadrature, orthants and other samplers."""

import logging
from itertools import pairwise

import numpy as np
import pytest
from scipy.special import log_expit, log_ndtr, logsumexp, ndtr
from scipy.stats import multivariate_normal
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import postlin
from postlin import EP, GPClassifier, likelihoods, rules
from postlin.estimator import verifying
from postlin.estimator.verification import Verification, VerifiedProblem, spread
from postlin.inference.exact.bridge import _without_noise
from postlin.inference.exact.tempering import Run
from postlin.likelihoods import DensityLikelihood, NoisyThreshold

NOISE = 0.3
SMOOTH = ConstantKernel(9.0) * RBF(1.2)
KERNEL = SMOOTH + WhiteKernel(NOISE)
EPSILON = 0.02


class LogLog(DensityLikelihood):
    """One of a user's own, which is not symmetric."""

    name = "log_log"

    def log_density(self, y, f):
        rate = np.exp(np.minimum(f, 600.0))
        return np.where(y > 0, np.log(-np.expm1(-np.maximum(rate, 1e-300))), -rate)


def _log_log(y, f):
    rate = np.exp(f)
    return np.where(y > 0, np.log1p(-np.exp(-rate)), -rate)


#: For each likelihood an object, log p(y|f), and the noise variance that it contains already: the step
#: of the noisy threshold is too sharp for a grid, and its integral over the white noise is known.
CASES = {
    "probit": ("probit", lambda y, f: log_ndtr(y * f), 0.0),
    "logit": ("logit", lambda y, f: log_expit(y * f), 0.0),
    "noisy_threshold": (
        NoisyThreshold(EPSILON),
        lambda y, g: np.log(EPSILON + (1 - 2 * EPSILON) * ndtr(y * g / np.sqrt(NOISE))),
        NOISE,
    ),
    "log_log": (LogLog(), _log_log, 0.0),
}


def on_grid(K, y, log_p, points):
    """log ∫ N(f; 0, K) Π p(y|f) df by the trapezoidal rule where the prior is white."""
    n = len(y)
    t, step = np.linspace(-8.0, 8.0, points, retstep=True)
    z = np.stack(np.meshgrid(*[t] * n, indexing="ij"), axis=-1).reshape(-1, n)
    f = z @ np.linalg.cholesky(K).T
    terms = -0.5 * (z**2).sum(axis=1) + sum(log_p(y[i], f[:, i]) for i in range(n))
    return logsumexp(terms) + n * np.log(step / np.sqrt(2 * np.pi))


def rows(n, seed=0):
    """Rows and labels ±1 of which both occur."""
    rng = np.random.default_rng(seed)
    y = np.where(rng.random(n) < 0.5, 1.0, -1.0)
    y[:2] = 1.0, -1.0
    return rng.normal(size=(n, 2)), y


def fitted(n, likelihood="probit", kernel=KERNEL, inference="pl", **options):
    X, y = rows(n)
    return GPClassifier(
        kernel, likelihood=likelihood, inference=inference, optimizer=None, **options
    ).fit(X, y)


def assert_true(found, truth, sd):
    """The Monte Carlo estimate is within four of its standard deviations (and a bit) of the truth."""
    assert np.abs(found - truth) < 4.0 * sd + 2e-3


def test_every_likelihood_has_a_case():
    assert set(CASES) == {*likelihoods.REGISTRY, "log_log"}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("inference", ["pl", "ep"])
@pytest.mark.parametrize("fold_noise", [False, True])
def test_evidence_and_probability_of_two_rows_agree_with_quadrature(name, inference, fold_noise):
    likelihood, log_p, inside = CASES[name]
    model = fitted(2, likelihood, inference=inference, fold_noise=fold_noise)
    new = np.array([[0.4, -0.3]])
    found = model.verify(new, n_runs=8, random_state=0)
    y = model.y_train_
    K = SMOOTH(np.concatenate([model.X_train_, new])) + (NOISE - inside) * np.eye(3)
    truth = on_grid(K[:2, :2], y, log_p, 400)
    assert_true(found.log_evidence, truth, found.log_evidence_sd)
    with_new = on_grid(K, np.append(y, 1.0), log_p, 100)
    assert_true(found.probabilities[0, 1], np.exp(with_new - truth), found.probabilities_sd[0, 1])
    np.testing.assert_allclose(found.probabilities.sum(axis=1), 1.0, atol=1e-6)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("kernel", [KERNEL, SMOOTH], ids=["noisy", "smooth"])
def test_evidence_of_three_rows_agrees_with_quadrature(name, kernel):
    likelihood, log_p, inside = CASES[name]
    if kernel is SMOOTH and inside:
        pytest.skip("a step cannot be verified without noise")
    model = fitted(3, likelihood, kernel)
    found = model.verify(n_runs=8, random_state=1)
    noise = NOISE - inside if kernel is KERNEL else 0.0
    K = SMOOTH(model.X_train_) + noise * np.eye(3)
    assert_true(found.log_evidence, on_grid(K, model.y_train_, log_p, 100), found.log_evidence_sd)


def orthant(K, y):
    """log p(y) of probit: that f + e, e ~ N(0, 1), has the signs y, by Genz's integration."""
    n = len(y)
    signed = y[:, None] * (K + np.eye(n)) * y
    rng = np.random.default_rng(0)
    value = multivariate_normal.cdf(
        np.zeros(n), np.zeros(n), signed, abseps=1e-9, releps=1e-4, maxpts=400_000, rng=rng
    )
    return np.log(value)


@pytest.mark.parametrize("inference", ["pl", "ep"])
def test_probit_evidence_and_probability_agree_with_orthants(inference):
    model = fitted(7, kernel=ConstantKernel(30.0) * RBF(1.2) + WhiteKernel(0.1), inference=inference)
    new = np.array([[0.1, 0.2]])
    found = model.verify(new, n_runs=8, random_state=0)
    K = 30.0 * RBF(1.2)(np.concatenate([model.X_train_, new])) + 0.1 * np.eye(8)
    y = model.y_train_
    truth, with_new = orthant(K[:7, :7], y), orthant(K, np.append(y, 1.0))
    assert_true(found.log_evidence, truth, found.log_evidence_sd)
    assert_true(found.probabilities[0, 1], np.exp(with_new - truth), found.probabilities_sd[0, 1])


def test_whole_weights_are_repeated_rows():
    X, y = rows(5)
    weight = np.array([2.0, 1.0, 0.0, 1.0, 3.0])
    model = GPClassifier(KERNEL, optimizer=None).fit(X, y, weight)
    found = model.verify(X[:1], n_runs=8, random_state=0)
    again = np.repeat(np.arange(5), weight.astype(int))
    K = SMOOTH(X[again]) + NOISE * np.eye(len(again))
    assert_true(found.log_evidence, orthant(K, y[again]), found.log_evidence_sd)


def annealed(K, y, log_p, rng, chains=1000, levels=150):
    """log p(y) and particles of the posterior, by annealed importance sampling from the prior.

    Moves keep the prior, f' = √(1−b²) f + b N(0, K), and are accepted by the likelihood alone.
    """
    root = np.linalg.cholesky(K + 1e-12 * np.eye(len(K)))
    draw = lambda: rng.standard_normal((chains, len(y))) @ root.T  # noqa: E731
    f, log_weights = draw(), np.zeros(chains)
    exponents = np.linspace(0.0, 1.0, levels + 1) ** 2
    value = log_p(y, f).sum(axis=1)
    for before, after in pairwise(exponents):
        log_weights += (after - before) * value
        for b in (0.9, 0.6, 0.4, 0.25):
            proposed = np.sqrt(1 - b**2) * f + b * draw()
            new = log_p(y, proposed).sum(axis=1)
            accepted = np.log(rng.random(chains)) < after * (new - value)
            f[accepted], value[accepted] = proposed[accepted], new[accepted]
    weights = np.exp(log_weights - log_weights.max())
    batches = [logsumexp(part) - np.log(len(part)) for part in np.array_split(log_weights, 10)]
    log_z = logsumexp(log_weights) - np.log(chains)
    return log_z, np.std(batches) / np.sqrt(10), f, weights / weights.sum()


@pytest.mark.parametrize("name", ["logit", "noisy_threshold"])
def test_a_dozen_rows_agree_with_annealed_importance_sampling(name):
    likelihood, log_p, inside = CASES[name]
    model = fitted(12, likelihood)
    found = model.verify(n_runs=8, random_state=0)
    K = SMOOTH(model.X_train_) + (NOISE - inside) * np.eye(12)
    y = model.y_train_
    log_z, sd, f, weights = annealed(K, y, log_p, np.random.default_rng(0))
    assert np.abs(found.log_evidence - log_z) < 4.0 * np.hypot(found.log_evidence_sd, sd) + 5e-3
    if inside:  # a new label at a training row has noise of its own
        p = weights @ np.exp(log_p(1.0, f))
        assert np.abs(found.probabilities[:, 1] - p).max() < 2.0 / np.sqrt(1.0 / np.sum(weights**2))
        assert np.abs(model.predict_proba(model.X_train_)[:, 1] - p).max() > 0.1  # the fit is far off


@pytest.mark.parametrize("strategy", ["one_vs_rest", "one_vs_one"])
def test_many_classes_are_verified_by_their_binary_problems(strategy):
    X, _ = rows(15)
    labels = np.array(["a", "b", "c"])[np.arange(15) % 3]
    model = GPClassifier(KERNEL, optimizer=None, multi_class=strategy, random_state=0).fit(X, labels)
    found = model.verify(X[:4], n_runs=8, random_state=0)
    assert found.probabilities.shape == found.probabilities_sd.shape == (4, 3)
    np.testing.assert_array_equal(found.fit_probabilities, model.predict_proba(X[:4]))
    log_p = []
    for fit, problem in zip(model._estimators, found.problems, strict=True):
        alone = GPClassifier(KERNEL, optimizer=None).fit(fit.X_train_, fit.y_train_)
        part = alone.verify(X[:4], n_runs=8, random_state=1)
        assert_true(problem.log_evidence, part.log_evidence, problem.log_evidence_sd)
        log_p.append(np.log(part.probabilities))
    combined = model._decomposition.combine(np.stack(log_p, axis=1))
    assert np.abs(found.probabilities - combined).max() < 0.01
    assert found.log_evidence == pytest.approx(np.mean([p.log_evidence for p in found.problems]))
    assert "mean log evidence of the 3 problems" in str(found)


def test_a_seed_decides_whatever_the_number_of_threads(monkeypatch):
    model = fitted(20)
    one = model.verify(n_particles=600, random_state=3)
    again = model.verify(n_particles=600, random_state=3)
    monkeypatch.setattr(verifying, "threads", lambda: 3)
    threaded = model.verify(n_particles=600, random_state=np.random.RandomState(3))
    other = model.verify(n_particles=600, random_state=4)
    for same in (again, threaded):
        assert same.log_evidence == one.log_evidence
        np.testing.assert_array_equal(same.probabilities, one.probabilities)
    assert other.log_evidence != one.log_evidence


def test_a_model_from_a_file_and_one_in_a_pipeline_are_verified_alike(tmp_path):
    pytest.importorskip("skops")
    X, y = rows(20)
    model = make_pipeline(StandardScaler(), GPClassifier(KERNEL, optimizer=None)).fit(X, y)
    postlin.save(model, tmp_path / "m")
    loaded = postlin.load(tmp_path / "m")
    here, there = (m[-1].verify(random_state=0) for m in (model, loaded))
    np.testing.assert_allclose(here.probabilities, there.probabilities, atol=1e-9)
    assert len(here.probabilities) == 20


def test_negative_sites_can_be_verified():
    X = np.linspace(-1, 1, 12)[:, None]
    y = np.where(np.arange(12) == 5, -1.0, 1.0)  # the one wrong label has a site of negative precision
    y[11] = -1.0
    kernel, likelihood = ConstantKernel(9.0) * RBF(1.2) + WhiteKernel(0.05), NoisyThreshold(0.1)
    model, pl = (
        GPClassifier(kernel, likelihood=likelihood, inference=rule, optimizer=None).fit(X, y)
        for rule in ("ep", "pl")
    )
    assert model.approximation_.sites.tau.min() < 0
    found, other = (m.verify(n_runs=8, random_state=0) for m in (model, pl))
    sd = np.hypot(found.log_evidence_sd, other.log_evidence_sd)
    assert_true(found.log_evidence, other.log_evidence, sd)


def test_one_run_has_no_standard_deviation():
    found = fitted(10).verify(n_runs=1, random_state=0)
    assert found.log_evidence_sd is None
    assert found.probabilities_sd is None
    assert not found.is_trusted
    assert "a single run" in str(found)
    assert "±" not in str(found)


def test_the_time_limit_ends_runs_early_with_what_is_there():
    model = fitted(20)
    nothing = model.verify(time_limit=1e-9, random_state=0)
    assert nothing.n_runs == 1
    assert not nothing.runs[0].is_complete
    assert nothing.stopped_by == "time_limit"
    assert "DO NOT TRUST THIS: the time was up" in str(nothing)
    assert np.isfinite(nothing.probabilities).all()
    whole = model.verify(random_state=0)
    assert abs(nothing.log_evidence - whole.log_evidence) < 0.5  # importance sampling, few rows
    assert whole.stopped_by == ""
    assert model.verify(time_limit=1000.0, random_state=0).log_evidence == whole.log_evidence


class Interrupting(logging.Handler):
    """Presses Ctrl-C when a message begins in this way."""

    def __init__(self, beginning):
        super().__init__()
        self.beginning = beginning

    def emit(self, record):
        if record.getMessage().startswith(self.beginning):
            raise KeyboardInterrupt


@pytest.fixture
def interrupting():
    log, added = logging.getLogger("postlin"), []
    level = log.level

    def add(beginning):
        added.append(Interrupting(beginning))
        log.addHandler(added[-1])
        log.setLevel(logging.INFO)

    yield add
    for handler in added:
        log.removeHandler(handler)
    log.setLevel(level)


def test_ctrl_c_keeps_the_runs_that_were_finished(interrupting):
    model = fitted(10)
    interrupting("run 3 of 3")
    found = model.verify(random_state=0)
    assert found.n_runs == 2
    assert found.stopped_by == "interrupt"
    assert "2 runs of 3, then they were interrupted" in str(found)


def test_ctrl_c_before_any_run_has_finished_is_passed_on(interrupting):
    model = fitted(10)
    interrupting("run 1 of 3")
    with pytest.raises(KeyboardInterrupt):
        model.verify(random_state=0)
    np.testing.assert_allclose(model.predict_proba(model.X_train_).sum(axis=1), 1.0)


def test_progress_is_logged_with_the_time_left(caplog):
    with caplog.at_level(logging.DEBUG, logger="postlin"):
        fitted(10).verify(random_state=0, n_runs=2)
    lines = [record.getMessage() for record in caplog.records]
    runs = [line for line in lines if line.startswith("run ") and "log evidence" in line]
    assert len(runs) == 2
    assert "about" in runs[0]
    assert "left" not in runs[1]
    assert any("exponent 1 after" in line for line in lines)


def test_new_rows_are_checked_as_in_predict():
    model = fitted(10)
    with pytest.raises(ValueError, match="3 features"):
        model.verify(np.zeros((2, 3)))
    with pytest.raises(ValueError, match="NaN"):
        model.verify(np.full((2, 2), np.nan))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_particles": 49}, "n_particles must be 50 or more, got 49"),
        ({"n_particles": 1.5}, "n_particles must be a positive integer"),
        ({"n_runs": 0}, "n_runs must be a positive integer"),
        ({"time_limit": 0}, "time_limit must be a positive number of seconds or None, got 0"),
        ({"time_limit": "1"}, "time_limit must be a positive number"),
    ],
)
def test_options_out_of_range_are_refused(options, message):
    with pytest.raises(ValueError, match=message):
        fitted(6).verify(**options)


def test_too_many_particles_are_refused_before_any_work():
    with pytest.raises(MemoryError, match="use a smaller n_particles"):
        fitted(6).verify(n_particles=10**12)


def test_every_rule_is_verified_or_refused_in_a_sentence():
    assert set(rules.REGISTRY) == {"pl", "cl", "ep", "laplace"}
    with pytest.raises(ValueError, match=r"cannot start from a Laplace fit, .*='pl', 'cl' or 'ep'"):
        fitted(6, inference="laplace").verify()
    one, other = (fitted(6, inference=rule).verify(random_state=0) for rule in ("pl", "cl"))
    assert_true(one.log_evidence, other.log_evidence, one.log_evidence_sd)


def test_fits_without_an_exact_posterior_to_compare_with_are_refused():
    X, y = rows(12)
    for options, message in (
        ({"inducing": 4}, "this fit has inducing points"),
        ({"n_neighbors": 6, "kernel": KERNEL}, "this fit predicts from neighbours"),
        ({"multi_class": "joint"}, "treats all classes jointly"),
    ):
        labels = np.arange(12) % 3 if "multi_class" in options else y
        model = GPClassifier(**({"optimizer": None} | options), random_state=0).fit(X, labels)
        with pytest.raises(ValueError, match=message):
            model.verify()


def test_a_step_without_noise_is_refused():
    with pytest.raises(ValueError, match=r"noisy_threshold likelihood, a step, .* \+ WhiteKernel"):
        fitted(6, "noisy_threshold", SMOOTH).verify()


def test_parts_of_rows_with_noise_of_their_own_are_refused_and_otherwise_verified():
    X, y = rows(6)
    weight = np.array([0.5, 1.0, 1.5, 1.0, 2.0, 1.0])
    with pytest.raises(ValueError, match=r"verify needs whole numbers for weights .* fold_noise=True"):
        GPClassifier(KERNEL, optimizer=None).fit(X, y, weight).verify()
    model = GPClassifier(KERNEL, optimizer=None, fold_noise=True).fit(X[:3], y[:3], weight[:3])
    found = model.verify(n_runs=8, random_state=0)
    log_p = lambda y, g: log_ndtr(y * g / np.sqrt(1 + NOISE))  # noqa: E731
    z, t = np.polynomial.hermite_e.hermegauss(60)
    grid = np.stack(np.meshgrid(z, z, z, indexing="ij"), axis=-1).reshape(-1, 3)
    mass = np.log(np.einsum("i,j,k->ijk", t, t, t).ravel() / (2 * np.pi) ** 1.5)
    g = grid @ np.linalg.cholesky(SMOOTH(X[:3])).T
    truth = logsumexp(mass + log_p(y[:3], g) @ weight[:3])
    assert_true(found.log_evidence, truth, found.log_evidence_sd)


def test_probabilities_have_less_noise_than_independent_draws_leave():
    """The posterior mean of f*, given f, varies about as much as the fit says, and Φ of it with it."""
    model, new = fitted(40, kernel=SMOOTH), rows(30, seed=1)[0]
    particles, runs = 200, 20
    found = model.verify(new, n_particles=particles, n_runs=runs, random_state=0)
    mean, variance = model.latent_mean_and_variance(new)
    cross = SMOOTH(model.X_train_, new)
    to_new = np.linalg.lstsq(SMOOTH(model.X_train_), cross, rcond=1e-10)[0]
    left = SMOOTH.diag(new) - np.sum(cross * to_new, axis=0)
    draws = mean + np.sqrt(variance - left) * np.random.default_rng(0).normal(size=(2000, 30))
    independent = np.std(ndtr(draws / np.sqrt(1.0 + left)), axis=0) / np.sqrt(particles * runs)
    assert found.probabilities_sd[:, 1].mean() < 0.5 * independent.mean()


def test_a_noise_of_mean_zero_is_taken_out_of_probabilities():
    """Where p is linear in the noise nothing is left of it; where one draw makes p, half at most."""
    rng = np.random.default_rng(0)
    noise = rng.normal(size=(50, 2))
    log_weights = np.log(rng.dirichlet(np.ones(50)))
    log_p = np.log(0.3 + 0.01 * noise)
    log_p[:, 1] = -1e5 * np.arange(50.0)
    found = _without_noise(log_p + log_weights[:, None], log_weights, noise)
    assert found[0] == pytest.approx(np.log(0.3), rel=1e-12)
    assert abs(found[1] - log_weights[0]) <= np.log(2.0) + 1e-12
    impossible = np.full((50, 1), -np.inf)
    assert _without_noise(impossible, log_weights, 0.0 * noise[:, :1]) == -np.inf


def test_twice_the_spread_is_students_interval():
    rng = np.random.default_rng(0)
    values = rng.normal(size=(3, 20_000))
    outside = np.abs(values.mean(axis=0)) > 2.0 * spread(values)
    assert abs(outside.mean() - 0.05) < 0.006
    assert spread(values[:1]) is None


def _verification(log_evidences, acceptance=0.8, ancestors=900, fit=-10.0):
    runs = tuple(
        Run(z, np.ones(1), np.array([800.0]), np.array([acceptance]), ancestors, 0.1, True)
        for z in log_evidences
    )
    p = np.full((4, 2), 0.5)
    parts = np.array([0, 1]), p, p, 0 * p, (VerifiedProblem("a", fit, runs),), 1000, len(runs), "", 0.3
    return Verification(*parts)


def test_the_verdict_says_what_cannot_be_trusted():
    good = _verification([-9.8, -9.81, -9.79])
    assert good.is_trusted
    assert "is 0.20 ± 0.01 nat below the exact one." in str(good)
    assert "no difference that the runs can tell" in str(_verification([-9.9, -10.2, -10.0]))
    for bad, reason in (
        (_verification([-9.0, -13.0, -8.0]), "the runs disagree about the log evidence"),
        (_verification([-9.8, -9.81, -9.79], acceptance=0.1), "at one level only 10% of the moves"),
        (_verification([-9.8, -9.81, -9.79], ancestors=12), "only 12 of 1,000 particles"),
    ):
        assert not bad.is_trusted
        assert f"DO NOT TRUST THIS: {reason}" in str(bad)
        assert "not to be trusted" in repr(bad)


def test_hard_posteriors_are_reached_or_doubted(data):
    crab = data("crab", 40)
    kernel = ConstantKernel(1e4) * RBF(3.0) + WhiteKernel(0.1)
    found = [
        GPClassifier(kernel, inference=rule, optimizer=None).fit(crab.X, crab.y).verify(random_state=0)
        for rule in ("pl", EP())
    ]
    sd = np.hypot(*(one.log_evidence_sd for one in found))
    assert all(one.is_trusted for one in found)
    assert abs(found[0].log_evidence - found[1].log_evidence) < 4.0 * sd + 0.01


@pytest.mark.slow
@pytest.mark.parametrize("likelihood", ["probit", "logit", "noisy_threshold"])
def test_two_seeds_agree_within_their_spread(data, likelihood):
    crab = data("crab")
    model = GPClassifier(likelihood=likelihood).fit(crab.X, crab.y)
    found = [model.verify(crab.X[:20], random_state=seed) for seed in range(80)]
    apart = [
        abs(a.log_evidence - b.log_evidence) > 2.0 * np.hypot(a.log_evidence_sd, b.log_evidence_sd)
        for a, b in zip(found[::2], found[1::2], strict=True)
    ]
    assert sum(apart) <= 2  # of 40


@pytest.mark.parametrize("corrected", [False, True])
def test_the_correction_is_compared_with_the_truth_whether_it_is_on_or_not(corrected):
    model = fitted(12, corrected=corrected)
    found = model.verify(n_runs=8, n_particles=2000, random_state=0)
    assert found.corrected_log_evidence == pytest.approx(model.log_marginal_likelihood_corrected_)
    own = found.corrected_probabilities if corrected else found.fit_probabilities
    np.testing.assert_allclose(own, model.predict_proba(model.X_train_), rtol=1e-12)
    assert abs(found.corrected_log_evidence_difference) < abs(found.log_evidence_difference)
    assert np.abs(found.corrected_probability_differences).mean() < found.mean_difference
    assert "With corrected=True" in str(found)


def test_without_a_correction_there_is_nothing_to_compare():
    X, y = rows(12)
    weight = np.full(12, 0.5)
    model = GPClassifier(SMOOTH, optimizer=None).fit(X, y, sample_weight=weight)
    found = model.verify(n_runs=2, random_state=0)
    assert found.corrected_log_evidence is None
    assert found.corrected_probability_differences is None
    assert "corrected" not in str(found)
