"""Every rule × likelihood × schedule reaches a fixed point that a brute-force check confirms."""

import warnings

import numpy as np
import pytest
from reference import dense_posterior, density, integrate

import postlin
from postlin import CL, EP, PL, ConvergenceWarning, Laplace, NegativeSiteWarning, Sites
from postlin.inference.exact.problem import ExactProblem
from postlin.likelihoods import REGISTRY as LIKELIHOODS
from postlin.likelihoods import NoisyThreshold, Probit, WithNoise
from postlin.rules import REGISTRY as RULES
from postlin.schedules import REGISTRY as SCHEDULES
from postlin.schedules import Hybrid, Parallel, Sequential

COMBINATIONS = [
    (rule, likelihood)
    for rule in sorted(RULES)
    for likelihood in sorted(LIKELIHOODS)
    if (rule, likelihood) != ("laplace", "noisy_threshold")
]


def expected_site(rule, likelihood, y, m, v, tau, nu):
    """What the rule wants at a marginal, by quadrature: the paper and the textbook."""
    if rule == "laplace":
        step = 1e-4
        p = [np.log(density(likelihood, y, m + k * step)) for k in (-1, 0, 1)]
        slope, curvature = (p[2] - p[0]) / (2 * step), -(p[2] - 2 * p[1] + p[0]) / step**2
        return curvature, curvature * m + slope
    v_c = 1 / (1 / v - tau)
    m_c = v_c * (m / v - nu)
    if rule in ("pl", "cl"):
        m, v = (m, v) if rule == "pl" else (m_c, v_c)
        alpha = integrate(lambda f: density(likelihood, 1, f), m, v)
        A = integrate(lambda f: (f - m) * 2 * density(likelihood, 1, f), m, v) / v
        omega = 4 * alpha * (1 - alpha) - A**2 * v
        return A**2 / omega, A * (y - (2 * alpha - 1 - A * m)) / omega
    z = integrate(lambda f: density(likelihood, y, f), m_c, v_c)
    mean = integrate(lambda f: f * density(likelihood, y, f), m_c, v_c) / z
    variance = integrate(lambda f: (f - mean) ** 2 * density(likelihood, y, f), m_c, v_c) / z
    return 1 / variance - 1 / v_c, mean / variance - m_c / v_c


