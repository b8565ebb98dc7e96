"""
When undamped iteration does not converge
=========================================

``diagnostics_`` reports how inference converged. Its spectral radius is that of the undamped iteration
at the solution. If the radius is below one, undamped iteration from a nearby start converges to this
solution; if it is above one, undamped iteration moves away from it.
"""

# %%
# We run inference at fixed hyperparameters, starting from the prior.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel

from postlin import GPClassifier
from postlin.datasets import load, whiten
from postlin.plotting import ConvergenceDisplay

crab = load("crab")
X, y = whiten(crab.X), crab.y


def kernel(variance):
    """The paper's kernel with a length scale of two."""
    return ConstantKernel(variance) * RBF(2.0) + WhiteKernel(0.1)


model = GPClassifier(kernel(10.0), likelihood="noisy_threshold", optimizer=None).fit(X, y)
diagnostics = model.diagnostics_
print(diagnostics)
print(f"spectral radius {diagnostics.spectral_radius:.3f}")
for row in diagnostics.hard_rows(3):
    print(row)
_ = ConvergenceDisplay.from_estimator(model)

# %%
# The radius is above one. Undamped iteration, which ``Parallel(iterations=k)`` runs, therefore cannot
# stay at the solution and oscillates.
import warnings

from postlin.schedules import Parallel

plain = GPClassifier(
    kernel(10.0), likelihood="noisy_threshold", schedule=Parallel(iterations=50), optimizer=None
)
with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # it does not converge
    plain.fit(X, y)
display = ConvergenceDisplay.from_estimator(plain)
_ = display.ax_.set_title("fifty undamped iterations")

# %%
# The last plot shows the radius against the variance of the kernel, for two likelihoods and two rules.
variances = 10.0 ** np.arange(-1, 4)
figure, ax = plt.subplots(figsize=(6.4, 4), layout="constrained")
looks = {"pl": "#0072B2", "ep": "#D55E00"}
for rule, colour in looks.items():
    for likelihood, line in (("probit", "o-"), ("noisy_threshold", "s--")):
        radii = []
        for variance in variances:
            fit = GPClassifier(
                kernel(variance), likelihood=likelihood, inference=rule, optimizer=None
            ).fit(X, y)
            radii.append(fit.diagnostics_.spectral_radius)
        label = f"{rule.upper()}, {likelihood.replace('_', ' ')}"
        ax.semilogx(variances, radii, line, color=colour, label=label)
ax.axhline(1, color="0.3", linewidth=1)
ax.set(xlabel="variance of the kernel", ylabel="spectral radius", ylim=(0, None))
ax.legend(frameon=False)
ax.spines[["top", "right"]].set_visible(False)
