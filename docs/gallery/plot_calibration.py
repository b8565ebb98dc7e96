"""
Calibration compared with scikit-learn's classifier
===================================================

scikit-learn's ``GaussianProcessClassifier`` uses Laplace's method, which centres the Gaussian at the
mode of the posterior. Posterior linearisation centres it where the posterior has its mass. This example
shows how much this changes the probabilities if both learn the same kernel.
"""

# %%
# The data are radar returns from the ionosphere, half of them for training and half for testing.
import numpy as np
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, ConstantKernel
from sklearn.metrics import brier_score_loss, log_loss
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from postlin import GPClassifier
from postlin.datasets import load

data = load("ionosphere")
X_train, X_test, y_train, y_test = train_test_split(
    data.X, data.y, test_size=0.5, random_state=0, stratify=data.y
)
kernel = ConstantKernel(10.0) * RBF(1.0)
models = {
    "postlin, PL, probit": make_pipeline(StandardScaler(), GPClassifier(kernel)),
    "postlin, PL, logit": make_pipeline(StandardScaler(), GPClassifier(kernel, likelihood="logit")),
    "postlin, Laplace, logit": make_pipeline(
        StandardScaler(), GPClassifier(kernel, likelihood="logit", inference="laplace")
    ),
    "scikit-learn, Laplace, logit": make_pipeline(StandardScaler(), GaussianProcessClassifier(kernel)),
}
outcome = (y_test == "good").astype(int)
print("                               error  log loss   Brier  log evidence")
for name, model in models.items():
    p = model.fit(X_train, y_train).predict_proba(X_test)[:, 1]
    print(
        f"{name:30} {np.mean((p > 0.5) != outcome):.3f}  {log_loss(outcome, p):8.4f} "
        f"{brier_score_loss(outcome, p):6.4f} {model[-1].log_marginal_likelihood_value_:9.2f}"
    )

# %%
# Laplace's method gives nearly the same numbers in postlin and scikit-learn. PL has the lower log loss
# and Brier score on these rows, with either likelihood. All numbers come from one split of 351 rows.
# The next plot shows scikit-learn's calibration curves for two of the models.
import matplotlib.pyplot as plt
from sklearn.calibration import CalibrationDisplay

figure, ax = plt.subplots(figsize=(5.4, 5), layout="constrained")
for name, marker in (("postlin, PL, probit", "o"), ("scikit-learn, Laplace, logit", "s")):
    CalibrationDisplay.from_estimator(
        models[name], X_test, y_test, n_bins=6, pos_label="good", name=name, marker=marker, ax=ax
    )

# %%
# ``ReliabilityDisplay`` adds intervals, which show how uncertain a bin with few rows is. The plot on
# the right uses no test data but the leave-one-out predictions of the training rows.
from postlin.plotting import ReliabilityDisplay

figure, axes = plt.subplots(1, 2, figsize=(9.5, 5), layout="constrained", sharey=True)
ReliabilityDisplay.from_estimator(models["postlin, PL, probit"], X_test, y_test, ax=axes[0])
_ = ReliabilityDisplay.from_estimator(models["postlin, PL, probit"], ax=axes[1])
