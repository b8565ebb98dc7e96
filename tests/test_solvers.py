"""GMRES, the quasi-Newton search and the extrapolation of sites, each against what is known."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import postlin
from postlin import Sites
from postlin.estimator.parameters import default_kernel
from postlin.inference.contract import Jacobian
from postlin.inference.exact.evidence import adjoint_at
from postlin.inference.result import EXACT
from postlin.learning.hyperparameters import Hyperparameters
from postlin.learning.models import ExactModel, SitePath
from postlin.learning.search import Search
from postlin.likelihoods import Probit
from postlin.linalg.arrays import least_squares, on_host, place_of
from postlin.linalg.blocks import clipped
from postlin.linalg.krylov import gmres
from postlin.linalg.minimise import Worth, _updated, minimise
from postlin.rules import REGISTRY as RULES
from postlin.rules.binary import PL
from postlin.schedules import Parallel


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 40), st.integers(0, 10_000))
def test_gmres_solves(n, seed):
    rng = np.random.default_rng(seed)
    A = np.eye(n) + 0.3 * rng.normal(size=(n, n)) / np.sqrt(n)
    right = rng.normal(size=n)
    solution, found = gmres(lambda x: A @ x, right, rtol=1e-11, dimension=n)
    assert found
    np.testing.assert_allclose(solution, np.linalg.solve(A, right), rtol=1e-7, atol=1e-8)


def test_gmres_and_least_squares_work_where_vectors_are(put):
    rng = np.random.default_rng(0)
    A, right = np.eye(30) + 0.1 * rng.normal(size=(30, 30)), rng.normal(size=30)
    there = put(A)
    solution, found = gmres(lambda x: there @ x, put(right), rtol=1e-11, dimension=30)
    assert found
    assert place_of(solution) == place_of(there)
    np.testing.assert_allclose(on_host(solution), np.linalg.solve(A, right), rtol=1e-8, atol=1e-9)
    none, found = gmres(lambda x: there @ x, put(0.0 * right), rtol=1e-11, dimension=30)
    assert found
    assert not np.any(on_host(none))
    tall = rng.normal(size=(500, 6)) * np.geomspace(1.0, 1e-6, 6)
    tall[:, 1] = tall[:, 0] * (1.0 + 1e-7 * rng.normal(size=500))  # almost the same direction
    b = rng.normal(size=500)
    best = np.linalg.lstsq(tall, b, rcond=1e-10)[0]
    found = least_squares(put(tall), put(b), 1e-10)
    np.testing.assert_allclose(found, best, rtol=1e-6)
    tall[:, 2] = 0.0
    assert np.isfinite(least_squares(put(tall), put(b), 1e-10)).all()


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 6), st.floats(-2.0, 1.0), st.floats(1.5, 20.0), st.integers(0, 10_000))
def test_eigenvalues_are_clipped(n, low, high, seed):
    rng = np.random.default_rng(seed)
    matrices = rng.normal(size=(5, n, n)) * rng.choice([0.1, 1.0, 10.0])
    matrices = matrices + matrices.swapaxes(1, 2)
    matrices[:2] += (1.0 + low + np.abs(matrices).sum()) * np.eye(n)  # nothing below
    for some in (matrices[:2], matrices):
        found = clipped(some, low, high)
        before, vectors = np.linalg.eigh(some)
        expected = (vectors * np.clip(before, low, high)[:, None]) @ vectors.swapaxes(1, 2)
        np.testing.assert_allclose(found, expected, atol=1e-11 * np.abs(some).max())


@pytest.mark.parametrize("spread", [1.0, 1e4, 1e8])
def test_gmres_needs_a_product_for_every_eigenvalue(spread):
    values = np.repeat(1.0 + spread * np.array([0.0, 0.1, 0.3, 0.6, 1.0]), 20)
    right = np.random.default_rng(0).normal(size=100)
    products = []
    solution, found = gmres(
        lambda x: products.append(x) or values * x, right, rtol=1e-13 * spread, dimension=60
    )
    assert found
    assert len(products) == 5
    residual = np.linalg.norm(values * solution - right)
    assert residual <= 1.1e-13 * spread * np.linalg.norm(right)


def test_gmres_arrives_where_little_is_new():
    """Directions that are almost known must be made orthogonal twice, or the space is used up."""
    rng = np.random.default_rng(0)
    values = np.geomspace(1.0, 1e6, 200)
    right = rng.normal(size=200)
    solution, found = gmres(lambda x: values * x, right, rtol=1e-11, dimension=200)
    assert found
    assert np.linalg.norm(values * solution - right) <= 2e-11 * np.linalg.norm(right)


def test_gmres_ends_where_the_space_does():
    right = np.array([0.0, -2.0, 0.0])
    solution, found = gmres(lambda x: 4.0 * x, right, rtol=0.0, dimension=3)
    assert found
    np.testing.assert_array_equal(solution, right / 4.0)


@pytest.mark.parametrize("n", [1, 4])
@pytest.mark.parametrize("mean", [20.0, 30.0, 37.0, 60.0])
@pytest.mark.parametrize("rule", ["laplace", "pl", "ep"])
def test_gradients_where_sites_are_almost_nothing(rule, mean, n):
    """Numbers are so small here that their squares, and what is divided by them, are out of range."""
    result = postlin.infer(1e-4 * (np.eye(n) + 1.0), np.ones(n), inference=rule, prior_mean=mean)
    assert np.isfinite(result.evidence_gradient()).all()
    assert np.abs(result.evidence_gradient()).max() < 1e-80


def test_gmres_says_when_it_has_not_arrived():
    A = np.roll(np.eye(20), 1, axis=0)  # the worst there is: no progress before the last step
    solution, found = gmres(lambda x: A @ x, np.eye(20)[0], rtol=1e-8, dimension=10)
    assert not found
    np.testing.assert_array_equal(solution, np.zeros(20))


class ArcTangent:
    """The map x ↦ x − atan x, for which Newton's method diverges from beyond 1.39."""

    def __init__(self, x):
        self.x, self.residual = x, -np.arctan(np.array([x]))

    def solve(self, right, *, time, rtol):
        return right / (1.0 / time + 1.0 / (1.0 + self.x**2))

    def residual_after(self, step):
        return -np.arctan(self.x + step)

    def step(self):
        size = float(np.abs(self.residual).max())
        return Jacobian.newton_step(self, self.residual, size, np.inf)


