"""scikit-learn's own tests of ``GaussianProcessClassifier``, run with ``GPClassifier`` in its place.

The source comes from the installed scikit-learn; nothing of it is copied here. ``DIFFERENT`` names the
tests that differ on purpose, with the reason.
"""

import importlib.util

import pytest
from sklearn import gaussian_process

from postlin import GPClassifier

#: scikit-learn's tests do not mind warnings about convergence and bounds.
pytestmark = pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")

#: The tests that must fail, and why.
DIFFERENT = {
    "test_warning_bounds": "the warning about a bound is in postlin's words, and one for each fit",
    "test_gpc_latent_mean_and_variance_complain_on_more_than_2_classes": (
        "the latent values of several classes are returned, one column for each fit"
    ),
}


def _swapped():
    """The module of scikit-learn's tests, in which ``GPClassifier`` has the other's name."""
    spec = importlib.util.find_spec("sklearn.gaussian_process.tests.test_gpc")
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gaussian_process, "GaussianProcessClassifier", GPClassifier)
        spec.loader.exec_module(module)
    return module


_theirs = _swapped()
for _name, _test in vars(_theirs).items():
    if _name.startswith("test_"):
        if _name in DIFFERENT:
            _test = pytest.mark.xfail(strict=True, reason=DIFFERENT[_name])(_test)
        globals()[_name] = _test


@pytest.fixture
def global_random_seed():
    """The seed that scikit-learn's own configuration of pytest gives by default."""
    return 42
