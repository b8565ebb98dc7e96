"""
Learning how many labels are wrong
==================================

The noisy-threshold likelihood assumes that a label is the sign of the latent function, but wrong with
probability ε. If ε has bounds, ``fit`` learns it together with the kernel.
"""

# %%
# The data are two half moons that can be separated, with a share of the labels flipped. If ε is
# learned, the white noise of the kernel moves into the likelihood (``fold_noise="auto"``). A step
# function is hard for any Gaussian approximation, and the noise makes it smooth.
import numpy as np
from sklearn.datasets import make_moons

from postlin import GPClassifier
from postlin.likelihoods import NoisyThreshold

X, truth = make_moons(200, noise=0.1, random_state=1)


def flipped(rate):
    """Flip labels at random; return the labels and which of them are wrong."""
    wrong = np.random.RandomState(3).rand(len(truth)) < rate
    return np.where(wrong, 1 - truth, truth), wrong


likelihood = NoisyThreshold(0.05, epsilon_bounds=(1e-3, 0.45))
print("labels flipped  ε learned")
for rate in (0.05, 0.1, 0.2, 0.3):
    y, wrong = flipped(rate)
    model = GPClassifier(likelihood=likelihood).fit(X, y)
    print(f"{wrong.mean():14.3f}  {model.likelihood_.epsilon:9.3f}")

# %%
# The learned rate is accurate if few labels are wrong. If many are wrong, a latent function close to
# zero explains some of them equally well, and ε is underestimated.
#
# At a rate of a tenth, the rows with the lowest leave-one-out probability are those whose labels were
# flipped.
from postlin.plotting import DecisionDisplay, LeaveOneOutDisplay

y, wrong = flipped(0.1)
model = GPClassifier(likelihood=likelihood).fit(X, y)
display = DecisionDisplay.from_estimator(model, response="probability")
display.ax_.scatter(*X[wrong].T, s=110, facecolors="none", edgecolors="black", label="flipped")
display.ax_.legend(loc="lower center", bbox_to_anchor=(0.5, 1), ncols=3, frameon=False)
hardest = [row.row for row in model.diagnostics_.hard_rows(int(wrong.sum()))]
print(f"{wrong[hardest].sum()} of the {wrong.sum()} hardest rows had flipped labels")

# %%
_ = LeaveOneOutDisplay.from_estimator(model, n_annotated=8)

# %%
# The probit likelihood has no such rate. It must explain wrong labels by a latent function that is
# small or that bends towards them, and its lower evidence shows that this explanation is worse.
probit = GPClassifier().fit(X, y)
for name, fit in (("noisy threshold", model), ("probit", probit)):
    p = fit.predict_proba(X).max(axis=1)
    evidence = fit.log_marginal_likelihood_value_
    print(f"{name}: log evidence {evidence:.2f}, median probability {np.median(p):.3f}")
