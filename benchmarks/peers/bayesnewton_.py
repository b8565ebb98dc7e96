"""BayesNewton: posterior linearisation in JAX, probit, trained as its examples are.

A step is one undamped iteration of PL and one of Adam on its energy, the sites held. It has no
squared exponential kernel, so one is given to it here, in log-parameters, with the white noise; its
probit keeps 1e-3 away from 0 and 1, and its energy is EP's formula at PL's sites.
"""

import jax
import jax.numpy as jnp
import numpy as np

from peers.base import NOISE, START, Evaluator, Fit, Peer

jnp.DeviceArray = jax.Array  # a name that JAX has dropped and BayesNewton still uses
jax.config.update("jax_enable_x64", True)

import bayesnewton  # noqa: E402
import objax  # noqa: E402

STEPS, RATE = 200, 0.1
#: New points at a time: it forms their full covariance.
BLOCK = 1000
#: The iterations of PL at fixed θ end when sites move less, on average, or at MOST.
TOL, MOST = 1e-8, 200


class _SquaredExponential(bayesnewton.kernels.Kernel):
    def __init__(self, theta):
        self.theta = objax.TrainVar(jnp.asarray(theta))

    def K(self, X, X2):  # noqa: N802  (its name there)
        log_variance, log_length = self.theta.value
        squared = (X**2).sum(1)[:, None] + (X2**2).sum(1) - 2 * X @ X2.T
        K = jnp.exp(log_variance - 0.5 * jnp.maximum(squared, 0.0) * jnp.exp(-2 * log_length))
        return K + NOISE * jnp.eye(len(X)) if X is X2 else K


class _Run:
    """A model with its compiled step."""

    def __init__(self, X, y, theta=START):
        self.kernel = _SquaredExponential(theta)
        self.model = bayesnewton.models.PosteriorLinearisationGP(
            self.kernel, bayesnewton.likelihoods.Bernoulli("probit"), X, (y > 0).astype(float)
        )
        variables = self.model.vars()
        self._first = [v.value for v in variables]
        self._variables = variables
        optimizer = objax.optimizer.Adam(variables)
        energy = objax.GradValues(self.model.energy, variables)

        @objax.Function.with_vars(variables + optimizer.vars())
        def train():
            self.model.inference(lr=1.0)
            gradient, value = energy()
            optimizer(RATE, gradient)
            return value[0]

        self._optimizer = optimizer
        self.train = objax.Jit(train)
        self.iterate = objax.Jit(lambda: self.model.inference(lr=1.0)[1], variables)
        self.energy = objax.Jit(lambda: energy(), variables)

    def restart(self):
        """As new, but compiled."""
        for variable, value in zip(self._variables, self._first, strict=True):
            variable.assign(value)
        for variable in self._optimizer.vars():
            variable.assign(jnp.zeros_like(variable.value))


class BayesNewton(Peer):
    """No options."""

    packages = ("bayesnewton", "objax", "jax", "jaxlib", "numpy")

    def warm_up(self, X, y):
        """Compile for this very shape: that is not part of a fit's time."""
        self._run = _Run(X, y)
        self._run.train().block_until_ready()

    def fit(self, X, y):
        """A fixed number of steps; it has no test of convergence."""
        run = self._run
        run.restart()
        for _ in range(STEPS):
            value = run.train()
        theta = np.array(run.kernel.theta.value.block_until_ready())
        run.model.update_posterior()
        return Fit(-float(value), theta, self._predictor(run), False, STEPS)

    def _predictor(self, run):
        def predict(new):
            blocks = np.array_split(new, max(1, len(new) // BLOCK))
            return np.concatenate([np.array(run.model.predict_y(b)[0]) for b in blocks])

        return predict

    def evaluator(self, X, y):
        """PL's iteration until it stands still, then the energy and its gradient."""
        return _Evaluator(self._run)


class _Evaluator(Evaluator):
    def __init__(self, run):
        self._run = run
        run.restart()
        run.iterate()
        run.energy()

    def cold(self, theta):
        self._run.restart()
        return self.warm(theta)

    def warm(self, theta):
        run = self._run
        run.kernel.theta.assign(jnp.asarray(theta))
        for _ in range(MOST):
            if max(float(d) for d in run.iterate()) < TOL:
                break
        else:
            raise RuntimeError(f"PL's plain iteration did not settle in {MOST} steps at {theta}")
        return -float(run.energy()[1][0])


PEER = BayesNewton
