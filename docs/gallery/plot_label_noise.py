"""
Learning how many labels are wrong
==================================

The noisy threshold says that a label is the sign of the latent function, except that it is wrong with
probability ε. With bounds for ε that rate is learned with the kernel.
"""

# %%
# Half moons that can be told apart, with a share of the labels turned over. Where the rate is learned,
# the white noise of the kernel is moved into the likelihood (``fold_noise="auto"``): a step is hard for
# any Gaussian approximation, and with the noise in it, it is not a step any more.
import numpy as np
from sklearn.datasets import make_moons

from postlin import GPClassifier
from postlin.likelihoods import NoisyThreshold

X, truth = make_moons(200, noise=0.1, random_state=1)


def turned(rate):
    """The labels with some of them turned over, and which."""
    wrong = np.random.RandomState(3).rand(len(truth)) < rate
    return np.where(wrong, 1 - truth, truth), wrong


likelihood = NoisyThreshold(0.05, epsilon_bounds=(1e-3, 0.45))
print("labels turned  ε learned")
for rate in (0.05, 0.1, 0.2, 0.3):
    y, wrong = turned(rate)
    model = GPClassifier(likelihood=likelihood).fit(X, y)
    print(f"{wrong.mean():13.3f}  {model.likelihood_.epsilon:9.3f}")

# %%
# The rate is found while wrong labels are few. Where they are many, some of them are as well explained
# by a latent function that is nowhere sure, and less is left to ε.
#
# At a rate of a tenth the rows with the lowest leave-one-out probability are those whose labels were
# turned over.
from postlin.plotting import DecisionDisplay, LeaveOneOutDisplay

y, wrong = turned(0.1)
model = GPClassifier(likelihood=likelihood).fit(X, y)
display = DecisionDisplay.from_estimator(model, response="probability")
display.ax_.scatter(*X[wrong].T, s=110, facecolors="none", edgecolors="black", label="turned over")
display.ax_.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3, frameon=False)
hardest = [row.row for row in model.diagnostics_.hard_rows(int(wrong.sum()))]
print(f"{wrong[hardest].sum()} of the {wrong.sum()} hardest rows had been turned over")

# %%
_ = LeaveOneOutDisplay.from_estimator(model, n_annotated=8)

# %%
# The probit likelihood has no such rate: it must explain wrong labels by a latent function that is
# small, or that bends towards them. Its evidence says that this is the worse explanation.
probit = GPClassifier().fit(X, y)
for name, fit in (("noisy threshold", model), ("probit", probit)):
    p = fit.predict_proba(X).max(axis=1)
    evidence = fit.log_marginal_likelihood_value_
    print(f"{name}: log evidence {evidence:.2f}, median probability {np.median(p):.3f}")
