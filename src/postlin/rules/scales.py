"""The scale of each site in the evidence, with which the site replaces its likelihood term.

    log Z = log ∫ N(f; μ₀, K) Π exp(νᵢfᵢ − τᵢfᵢ²/2) df + Σᵢ log sᵢ,

where sᵢ is the scale of site i. In the cavity form (EP, PL, CL) cavity × sᵢ × site has the same
integral as cavity × likelihood. This is the last equation of the paper's section on the marginal
likelihood, with the integral done exactly. Laplace matches site and likelihood at the mode.
"""

from typing import NamedTuple

import numpy as np

from postlin._typing import Array
from postlin.likelihoods.base import BinaryLikelihood, Likelihood
from postlin.likelihoods.conditional_moments import ConditionalMoments
from postlin.likelihoods.quadrature import gauss_hermite
from postlin.linalg.functions import functions
from postlin.rules.sites import SiteView, cavity_jacobian


class SiteScales(NamedTuple):
    """log sᵢ, and the direct derivatives of log Z.

    ``gradient``, an array [column, point], holds the derivatives of the whole log Z at fixed K by
    each point's dm, dv, dτ and dν − m dτ; ``by_parameters`` those by the likelihood's parameters.
    """

    value: Array
    gradient: Array
    by_parameters: list[Array]


def cavity_scales(
    likelihood: Likelihood, y: Array, view: SiteView, order: int | None = None
) -> SiteScales:
    """log ∫ p(y|f) cavity(f) df − log ∫ site(f) cavity(f) df.

    The evidence does not change with (τ, ν) at a fixed cavity. Its gradient is therefore the mismatch
    of slopes at the cavity, which is zero for EP. With ``order`` site and likelihood are matched at the
    posterior marginal instead, by quadrature as in the paper.
    """
    if order is not None:
        assert isinstance(likelihood, BinaryLikelihood)
        return _by_quadrature(likelihood, y, view, order)
    cavity = view.cavity
    log_z, by_m, by_v = likelihood.log_average(y, *cavity)
    part, gap, m, f = view.part, view.gap, cavity.mean, functions(cavity.mean)
    tau, nu, pull = part * view.tau, part * view.nu, part * view.pull
    with_site = 0.5 * f.log(gap) + nu * m - 0.5 * tau * m**2 + 0.5 * (nu - tau * m) ** 2 * view.variance
    # the whole site is removed where the weight w is below 1, and it counts w times like all terms
    scale = 1.0 / (f.where(part > 0, part, 1.0) if np.ndim(part) else part or 1.0)
    by_mean = by_m - scale * pull
    by_variance = by_v - 0.5 * scale * (pull**2 - tau * gap)
    gradient = f.einsum("kn,kcn->cn", f.rows([by_mean, by_variance]), cavity_jacobian(view))
    changes = likelihood.density_changes(y, *cavity)
    return SiteScales(log_z - scale * with_site, gradient, [change.log_z for change in changes])


def linear_scales(likelihood: ConditionalMoments, y: Array, view: SiteView) -> SiteScales:
    """The scales of PL's Gaussian p̂(D): the sites are N(y; A f + b, Ω), normalised in y."""
    m, v = view.mean, view.variance
    value, by_m, by_v = likelihood.log_scale(y, m, v)
    return SiteScales(value, np.array([by_m, by_v, 0.5 * (m**2 - v), m]), [])


def mode_scales(likelihood: Likelihood, y: Array, view: SiteView) -> SiteScales:
    """The scales log p(y|m) − log site(m) of Laplace's method."""
    assert isinstance(likelihood, BinaryLikelihood)
    f = functions(view.mean)
    jet = likelihood.jet(y, view.mean, f.zeros_like(view.mean))
    value = jet.log_z - view.mean * (view.nu - 0.5 * view.tau * view.mean)
    zero = f.zeros_like(value)
    gradient = f.rows([jet.g - view.pull, zero, -0.5 * view.variance, zero])
    changes = likelihood.density_changes(y, view.mean, zero)
    return SiteScales(value, gradient, [change.log_z for change in changes])


def _by_quadrature(likelihood: BinaryLikelihood, y: Array, view: SiteView, order: int) -> SiteScales:
    """log E[p(y|f)/site(f)] over the posterior marginal by the paper's Gauss–Hermite quadrature."""
    m, v, tau, nu = (part[:, None] for part in view[:4])
    of = functions(m)
    x, weights = (of.give(each, m) for each in gauss_hermite(order))
    sigma = of.sqrt(v)
    f = m + sigma * x
    jet = likelihood.jet(y[:, None], f, of.zeros_like(f))
    log_ratio = jet.log_z - f * (nu - 0.5 * tau * f)
    top = of.max(log_ratio, axis=1)
    tilted = weights * of.exp(log_ratio - top[:, None])
    total = of.sum(tilted, axis=1)
    tilted = tilted / total[:, None]

    def mean(values: Array) -> Array:
        result: Array = of.einsum("nk,nk->n", tilted, values)
        return result

    slope = jet.g - nu + tau * f
    terms = (slope, slope * x / (2 * sigma), 0.5 * f**2 - m * f + 0.5 * (m**2 - v), m - f)
    changes = likelihood.density_changes(y[:, None], f, of.zeros_like(f))
    by_parameters = [mean(change.log_z) for change in changes]
    return SiteScales(top + of.log(total), of.rows([*map(mean, terms)]), by_parameters)
