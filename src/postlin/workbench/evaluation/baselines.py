"""Baselines: classifiers of scikit-learn, which are compared on the same folds."""

from sklearn.base import ClassifierMixin
from sklearn.dummy import DummyClassifier
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

#: The baselines, with the names by which tables call them.
BASELINES = {
    "majority": "class frequencies",
    "logistic": "logistic regression",
    "boosting": "gradient boosting",
}


def make_baseline(name: str) -> ClassifierMixin:
    """An unfitted baseline, as scikit-learn sets it up.

    Class frequencies predict the most frequent class, with the shares of all classes in the rows to
    learn from as probabilities: what a method must beat to have learned anything.
    """
    if name == "majority":
        return DummyClassifier(strategy="prior")
    if name == "logistic":
        return LogisticRegression(max_iter=1000)  # at 100 it often stops with a warning
    return HistGradientBoostingClassifier(random_state=0)
