"""
Watching a fit, and stopping it
===============================

``callback`` is called after every evaluation of the evidence: for a progress bar, a picture, or a
budget. With ``keep_on_interrupt=True`` an interrupt ends the search at the best point so far rather
than the fit.
"""

# %%
# The evidence over time, as the optimiser goes.
import matplotlib.pyplot as plt
import numpy as np

from postlin import GPClassifier
from postlin.datasets import load, whiten

crab = load("crab")
X, y = whiten(crab.X), crab.y

seen = []
GPClassifier(callback=seen.append).fit(X, y)
last = seen[-1]
print(f"{last.number} evaluations, log evidence {last.log_evidence:.3f}")
print("parameters:", ", ".join(last.names))

figure, axes = plt.subplots(1, 2, figsize=(9.5, 3.6), layout="constrained")
numbers = [e.number for e in seen]
axes[0].plot(numbers, [e.log_evidence for e in seen], "o-", color="#0072B2", markersize=4)
axes[0].set(xlabel="evaluation", ylabel="log evidence")
axes[1].semilogy(
    numbers, [np.linalg.norm(e.gradient) for e in seen], "o-", color="#D55E00", markersize=4
)
axes[1].set(xlabel="evaluation", ylabel="length of the gradient")
for ax in axes:
    ax.spines[["top", "right"]].set_visible(False)

# %%
# A budget of five evaluations: the callback interrupts as Ctrl-C would, and the fit keeps the best that
# it has seen, with a warning. ``warm_start=True`` goes on from there.
import warnings


def budget(evaluation):
    """Enough after five."""
    if evaluation.number == 5:
        raise KeyboardInterrupt


model = GPClassifier(callback=budget, keep_on_interrupt=True, warm_start=True)
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    model.fit(X, y)
print(caught[0].message)
print(f"log evidence {model.log_marginal_likelihood_value_:.3f}")

model.set_params(callback=None).fit(X, y)
print(
    f"log evidence {model.log_marginal_likelihood_value_:.3f}, after {len(model.evidence_path_)} more"
)