def test_a_step_that_would_lead_farther_away_is_made_shorter():
    far = ArcTangent(3.0)
    assert abs(far.residual_after(far.solve(far.residual, time=np.inf, rtol=0.0))) > 1.4
    step, time = far.step()
    assert time == 8.0
    assert abs(far.residual_after(step)) < abs(far.residual)


def test_a_step_that_leads_on_is_newtons_corrected():
    near = ArcTangent(0.5)
    step, time = near.step()
    plain = near.solve(near.residual, time=np.inf, rtol=0.0)
    assert time == np.inf
    assert abs(near.x + step) < 0.3 * abs(near.x + plain)
    near.residual_after = lambda step: None  # where there is no telling
    assert near.step() == (plain, np.inf)


def test_gmres_of_nothing_and_of_a_singular_matrix():
    solution, found = gmres(lambda x: x, np.zeros(3), rtol=1e-8, dimension=3)
    assert found
    assert not solution.any()
    _, found = gmres(lambda x: 0 * x, np.ones(3), rtol=1e-8, dimension=3)
    assert not found


def counted(function):
    def objective(x):
        objective.evaluations += 1
        return function(x)

    objective.evaluations = 0
    return objective


WIDE = np.array([[-20.0, 20.0]] * 2)


def test_search_finds_the_end_of_a_curved_valley():
    @counted
    def valley(x):
        a, b = 1 - x[0], x[1] - x[0] ** 2
        return a**2 + 10 * b**2, np.array([-2 * a - 40 * b * x[0], 20 * b])

    found = minimise(valley, np.array([-1.0, 1.0]), WIDE, worth=Worth(gain=1e-10))
    assert found.message is None
    np.testing.assert_allclose(found.x, 1.0, atol=1e-3)
    assert valley.evaluations < 40


