"""
Watching and stopping a fit
===========================

``fit`` calls ``callback`` after every evaluation of the evidence. Use it for a progress bar, a plot or
a budget. With ``keep_on_interrupt=True`` an interrupt ends only the search, and the fit continues with
the best hyperparameters found so far.
"""

# %%
# This plot shows the log evidence and the norm of its gradient at every evaluation of the optimiser.
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
axes[1].set(xlabel="evaluation", ylabel="norm of the gradient")
for ax in axes:
    ax.spines[["top", "right"]].set_visible(False)

# %%
# The second callback sets a budget of five evaluations. It interrupts the search as Ctrl-C would; the
# fit keeps the best hyperparameters found so far and issues a warning. With ``warm_start=True`` the
# next ``fit`` continues from there.
import warnings


def budget(evaluation):
    """Stop after five evaluations."""
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
