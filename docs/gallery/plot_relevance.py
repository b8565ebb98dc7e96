"""
Which features matter
=====================

With a length scale for every feature, the evidence finds out which of them the labels depend on: the
length scale of a feature that says nothing grows until the feature is flat.
"""

# %%
# The laboratory tests of the thyroid data, and two columns of random numbers among them.
import warnings

import numpy as np
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from postlin import GPClassifier
from postlin.datasets import load
from postlin.plotting import RelevanceDisplay

thyroid = load("thyroid")
noise = np.random.default_rng(0).standard_normal((len(thyroid.y), 2))
X = np.hstack([thyroid.X, noise])
names = [*thyroid.feature_names, "random 1", "random 2"]

kernel = ConstantKernel(10.0, (1e-5, 1e10)) * RBF(np.ones(7), (1e-2, 1e2)) + WhiteKernel(0.1, "fixed")
model = make_pipeline(StandardScaler(), GPClassifier(kernel))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    model.fit(X, thyroid.y)
for warning in caught:
    print(warning.message)

# %%
# The warnings name the features that say nothing: their length scales have grown to the bound. They are
# the two random columns, and one of the tests beside them.
_ = RelevanceDisplay.from_estimator(model, feature_names=names)

# %%
# The same in numbers: the standard deviation of a feature in units of its length scale, so that it does
# not matter in which unit a feature is measured.
for feature, value in zip(model[-1].relevance_.features, model[-1].relevance_.values, strict=True):
    print(f"{names[feature]:10} {value:.4f}")

# %%
# What the features without relevance are worth: all of them, and the first four alone.
best = [int(k) for k in model[-1].relevance_.features[:4]]
smaller = make_pipeline(
    StandardScaler(),
    GPClassifier(
        ConstantKernel(10.0, (1e-5, 1e10)) * RBF(np.ones(4), (1e-2, 1e2)) + WhiteKernel(0.1, "fixed")
    ),
).fit(X[:, best], thyroid.y)
for title, fit in (("all seven", model), ("the first four", smaller)):
    last = fit[-1]
    print(
        f"{title:15}: log evidence {last.log_marginal_likelihood_value_:.2f}, "
        f"leave-one-out log score {last.loo_log_score_:.2f}"
    )
