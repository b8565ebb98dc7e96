"""A likelihood given by its conditional mean and variance alone: the paper's SLR in general form."""

from collections.abc import Callable
from typing import ClassVar, NamedTuple

import numpy as np

from postlin._typing import Array, Marginals, override
from postlin._validation import is_real
from postlin.likelihoods.base import Likelihood, Response
from postlin.likelihoods.quadrature import REACH, trapezoid

Function = Callable[[Array], Array]

#: The largest number of steps between nodes, however wide the marginal is.
_MOST_STEPS = 4096


class Regression(NamedTuple):
    """E[y], A = Cov[f, y]/v and the total variance V of y, with derivatives by m and v."""

    mean: Array
    slope: Array
    variance: Array
    slope_by_m: Array
    slope_by_v: Array
    variance_by_m: Array
    variance_by_v: Array


class ConditionalMoments(Likelihood):
    """E[y|f] = ``mean(f)`` and Var[y|f] = ``variance(f)``; y may be any real number.

    Only posterior and cavity linearisation can use this likelihood, since p(y|f) is not known. The
    evidence is the Gaussian log p̂(D) of the paper, and predictions are the mean and the variance of y.
    Both functions take and return arrays. Expectations are sums over nodes at most ``resolution``
    apart; make it smaller for functions that change within a distance of one or less.

    >>> import numpy as np
    >>> from postlin.likelihoods import ConditionalMoments
    >>> poisson = ConditionalMoments(np.exp, np.exp)
    >>> predicted = poisson.predict(np.zeros(1), np.ones(1))  # moments of y at f ~ N(0, 1)
    >>> print(np.round(predicted.mean, 4))  # e^½
    [1.6487]
    """

    name: ClassVar[str] = "conditional_moments"
    has_density: ClassVar[bool] = False

    def __init__(self, mean: Function, variance: Function, resolution: float = 0.25) -> None:
        self.mean, self.variance = mean, variance
        for what, function in vars(self).items():
            if not callable(function):
                raise ValueError(f"{what} must be a function of the latent value f, got {function!r}.")
        if not is_real(resolution) or not 0 < float(resolution) < float("inf"):
            raise ValueError(f"resolution must be positive, got {resolution!r}.")
        self.resolution = float(resolution)

    def linearise(self, m: Array, v: Array) -> Regression:
        """Statistical linear regression of y on f ~ N(m, v), paper eqs. (13) and (14).

        The derivatives are ∂E[φ]/∂m = E[φ x]/√v and ∂E[φ]/∂v = E[φ (x²−1)]/2v, with x = (f−m)/√v.
        """
        sigma = np.sqrt(v)
        # the step between nodes is at most half of the largest standard deviation
        steps = 2 * REACH * max(2.0, float(sigma.max()) / self.resolution)
        x, weights = trapezoid(min(_MOST_STEPS, 1 << int(np.ceil(np.log2(steps)))) + 1)
        f = np.asarray(m)[..., None] + sigma[..., None] * x
        conditional, noise = self._at(f, "mean"), self._at(f, "variance")
        mean = conditional @ weights
        centred = conditional - mean[..., None]
        w1, w2, w3 = weights * np.array([x, x**2 - 1, x**3 - 3 * x])
        slope, by_m, by_v = centred @ w1 / sigma, centred @ w2 / v, centred @ w3 / (2 * v * sigma)
        # the mean moves with m and v too, but E[centred] = 0 cancels its first-order effect
        spread = centred**2 + noise
        variance_by = spread @ w1 / sigma, spread @ w2 / (2 * v)
        return Regression(mean, slope, spread @ weights, by_m, by_v, *variance_by)

    @override
    def regression(self, y: Array, m: Array, v: Array) -> Response:
        s = self.linearise(m, v)
        error = y - s.mean
        g = s.slope * error / s.variance
        rho = s.slope**2 / s.variance
        mean_by_v = 0.5 * s.slope_by_m
        return Response(
            g=g,
            rho=rho,
            g_by_m=(s.slope_by_m * error - s.slope**2 - g * s.variance_by_m) / s.variance,
            g_by_v=(s.slope_by_v * error - s.slope * mean_by_v - g * s.variance_by_v) / s.variance,
            rho_by_m=(2 * s.slope * s.slope_by_m - rho * s.variance_by_m) / s.variance,
            rho_by_v=(2 * s.slope * s.slope_by_v - rho * s.variance_by_v) / s.variance,
        )

    def log_scale(self, y: Array, m: Array, v: Array) -> tuple[Array, Array, Array]:
        """log N(y; A f + b, Ω) − (ν f − τ f²/2), which is free of f, and its derivatives by m and v."""
        s = self.linearise(m, v)
        omega = s.variance - s.slope**2 * v
        error = y - s.mean + s.slope * m  # y − b
        by_omega, by_error = 0.5 * (error**2 / omega - 1.0) / omega, -error / omega
        omega_by_m = s.variance_by_m - 2 * s.slope * s.slope_by_m * v
        omega_by_v = s.variance_by_v - 2 * s.slope * s.slope_by_v * v - s.slope**2
        by_m = by_omega * omega_by_m + by_error * s.slope_by_m * m
        by_v = by_omega * omega_by_v + by_error * (s.slope_by_v * m - 0.5 * s.slope_by_m)
        return -0.5 * np.log(2 * np.pi * omega) - 0.5 * error**2 / omega, by_m, by_v

    @override
    def log_average(self, y: Array, m: Array, v: Array) -> tuple[Array, Array, Array]:
        s = self.linearise(m, v)
        error = y - s.mean
        by_variance, by_mean = 0.5 * (error**2 / s.variance - 1.0) / s.variance, error / s.variance
        return (
            -0.5 * np.log(2 * np.pi * s.variance) - 0.5 * error**2 / s.variance,
            by_mean * s.slope + by_variance * s.variance_by_m,
            by_mean * 0.5 * s.slope_by_m + by_variance * s.variance_by_v,
        )

    def predict(self, m: Array, v: Array) -> Marginals:
        """Mean and variance of y at f ~ N(m, v)."""
        s = self.linearise(np.asarray(m, float), np.asarray(v, float))
        return Marginals(s.mean, s.variance)

    def check_targets(self, y: Array) -> None:
        """Accept every y, which may hold any real numbers."""

    def _at(self, f: Array, what: str) -> Array:
        """The values of the mean or variance function at f; raises ``ValueError`` if invalid."""
        values = np.asarray(getattr(self, what)(f), float)
        if values.shape != f.shape:
            raise ValueError(
                f"the {what} function returned shape {values.shape} for input of shape {f.shape}; it "
                "must act on arrays element by element."
            )
        bad = ~np.isfinite(values) | ((values < 0) & (what == "variance"))
        if bad.any():
            raise ValueError(
                f"the {what} function returned {values[bad][0]:g} at f = {f[bad][0]:g}; it must be "
                "finite (and the variance not negative) wherever the posterior has mass."
            )
        return values
