"""``GPClassifier`` on tensors and other arrays, or told where to work: the fits of NumPy's."""

import copy
import pickle

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, Matern, PairwiseKernel, WhiteKernel
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import postlin
from postlin import GPClassifier
from postlin.estimator import reading
from postlin.likelihoods import NoisyThreshold
from postlin.linalg.arrays import Place, on_host, place_of

N = 45
KERNEL = ConstantKernel(2.0) * RBF([1.0, 1.0]) + WhiteKernel(0.1)


@pytest.fixture(name="rows", scope="module")
def labelled_rows():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(N, 2))
    return X, (X[:, 0] + 0.5 * rng.normal(size=N) > 0).astype(int)


@pytest.fixture(name="many", scope="module")
def many_classes():
    rng = np.random.default_rng(6)
    X = rng.normal(size=(N, 2))
    return X, np.digitize(X[:, 0] + 0.3 * rng.normal(size=N), [-0.5, 0.5])


@pytest.fixture(name="new", scope="module")
def new_rows():
    return np.random.default_rng(7).normal(size=(11, 2))


def _fits(put, X, y, **options):
    """The same fit there and here."""
    model = GPClassifier(KERNEL, **{"optimizer": None, **options})
    return clone(model).fit(put(X), put(y)), clone(model).fit(X, y)


def _same(found, expected, **tolerance):
    np.testing.assert_allclose(on_host(found), expected, **{"rtol": 1e-7, "atol": 1e-10, **tolerance})


def test_a_fit_that_learns_its_kernel(put, rows, new):
    there, here = _fits(put, *rows, optimizer="bfgs")
    assert there.log_marginal_likelihood_value_ == pytest.approx(here.log_marginal_likelihood_value_)
    _same(there.kernel_.theta, here.kernel_.theta, atol=1e-5)
    _same(there.predict_proba(put(new)), here.predict_proba(new), rtol=1e-5)


def test_answers_are_arrays_of_the_kind_that_is_asked_with(put, rows, new):
    there, here = _fits(put, *rows)
    latent = here.latent_mean_and_variance(new)
    for model in (there, here):
        for bring in (put, np.asarray):
            X = bring(new)
            answers = [
                (model.predict(X), here.predict(new)),
                (model.predict_proba(X), here.predict_proba(new)),
                (model.latent_mean_and_variance(X).mean, latent.mean),
                (model.latent_mean_and_variance(X).variance, latent.variance),
                (model.sample_latent(X, 3, random_state=0), here.sample_latent(new, 3, random_state=0)),
            ]
            for found, expected in answers:
                assert place_of(found) == place_of(X)
                _same(found, expected, atol=1e-6)
    assert there.score(put(rows[0]), put(rows[1])) == here.score(*rows)


def test_what_else_a_fit_tells(put, rows):
    there, here = _fits(put, *rows)
    assert isinstance(there.X_train_, np.ndarray)
    _same(there.loo_predict_proba_, here.loo_predict_proba_, rtol=1e-5)
    assert there.loo_log_score_ == pytest.approx(here.loo_log_score_, rel=1e-6)
    theta = here.kernel_.theta + 0.1
    value, gradient = there.log_marginal_likelihood(theta, eval_gradient=True)
    expected, slope = here.log_marginal_likelihood(theta, eval_gradient=True)
    assert value == pytest.approx(expected, rel=1e-9)
    _same(gradient, slope, atol=1e-7)
    assert there.diagnostics_.spectral_radius == pytest.approx(
        here.diagnostics_.spectral_radius, rel=1e-5
    )
    assert there.summary().splitlines()[0] == here.summary().splitlines()[0]


def test_leaving_out_weighted_rows(put, rows):
    X, y = rows
    weight = np.where(np.arange(N) % 3 == 0, 2.0, 1.0)
    model = GPClassifier(KERNEL, optimizer=None)
    there = clone(model).fit(put(X), put(y), sample_weight=put(weight))
    here = clone(model).fit(X, y, sample_weight=weight)
    _same(there.loo_predict_proba_, here.loo_predict_proba_, rtol=1e-5)


