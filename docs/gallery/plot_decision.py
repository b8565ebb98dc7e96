"""
Two classes in the plane
========================

What a fit knows, and where it does not know much: the probability of a class, and the standard
deviation of the latent function behind it.
"""

# %%
# Two interleaved half moons. ``fit`` learns the variance and the length scale of the kernel by
# maximising the evidence.
import numpy as np
from sklearn.datasets import make_moons

from postlin import GPClassifier

X, y = make_moons(120, noise=0.25, random_state=0)
labels = np.array(["upper", "lower"])[y]
model = GPClassifier().fit(X, labels)
print(model.summary())

# %%
# On the left the probability of a class, with the line where both are as probable. On the right the
# standard deviation of the latent function: far from the data it goes back to that of the prior, and
# the probability on the left back to one half.
from postlin.plotting import DecisionDisplay

_ = DecisionDisplay.from_estimator(model)

# %%
# scikit-learn's own display takes the classifier too.
from sklearn.inspection import DecisionBoundaryDisplay

display = DecisionBoundaryDisplay.from_estimator(
    model, X, response_method="predict_proba", cmap="PuOr", alpha=0.5
)
_ = display.ax_.scatter(*X.T, c=labels == "upper", cmap="PuOr", edgecolors="black")
