"""The six data sets are those of the paper."""

import numpy as np
import pytest

from postlin.datasets import NAMES, load, whiten

SHAPES = {  # (features, points), as the paper lists them
    "breast_cancer": (9, 699),
    "crab": (6, 200),
    "glass": (9, 214),
    "ionosphere": (33, 351),
    "thyroid": (5, 215),
    "housing": (13, 506),
}


@pytest.mark.parametrize("name", NAMES)
def test_shapes_are_the_papers(name):
    bunch = load(name)
    assert bunch.X.shape[::-1] == SHAPES[name]
    assert len(bunch.feature_names) == bunch.X.shape[1]
    assert len(np.unique(bunch.y)) == 2
    assert np.isfinite(bunch.X).all()
    assert bunch.description


@pytest.mark.parametrize("name", NAMES)
def test_whitening_gives_zero_mean_and_identity_covariance(name):
    Z = whiten(load(name).X)
    np.testing.assert_allclose(Z.mean(axis=0), 0, atol=1e-10)
    np.testing.assert_allclose(Z.T @ Z / len(Z), np.eye(Z.shape[1]), atol=1e-9)


def test_unknown_name_lists_the_known_ones():
    with pytest.raises(ValueError, match=r"'breast_cancer', 'crab'.*got 'iris'"):
        load("iris")


def test_constant_columns_cannot_be_whitened():
    with pytest.raises(ValueError, match="constant"):
        whiten(np.c_[np.arange(5.0), np.ones(5)])