@pytest.mark.parametrize(
    "options", [{}, {"multi_class": "one_vs_one"}, {"shared_kernel": True}, {"n_jobs": 2}]
)
def test_many_classes(options, put, many, new):
    there, here = _fits(put, *many, **options)
    _same(there.predict_proba(put(new)), here.predict_proba(new))
    _same(there.predict(put(new)), here.predict(new))
    _same(there.loo_predict_proba_, here.loo_predict_proba_, rtol=1e-5)


def test_the_rate_of_wrong_labels_is_learned(put, rows, new):
    X, _ = rows
    y = (X[:, 0] > 0) ^ (np.arange(N) % 9 == 0)
    kernel = ConstantKernel(4.0, "fixed") * RBF(2.0, "fixed") + WhiteKernel(0.1, "fixed")
    options = {"kernel": kernel, "likelihood": NoisyThreshold(0.05, epsilon_bounds=(1e-3, 0.4))}
    there, here = (GPClassifier(**options).fit(bring(X), bring(y)) for bring in (put, np.asarray))
    assert 0.01 < here.likelihood_.epsilon < 0.04  # between the bounds, and not where it began
    assert there.likelihood_.epsilon == pytest.approx(here.likelihood_.epsilon, rel=1e-4)
    _same(there.predict_proba(new), here.predict_proba(new), rtol=1e-4)


@pytest.mark.parametrize("labels", [np.array([3, 7]), np.array([1.0, 2.0]), np.array([False, True])])
def test_labels_that_are_numbers_come_back_as_arrays_of_that_kind(labels, put, rows, new):
    X, y = rows
    there = GPClassifier(KERNEL, optimizer=None).fit(put(X), put(labels[y]))
    found = there.predict(put(new))
    assert place_of(found) == place_of(put(new))
    assert on_host(found).dtype == labels.dtype
    assert isinstance(there.classes_, np.ndarray)


def test_labels_that_are_names_come_back_as_names(put, rows, new):
    X, y = rows
    there = GPClassifier(KERNEL, optimizer=None).fit(put(X), np.array(["no", "yes"])[y])
    assert set(there.predict(put(new))) <= {"no", "yes"}


def test_single_precision_is_widened(put, rows, new):
    X, y = rows
    single = X.astype(np.float32)
    there = GPClassifier(KERNEL, optimizer=None).fit(put(single), y)
    here = GPClassifier(KERNEL, optimizer=None).fit(single.astype(float), y)
    _same(there.predict_proba(put(new.astype(np.float32))), here.predict_proba(new.astype(np.float32)))


def test_tensors_that_want_gradients_are_taken_as_they_are(rows, new):
    torch = pytest.importorskip("torch")
    X, y = rows
    there = GPClassifier(KERNEL, optimizer=None).fit(torch.asarray(X).requires_grad_(), y)
    assert not there.predict_proba(torch.asarray(new).requires_grad_()).requires_grad


def test_a_device_for_numpy_arrays(put, rows, new, monkeypatch):
    X, y = rows
    place = place_of(put(X))
    monkeypatch.setattr(reading, "place_named", {"cuda": place}.__getitem__)
    model = GPClassifier(KERNEL, optimizer=None, device="cuda").fit(X, y)
    assert place_of(model.approximation_.problem.K) == place
    found = model.predict_proba(new)
    assert isinstance(found, np.ndarray)
    _same(found, GPClassifier(KERNEL, optimizer=None).fit(X, y).predict_proba(new))
    assert clone(model).device == "cuda"


def test_the_cpu_for_other_arrays(put, rows, new):
    X, y = rows
    options = {"device": "cpu", "schedule": "sequential", "optimizer": None}
    there = GPClassifier(KERNEL, **options).fit(put(X), put(y))
    assert isinstance(there.approximation_.problem.K, np.ndarray)
    assert place_of(there.predict_proba(put(new))) == place_of(put(new))


