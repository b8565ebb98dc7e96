"""The supplement's example: EP breaks, PL does not."""

import numpy as np
import pytest

import postlin
from postlin import EP, ImproperCavityError
from postlin.likelihoods import NoisyThreshold
from postlin.schedules import Parallel, Sequential

K = np.array([[1.0, 0.8], [0.8, 1.0]])
MEAN = np.array([-0.5, -3.0])
Y = np.ones(2)


def infer(order=(0, 1), **options):
    order = list(order)
    return postlin.infer(
        K[np.ix_(order, order)], Y, likelihood=NoisyThreshold(0.01), prior_mean=MEAN[order], **options
    )


@pytest.mark.parametrize(
    "schedule", ["parallel", "sequential", Parallel(iterations=10), Sequential(iterations=10)]
)
def test_plain_ep_meets_the_papers_negative_cavity_variance(schedule):
    with pytest.raises(ImproperCavityError, match=r"-117\.9") as caught:
        infer(inference=EP("raise"), schedule=schedule)
    assert caught.value.site == 0
    assert caught.value.cavity_variance == pytest.approx(-117.9, abs=0.05)


def test_plain_ep_in_the_other_order_converges():
    """The paper reports −14.3 here; plain EP does not meet it."""
    result = infer((1, 0), inference=EP("raise"), schedule="sequential")
    assert result.converged


def test_pl_converges_to_the_papers_solution_in_parallel_and_in_sequence():
    parallel, sequential = infer(), infer(schedule="sequential")
    np.testing.assert_allclose(parallel.mean, [2.0427, 0.1770], atol=5e-5)
    np.testing.assert_allclose(sequential.mean, parallel.mean, atol=1e-8)
    np.testing.assert_allclose(sequential.covariance, parallel.covariance, atol=1e-8)


def test_six_plain_iterations_get_quite_close():
    result = infer(schedule=Parallel(iterations=6))
    assert np.abs(result.mean - [2.0427, 0.1770]).max() < 0.02
    assert len(result.history.means) == 6


def test_ep_with_negative_sites_kept_is_closer_to_the_true_evidence():
    grid = np.linspace(-9, 9, 1801)
    f1, f2 = np.meshgrid(grid, grid, indexing="ij")
    d = np.stack([f1 - MEAN[0], f2 - MEAN[1]], axis=-1)
    prior = np.exp(-0.5 * np.einsum("...i,ij,...j->...", d, np.linalg.inv(K), d))
    prior /= prior.sum()
    truth = np.log(np.sum(prior * (0.01 + 0.98 * (f1 > 0)) * (0.01 + 0.98 * (f2 > 0))))
    ep, pl = infer(inference="ep"), infer()
    assert abs(ep.log_evidence - truth) < 0.1 < abs(pl.log_evidence - truth)


def test_laplace_cannot_be_used():
    with pytest.raises(ValueError, match="gradient is"):
        infer(inference="laplace")