def test_search_is_not_held_by_a_value_that_is_too_good():
    """As inference that is not exact may give: its value at the best point is asked for again."""

    def exactly(x):
        return float(x[0] ** 2 + 2 * x[1] ** 2 + x[0] ** 4), np.array(
            [2 * x[0] + 4 * x[0] ** 3, 4 * x[1]]
        )

    @counted
    def objective(x):
        value, slope = exactly(x)
        return value - (1e-3 if 1e-4 < np.abs(x).max() < 0.1 else 0.0), slope

    def again(x, loss):
        return exactly(x) if loss < 2e-3 else None

    start, worth = np.array([2.3, 1.7]), Worth(gain=1e-10)
    held = minimise(objective, start, WIDE, worth=worth)
    assert np.abs(held.x).max() > 1e-4
    objective.evaluations = 0
    found = minimise(objective, start, WIDE, worth=worth, again=again)
    np.testing.assert_allclose(found.x, 0.0, atol=1e-4)
    assert objective.evaluations < 20


def test_search_stops_at_bounds_and_leaves_them_again():
    def bowl(x):
        centre = np.array([30.0, 1.0])  # outside, inside
        return float(np.sum((x - centre) ** 2)), 2 * (x - centre)

    found = minimise(bowl, np.array([0.0, -20.0]), WIDE, worth=Worth(gain=1e-12))
    np.testing.assert_allclose(found.x, [20.0, 1.0], atol=1e-5)


def test_search_goes_downhill_where_its_region_cuts_a_narrow_valley():
    """Clipping a step to its region one parameter at a time can lead uphill."""
    H, g = np.array([[1.0, 9.9], [9.9, 100.0]]), np.array([-5.15, -48.0])

    def narrow(x):
        return float(g @ x + 0.5 * x @ H @ x), g + H @ x

    seen = []
    found = minimise(
        lambda x: (seen.append(narrow(x)[0]), narrow(x))[1], np.zeros(2), WIDE, worth=Worth(gain=1e-12)
    )
    np.testing.assert_allclose(found.x, np.linalg.solve(H, -g), rtol=1e-3)
    assert max(seen) < 60.0


def test_search_does_not_take_a_gentle_slope_for_the_end():
    def gentle(x):
        return 500.0 + 1e-3 * float(np.cosh(x[0] - 8.0)) / 1490.0, np.array(
            [1e-3 * np.sinh(x[0] - 8.0) / 1490.0]
        )

    found = minimise(gentle, np.zeros(1), WIDE[:1], worth=Worth(gain=1e-8))
    assert found.x[0] > 1.0


def test_search_ends_where_its_values_are_but_rounding_errors():
    """As the evidence of a matrix of 1e24, whose slope never falls below one of 3e-3."""

    @counted
    def rough(x):
        return 16.0 + 0.5 * float(x @ x), x + 3e-3 * np.sign(x)

    found = minimise(rough, np.full(2, 3.0), WIDE, worth=Worth(slope=1e-4))
    assert rough.evaluations < 60
    assert found.message is None
    np.testing.assert_allclose(found.x, 0.0, atol=0.01)


def test_search_walks_a_slope_that_flattens():
    """As an amplitude that grows without end, ever less in need of it."""

    def slope(x):
        return float(np.exp(-x[0]) + x[1] ** 2), np.array([-np.exp(-x[0]), 2 * x[1]])

    found = minimise(slope, np.zeros(2), WIDE, worth=Worth(gain=1e-8))
    assert found.value < 1e-2


def test_search_backs_out_of_where_nothing_can_be_computed():
    def wall(x):
        if x[0] > 0.3:
            return 1e100, np.zeros(2)
        return float(np.sum((x - [0.2, 2.0]) ** 2)), 2 * (x - [0.2, 2.0])

    found = minimise(wall, np.array([-0.5, 0.0]), WIDE, worth=Worth(gain=1e-10))
    np.testing.assert_allclose(found.x, [0.2, 2.0], atol=1e-3)


def test_search_complains_when_it_runs_out():
    found = minimise(
        lambda x: (-x[0], -np.ones(1)), np.zeros(1), np.array([[-1e9, 1e9]]), worth=Worth(gain=1e-8)
    )
    assert "500 evaluations" in found.message


def sites_at(theta):
    """Sites that are linear in theta in the coordinates of the extrapolation."""
    tau = np.exp(np.array([0.3, -0.2]) + theta[0] * np.array([0.5, 1.0]) + 0.1 * theta[1])
    return Sites(tau, np.sqrt(tau) * (np.array([1.0, -2.0]) + 0.2 * theta[1]))