def test_the_start_of_a_warm_fit(put, rows):
    X, y = rows
    model = GPClassifier(KERNEL, optimizer=None, warm_start=True).fit(put(X), y)
    assert model.fit(put(X), y).n_iter_ <= 1


@pytest.mark.parametrize("copied", [lambda m: pickle.loads(pickle.dumps(m)), copy.deepcopy])
def test_copies_work_on_the_cpu(copied, put, many, new):
    there, here = _fits(put, *many)
    model = copied(there)
    _same(model.predict_proba(new), here.predict_proba(new))
    assert place_of(model.predict_proba(put(new))) == place_of(put(new))
    assert isinstance(model.base_estimator_.estimators_[0].approximation_.problem.K, np.ndarray)


def test_model_files_hold_arrays_of_numpy(put, rows, new, tmp_path):
    pytest.importorskip("skops")
    there, here = _fits(put, *rows)
    postlin.save(there, tmp_path / "model")
    loaded = postlin.load(tmp_path / "model")
    _same(loaded.predict_proba(new), here.predict_proba(new))
    assert isinstance(loaded.approximation_.problem.K, np.ndarray)


def test_a_pipeline_with_a_device(put, rows, new, monkeypatch):
    X, y = rows
    monkeypatch.setattr(reading, "place_named", lambda device: place_of(put(X)))
    there, here = (
        make_pipeline(StandardScaler(), GPClassifier(KERNEL, optimizer=None, device=device)).fit(X, y)
        for device in ("cuda", None)
    )
    _same(there.predict_proba(new), here.predict_proba(new))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"schedule": "sequential"},
            "schedule='sequential' works on the CPU with NumPy only, not with ",
        ),
        ({"schedule": "hybrid"}, "schedule='hybrid' works on the CPU with NumPy only, not with "),
        (
            {"multi_class": "joint", "kernel": RBF(1.0) * PairwiseKernel()},
            "the kernel PairwiseKernel.* works on the CPU",
        ),
        (
            {"kernel": Matern(1.0, nu=0.7) + WhiteKernel(0.1)},
            r"the kernel Matern\(length_scale=1, nu=0.7\) works on the CPU .* or make it of .*RBF",
        ),
        ({"kernel": RBF(1.0) * PairwiseKernel()}, "the kernel PairwiseKernel.* works on the CPU"),
        ({"kernel": RBF([1.0, 1.0, 1.0])}, "cannot be evaluated on X: 3 length scales for 2 features"),
        ({"kernel": ConstantKernel(1e80) * RBF(1.0)}, "makes no covariance of X: the prior variance"),
    ],
)
def test_what_does_not_work_there_is_said(options, message, put, many):
    X, y = many
    with pytest.raises(ValueError, match=message):
        GPClassifier(**{"optimizer": None, **options}).fit(put(X), put(y))


def test_bad_rows_are_refused_as_everywhere(put, rows):
    X, y = rows
    with pytest.raises(ValueError, match="NaN"):
        GPClassifier().fit(put(np.where(np.arange(N)[:, None] == 3, np.nan, X)), put(y))
    with pytest.raises(ValueError, match="inconsistent numbers of samples"):
        GPClassifier().fit(put(X), put(y[1:]))
    model = GPClassifier(KERNEL, optimizer=None).fit(put(X), put(y))
    with pytest.raises(ValueError, match="expecting 2 features"):
        model.predict(put(X[:, :1]))


def test_memory_is_that_of_the_device(put, rows, monkeypatch):
    X, y = rows
    monkeypatch.setattr(Place, "has_memory", True)
    monkeypatch.setattr(Place, "available_memory", lambda place: 2.0**14)
    with pytest.raises(
        MemoryError, match=r"45 points .*\(4 matrices of n² doubles\).* are available on "
    ):
        GPClassifier(KERNEL).fit(put(X), y)


def test_a_device_that_is_not_there(rows):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        with pytest.raises(
            ValueError, match="device='cuda' asks for a GPU and PyTorch finds none here"
        ):
            GPClassifier(device="cuda").fit(*rows)