@pytest.mark.parametrize("schedule", sorted(SCHEDULES))
@pytest.mark.parametrize(("rule", "likelihood"), COMBINATIONS)
def test_the_result_is_a_fixed_point(data, rule, likelihood, schedule):
    crab = data("crab", 40)
    K = crab.covariance(4.0, 2.0)
    result = postlin.infer(K, crab.y, likelihood=likelihood, inference=rule, schedule=schedule)
    assert result.converged
    assert result.residual <= 1e-8
    assert result.history.residuals[-1] == result.residual
    assert len(result.history.means) == len(result.history.residuals) == result.n_iter
    assert result.n_factorisations >= result.n_iter
    mean, covariance = dense_posterior(K, np.zeros(40), *result.sites)
    np.testing.assert_allclose(result.mean, mean, atol=1e-8)
    np.testing.assert_allclose(result.covariance, covariance, atol=1e-8)
    np.testing.assert_allclose(result.variance, covariance.diagonal(), atol=1e-8)
    for i in range(0, 40, 7):
        tau, nu = expected_site(
            rule,
            likelihood,
            crab.y[i],
            mean[i],
            covariance[i, i],
            result.sites.tau[i],
            result.sites.nu[i],
        )
        assert result.sites.tau[i] == pytest.approx(tau, rel=1e-5, abs=1e-6)
        assert result.sites.nu[i] == pytest.approx(nu, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize("schedule", ["sequential", "hybrid"])
@pytest.mark.parametrize(("variance", "length_scale"), [(1.0, 0.5), (100.0, 2.0), (1e4, 8.0)])
@pytest.mark.parametrize(("rule", "likelihood"), [c for c in COMBINATIONS if c[0] != "laplace"])
def test_schedules_reach_the_same_point(data, rule, likelihood, variance, length_scale, schedule):
    glass = data("glass", 90)
    K = glass.covariance(variance, length_scale)
    one = postlin.infer(K, glass.y, likelihood=likelihood, inference=rule)
    other = postlin.infer(K, glass.y, likelihood=likelihood, inference=rule, schedule=schedule)
    v, m = one.variance, one.mean
    d_tau = other.sites.tau - one.sites.tau
    d_nu = other.sites.nu - one.sites.nu
    assert np.abs(d_tau * v).max() < 1e-6
    assert np.abs((d_nu - m * d_tau) * np.sqrt(v)).max() < 1e-6


@pytest.mark.parametrize("likelihood", sorted(LIKELIHOODS))
@pytest.mark.parametrize("length_scale", [0.1, 2.0, 30.0])
@pytest.mark.parametrize("variance", [1e-2, 1e2, 1e4])
@pytest.mark.parametrize(
    ("rule", "name"), [*(("pl", name) for name in ("crab", "thyroid", "ionosphere")), ("cl", "thyroid")]
)
def test_linearisation_converges_where_plain_iteration_does_not(
    data, rule, name, variance, length_scale, likelihood
):
    K = data(name).covariance(variance, length_scale)
    result = postlin.infer(K, data(name).y, likelihood=likelihood, inference=rule)
    assert result.converged
    assert result.n_factorisations <= 60
    assert np.isfinite(result.log_evidence)


@pytest.mark.parametrize("rule", [PL(), CL(), EP()])
@pytest.mark.parametrize("likelihood", sorted(LIKELIHOODS))
@pytest.mark.parametrize("block", [3, 16, 64])
def test_blocked_sweeps_equal_site_by_site(data, rule, likelihood, block):
    thyroid = data("thyroid", 70)
    K = thyroid.covariance(9.0, 1.5)
    problem = ExactProblem(K, np.zeros(70), thyroid.y, LIKELIHOODS[likelihood](), rule)
    one, _ = problem.sweep(None, 1.0, block=1)
    many, _ = problem.sweep(None, 1.0, block=block)
    np.testing.assert_allclose(many.tau, one.tau, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(many.nu, one.nu, rtol=1e-12, atol=1e-12)
    second = problem.iterate(one)
    one, many = (problem.sweep(second, 0.7, block=b)[0] for b in (1, block))
    np.testing.assert_allclose(many.tau, one.tau, rtol=1e-11, atol=1e-12)


def test_site_by_site_is_the_textbooks_rank_one_update(data):
    """A sweep by brute force: the whole posterior anew after every site."""
    crab = data("crab", 15)
    K = crab.covariance(4.0, 2.0)
    tau, nu = np.zeros(15), np.zeros(15)
    for i in range(15):
        mean, covariance = dense_posterior(K, np.zeros(15), tau, nu)
        tau[i], nu[i] = expected_site("pl", "probit", crab.y[i], mean[i], covariance[i, i], 0, 0)
    sites, _ = ExactProblem(K, np.zeros(15), crab.y, Probit(), PL()).sweep(None, 1.0, block=4)
    np.testing.assert_allclose(sites.tau, tau, rtol=1e-8)
    np.testing.assert_allclose(sites.nu, nu, rtol=1e-7)


def test_plain_iterations_are_the_papers_algorithm(data):
    """k undamped parallel iterations from the prior, steps 1 to 4 of the paper, by hand."""
    crab = data("crab", 20)
    K = crab.covariance(4.0, 2.0)
    mean, covariance = np.zeros(20), K
    for _ in range(3):
        A, b, omega = np.empty((3, 20))
        for i in range(20):
            m, v = mean[i], covariance[i, i]
            alpha = integrate(lambda f: density("probit", 1, f), m, v)
            A[i] = integrate(lambda f, m=m: (f - m) * 2 * density("probit", 1, f), m, v) / v
            b[i] = 2 * alpha - 1 - A[i] * m
            omega[i] = 4 * alpha * (1 - alpha) - A[i] ** 2 * v
        S = A[:, None] * K * A + np.diag(omega)  # eqs. (10), (11)
        mean = (K * A) @ np.linalg.solve(S, crab.y - b)
        covariance = K - (K * A) @ np.linalg.solve(S, (K * A).T)
    result = postlin.infer(K, crab.y, schedule=Parallel(iterations=3))
    assert result.n_iter == 3
    np.testing.assert_allclose(result.mean, mean, atol=1e-8)
    np.testing.assert_allclose(result.variance, covariance.diagonal(), atol=1e-8)


def test_exactly_k_iterations_even_after_convergence():
    result = postlin.infer(np.eye(3), np.ones(3), schedule=Parallel(iterations=40))
    assert result.n_iter == 40
    assert postlin.infer(np.eye(3), np.ones(3), schedule=Sequential(iterations=5)).n_iter == 5
    assert postlin.infer(np.eye(3), np.ones(3), schedule=Hybrid(iterations=5, first=1)).n_iter == 5


def test_plain_iteration_that_overflows_stops_with_finite_numbers(data):
    thyroid = data("thyroid")
    K = thyroid.covariance(100.0, 8.0)
    with pytest.warns(ConvergenceWarning, match="plain iteration broke down"):
        result = postlin.infer(K, thyroid.y, schedule=Parallel(iterations=400))
    assert not result.converged
    assert np.isfinite(result.mean).all()
    assert np.isfinite(result.log_evidence)


def test_warm_start_saves_work_and_changes_nothing(data):
    crab = data("crab")
    cold = postlin.infer(crab.covariance(100.0, 2.0), crab.y)
    near = crab.covariance(105.0, 2.05)
    warm = postlin.infer(near, crab.y, start=cold.sites)
    again = postlin.infer(near, crab.y)
    assert warm.n_factorisations < again.n_factorisations
    np.testing.assert_allclose(warm.mean, again.mean, atol=1e-6)


def test_a_useless_start_is_not_used(data):
    crab = data("crab", 50)
    K = crab.covariance(100.0, 2.0)
    bad = Sites(np.full(50, 1e6), np.full(50, -1e9))
    assert postlin.infer(K, crab.y, start=bad).converged


def test_not_converged_is_said_with_the_remedy(data):
    crab = data("crab", 50)
    with pytest.warns(ConvergenceWarning, match="raise max_iter"):
        result = postlin.infer(crab.covariance(1e4, 2.0), crab.y, max_iter=2)
    assert not result.converged
    assert result.residual > 1e-8


def test_prior_mean_moves_the_posterior():
    K = np.array([[1.0, 0.3], [0.3, 2.0]])
    y = np.array([1.0, -1.0])
    mu = np.array([0.7, -0.2])
    result = postlin.infer(K, y, prior_mean=mu)
    mean, _ = dense_posterior(K, mu, *result.sites)
    np.testing.assert_allclose(result.mean, mean, atol=1e-8)
    assert postlin.infer(K, y, prior_mean=1.0).log_evidence != result.log_evidence


@pytest.mark.parametrize("rule", ["pl", "cl"])
@pytest.mark.parametrize("likelihood", sorted(LIKELIHOODS))
def test_sites_are_positive_and_the_posterior_is_narrower_than_the_prior(data, likelihood, rule):
    ionosphere = data("ionosphere", 80)
    K = ionosphere.covariance(50.0, 4.0)
    result = postlin.infer(K, ionosphere.y, likelihood=likelihood, inference=rule)
    assert (result.sites.tau >= 0).all()
    assert np.linalg.eigvalsh(result.covariance)[0] > 0
    assert (result.variance <= K.diagonal()).all()


def test_laplace_refuses_the_noisy_threshold_and_says_what_to_use():
    with pytest.raises(ValueError, match=r"gradient is zero almost everywhere.*inference='pl'"):
        postlin.infer(np.eye(2), np.ones(2), likelihood="noisy_threshold", inference="laplace")


def test_noise_folded_in_makes_laplace_possible():
    likelihood = WithNoise(NoisyThreshold(0.01), 0.1)
    assert postlin.infer(np.eye(2), np.ones(2), likelihood=likelihood, inference=Laplace()).converged


@pytest.mark.parametrize("likelihood", ["probit", "logit"])
@pytest.mark.parametrize("rule", ["pl", "cl", "ep"])
def test_folding_noise_changes_little_for_smooth_likelihoods(data, rule, likelihood):
    crab = data("crab", 60)
    whole = postlin.infer(crab.covariance(4.0, 2.0, 0.1), crab.y, likelihood=likelihood, inference=rule)
    folded = postlin.infer(
        crab.covariance(4.0, 2.0, 0.0),
        crab.y,
        likelihood=WithNoise(LIKELIHOODS[likelihood](), 0.1),
        inference=rule,
    )
    assert folded.log_evidence == pytest.approx(whole.log_evidence, abs=0.05)


@pytest.mark.parametrize("policy", ["clamp", "skip", "small_variance"])
def test_policies_for_negative_sites_are_never_silent(policy):
    K = np.array([[1.0, 0.8], [0.8, 1.0]])
    with pytest.warns(NegativeSiteWarning, match=policy):
        result = postlin.infer(
            K, np.ones(2), likelihood="noisy_threshold", inference=EP(policy), prior_mean=[-0.5, -3.0]
        )
    assert (result.sites.tau >= 0).all()


def test_small_variance_policy_sets_that_variance():
    K = np.array([[1.0, 0.8], [0.8, 1.0]])
    with pytest.warns(NegativeSiteWarning):
        result = postlin.infer(
            K,
            np.ones(2),
            likelihood="noisy_threshold",
            inference=EP("small_variance", small_variance=0.05),
            prior_mean=[-0.5, -3.0],
        )
    assert result.sites.tau[1] == pytest.approx(20.0)


def test_ep_keeps_negative_sites_and_every_cavity_proper(data):
    crab = data("crab", 80)
    y = np.where(np.arange(80) % 13 == 0, -crab.y, crab.y)
    result = postlin.infer(crab.covariance(20.0, 6.0), y, likelihood="noisy_threshold", inference="ep")
    assert result.converged
    assert (result.sites.tau < 0).any()
    assert (1 / result.variance - result.sites.tau > 0).all()
    assert np.linalg.eigvalsh(result.covariance)[0] > 0


@pytest.mark.parametrize("iterations", [2, None])
@pytest.mark.parametrize("schedule", [Parallel, Sequential])
@pytest.mark.parametrize("policy", ["clamp", "small_variance"])
def test_a_site_that_a_policy_has_set_is_always_reported(data, policy, schedule, iterations):
    crab = data("crab", 60)
    y = np.where(np.arange(60) % 9 == 0, -crab.y, crab.y)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        result = postlin.infer(
            crab.covariance(20.0, 6.0),
            y,
            likelihood="noisy_threshold",
            inference=EP(policy),
            schedule=schedule(iterations),
        )
    assert (result.sites.tau >= 0).all()
    assert any(w.category is NegativeSiteWarning for w in caught)


def test_skipped_sites_have_a_gradient_too():
    K = np.array([[1.0, 0.8], [0.8, 1.0]])
    with pytest.warns(NegativeSiteWarning, match="skip"):
        result = postlin.infer(
            K, np.ones(2), likelihood="noisy_threshold", inference=EP("skip"), prior_mean=[-0.5, -3.0]
        )
    assert np.isfinite(result.evidence_gradient()).all()


@pytest.mark.parametrize(
    ("schedule", "sweeps"), [("parallel", 0), ("sequential", 1), (Hybrid(first=3), 3)]
)
def test_schedules_make_the_sweeps_they_promise(data, monkeypatch, schedule, sweeps):
    calls = []

    def counted(*arguments, **options):
        calls.append(options)
        return sweep(*arguments, **options)

    sweep = ExactProblem.sweep
    monkeypatch.setattr(ExactProblem, "sweep", counted)
    crab = data("crab", 40)
    assert postlin.infer(crab.covariance(1.0, 2.0), crab.y, schedule=schedule).converged
    assert len(calls) == sweeps


def test_the_budget_of_factorisations_is_kept(data):
    crab = data("crab", 60)
    for budget in (1, 3, 5):
        with pytest.warns(ConvergenceWarning, match=rf"max_iter \(now {budget}\)"):
            result = postlin.infer(crab.covariance(1e4, 2.0), crab.y, max_iter=budget)
        assert result.n_factorisations <= budget


@pytest.mark.parametrize(
    "layout", [np.asfortranarray, lambda K: K.T, lambda K: np.tile(K, (2, 2))[:30, :30]]
)
def test_the_layout_of_the_covariance_in_memory_does_not_matter(data, layout):
    crab = data("crab", 30)
    K = crab.covariance(4.0, 2.0)
    expected = postlin.infer(K, crab.y)
    np.testing.assert_allclose(postlin.infer(layout(K), crab.y).mean, expected.mean, atol=1e-10)


def test_prior_mean_carries_over_to_predictions():
    result = postlin.infer(np.eye(2), np.array([1.0, -1.0]), prior_mean=3.0)
    assert result.predict_latent(np.zeros((2, 1)), np.ones(1)).mean[0] == 3.0
    several = postlin.infer(np.eye(2), np.array([1.0, -1.0]), prior_mean=[1.0, 2.0])
    with pytest.raises(ValueError, match="prior_mean must be given"):
        several.predict_latent(np.zeros((2, 1)), np.ones(1))
    with pytest.raises(ValueError, match="prior_variance must have shape"):
        result.predict_latent(np.zeros((2, 1)), np.ones(5))


def test_threads_leave_the_blas_as_they_found_it(data):
    from concurrent.futures import ThreadPoolExecutor

    from threadpoolctl import threadpool_info

    crab = data("crab", 40)
    K = crab.covariance(4.0, 2.0)
    before = [pool["num_threads"] for pool in threadpool_info()]
    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(lambda _: postlin.infer(K, crab.y).log_evidence, range(60)))
    assert np.ptp(results) < 1e-10
    assert [pool["num_threads"] for pool in threadpool_info()] == before


def test_errors_survive_a_process_boundary():
    import pickle

    error = pickle.loads(pickle.dumps(postlin.ImproperCavityError(3, -2.0)))
    assert (error.site, error.cavity_variance) == (3, -2.0)


def test_predictions_from_a_cross_covariance(data):
    crab = data("crab", 60)
    K = crab.covariance(4.0, 2.0)
    result = postlin.infer(K[:40, :40], crab.y[:40])
    latent = result.predict_latent(K[:40, 40:], K.diagonal()[40:])
    p = result.predict_proba(K[:40, 40:], K.diagonal()[40:])
    for i in range(0, 20, 5):
        expected = integrate(lambda f: density("probit", 1, f), latent.mean[i], latent.variance[i])
        assert p[i] == pytest.approx(expected, rel=1e-9)
    moments = result.predict_moments(K[:40, 40:], K.diagonal()[40:])
    np.testing.assert_allclose(moments.mean, 2 * p - 1, atol=1e-12)
    np.testing.assert_allclose(moments.variance, 1 - moments.mean**2, atol=1e-12)


@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize(("rule", "likelihood"), COMBINATIONS)
def test_one_or_two_points_are_enough(rule, likelihood, n):
    assert postlin.infer(4 * np.eye(n), np.ones(n), likelihood=likelihood, inference=rule).converged


@pytest.mark.parametrize("rule", ["pl", "cl"])
def test_identical_points_are_no_trouble(rule):
    K = np.full((20, 20), 100.0)
    y = np.tile([1.0, -1.0], 10)
    for likelihood in ("probit", "logit"):
        assert postlin.infer(K, y, likelihood=likelihood, inference=rule).converged


@pytest.mark.parametrize("rule", ["pl", "cl"])
def test_a_problem_without_a_fixed_point_is_flagged(rule):
    """Contradictory labels at one latent value: each step shrinks its variance further."""
    K, y = np.full((20, 20), 100.0), np.tile([1.0, -1.0], 10)
    with pytest.warns(ConvergenceWarning):
        result = postlin.infer(K, y, likelihood="noisy_threshold", inference=rule)
    assert not result.converged
    assert np.isfinite(result.log_evidence)


@pytest.mark.parametrize("rule", ["pl", "cl"])
@pytest.mark.parametrize("scale", [1e-12, 1e12])
def test_extreme_scales_give_finite_results(data, scale, rule):
    crab = data("crab", 40)
    K = scale * crab.covariance(1.0, 1.0)
    for likelihood in LIKELIHOODS:
        result = postlin.infer(K, crab.y, likelihood=likelihood, inference=rule)
        assert np.isfinite(result.log_evidence)
        assert np.isfinite(result.evidence_gradient()).all()