def test_extrapolation_is_exact_where_sites_are_linear():
    path = SitePath()
    for theta in ([0.0, 0.0], [1.0, 0.0], [0.5, 1.0]):
        path.add(np.array(theta), sites_at(np.array(theta)))
    theta = np.array([1.2, 1.1])
    np.testing.assert_allclose(path.predict(theta), sites_at(theta), rtol=1e-12)


def test_extrapolation_is_not_trusted_far_away():
    path = SitePath()
    for theta in ([0.0, 0.0], [0.01, 0.0], [0.0, 0.01]):
        path.add(np.array(theta), sites_at(np.array(theta)))
    np.testing.assert_allclose(path.predict(np.array([3.0, 0.0])), sites_at(np.array([0.01, 0.0])))


def test_extrapolation_leaves_negative_sites_alone_and_starts_from_what_is_given():
    start = Sites(np.ones(2), np.zeros(2))
    path = SitePath(start)
    assert path.predict(np.zeros(1)) is start
    path.add(np.zeros(1), Sites(np.array([-0.1, 1.0]), np.array([2.0, 1.0])))
    path.add(np.ones(1), Sites(np.array([-0.2, 2.0]), np.array([3.0, 1.0])))
    predicted = path.predict(np.array([1.5]))
    assert predicted.tau[0] == -0.2
    assert predicted.nu[0] == 3.0
    assert predicted.tau[1] == pytest.approx(2.0**1.5)


@pytest.mark.parametrize("inference", RULES)
def test_evidence_of_rough_inference_is_corrected_to_second_order(data, inference):
    d = data("thyroid", 80)
    exact = postlin.infer(d.covariance(100.0, 2.0), d.y, inference=inference, tol=1e-12)
    wrong = np.random.default_rng(0).normal(size=(2, 80))

    def errors(size):
        tau, nu = np.array(exact.sites) * (1 + size * wrong)
        iterate = exact.problem.iterate(Sites(tau, nu))
        scales = exact.problem.scales(iterate)
        error = exact.problem.log_evidence(iterate, scales) - exact.log_evidence
        return abs(error), abs(error + adjoint_at(exact.problem, iterate, scales, EXACT).correction)

    (_, far), (plain, near) = errors(1e-2), errors(1e-3)
    assert near < 0.02 * far  # a hundredth
    if inference != "ep":  # EP's evidence is stationary in the sites: nothing to correct
        assert near < 0.3 * plain


def test_a_slope_that_does_not_fit_its_values_spoils_no_model():
    """Seen with inference too loose: ever shorter steps along which the slope changes all the same."""
    model = np.eye(2)
    forgotten = False
    for k in range(14):
        step = -1e-5 * 0.25**k * np.ones(2)
        model = _updated(model, step, np.array([-0.005, 0.010]), np.array([-0.002, 0.022]))
        forgotten |= model is None
        assert model is None or np.linalg.cond(model) < 1e14
    assert forgotten


def test_a_value_that_is_not_exact_is_computed_again(data):
    d = data("crab", 120)
    start = Hyperparameters(default_kernel(), Probit())
    model = ExactModel(d.X, d.y, PL(), Parallel(), 1e-8, 60)
    search = Search([model], start, [None], True, None)
    theta = start.theta + np.array([2.0, 1.0])
    exact = -model.infer(start.at(theta)).log_evidence
    rough, _ = search(theta)
    error = abs(rough - exact)
    assert 1e-8 < error < 1e-2
    assert search.again(theta, loss=10.0) is None  # no such error is possible
    value, slope = search.again(theta, loss=error)
    assert value == pytest.approx(exact, abs=1e-9)
    assert search(theta)[0] == value
    np.testing.assert_array_equal(search(theta)[1], slope)
    assert search.again(theta, loss=1e-12) is None  # nothing to be gained
    assert [-v for _, v in search.path] == [rough, value]
    search(theta + 0.1 if rough < exact else theta - 0.1)
    latest = {tuple(t): v for t, v in search.path}
    assert latest[tuple(search.best())] == max(latest.values())
