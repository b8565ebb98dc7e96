"""
Two classes in the plane
========================

``DecisionDisplay`` shows the probability of a class in the plane, and the standard deviation of the
latent function, which shows where the model is uncertain.
"""

# %%
# The data are two interleaved half moons. ``fit`` learns the variance and the length scale of the
# kernel by maximising the evidence.
import numpy as np
from sklearn.datasets import make_moons

from postlin import GPClassifier

X, y = make_moons(120, noise=0.25, random_state=0)
labels = np.array(["upper", "lower"])[y]
model = GPClassifier().fit(X, labels)
print(model.summary())

# %%
# The left plot shows the probability of a class, with the line on which both classes are equally
# probable. The right plot shows the standard deviation of the latent function. Far from the data the
# standard deviation returns to that of the prior, and the probability to one half.
from postlin.plotting import DecisionDisplay

_ = DecisionDisplay.from_estimator(model)

# %%
# scikit-learn's own display also works with the classifier.
from sklearn.inspection import DecisionBoundaryDisplay

display = DecisionBoundaryDisplay.from_estimator(
    model, X, response_method="predict_proba", cmap="PuOr", alpha=0.5
)
_ = display.ax_.scatter(*X.T, c=labels == "upper", cmap="PuOr", edgecolors="black")
