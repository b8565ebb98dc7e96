"""
Which features matter
=====================

If the kernel has one length scale for each feature, maximising the evidence shows which features the
labels depend on: the length scale of an uninformative feature grows until the feature has no effect.
"""

# %%
# We add two columns of random numbers to the laboratory tests of the thyroid data.
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
# The warnings name the uninformative features, whose length scales have grown to the bound: the two
# random columns and one of the tests.
_ = RelevanceDisplay.from_estimator(model, feature_names=names)

# %%
# The relevance of a feature is its standard deviation divided by its length scale, so it does not
# depend on the unit of the feature.
for feature, value in zip(model[-1].relevance_.features, model[-1].relevance_.values, strict=True):
    print(f"{names[feature]:10} {value:.4f}")

# %%
# To see what the features of low relevance contribute, we compare a model of all seven features with a
# model of the four most relevant ones.
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
