"""Fits with neighbours: exact inference where all rows are neighbours, and the laws of all others."""

import pickle
import warnings
from functools import partial

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.gaussian_process.kernels import (
    RBF,
    ConstantKernel,
    DotProduct,
    ExpSineSquared,
    Matern,
    RationalQuadratic,
    WhiteKernel,
)

import postlin
from postlin import GPClassifier, likelihoods, rules
from postlin.estimator.parameters import local_kernels
from postlin.exceptions import CheckpointError, ConvergenceWarning, ModelFileError
from postlin.learning import local_evidence, local_search, local_training
from postlin.learning.global_part import GlobalPart
from postlin.learning.hyperparameters import Hyperparameters
from postlin.learning.local_cases import Cases
from postlin.learning.local_model import LocalMarginals, LocalModel
from postlin.learning.sparse_model import SparseModel
from postlin.likelihoods import DensityLikelihood, NoisyThreshold, Probit
from postlin.rules.binary import PL
from postlin.streaming.neighbours import Neighbours
from postlin.streaming.surroundings import ArraySurroundings, Neighbourhoods, Queries
from postlin.streaming.views import ArrayRows


def table(n=120, d=2, classes=2, seed=0):
    """Rows with labels that depend on the first two features, and new rows."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, d))
    value = np.sin(2 * X[:, 0]) + X[:, 1] + 0.3 * rng.normal(size=n)
    y = np.digitize(value, np.quantile(value, np.arange(1, classes) / classes))
    return X, np.array(list("abcdefg"))[y], rng.normal(size=(25, d))


def kernel(d=2, nu=1.5, free=False):
    bounds = (1e-3, 1e3) if free else "fixed"
    return ConstantKernel(8.0, bounds) * Matern(np.full(d, 1.5), bounds, nu=nu) + WhiteKernel(
        0.1, (1e-4, 1e1) if free else "fixed"
    )


def fixed(k, **options):
    """A classifier whose kernel is given."""
    options = {"kernel": kernel(), "optimizer": None, "random_state": 0} | options
    return GPClassifier(n_neighbors=k, **options)


CASES = [
    (name, rule)
    for name, kind in likelihoods.REGISTRY.items()
    for rule in rules.REGISTRY
    if kind().log_concave or rule != "laplace"
]


@pytest.mark.parametrize("inducing", [None, 12])
@pytest.mark.parametrize(("likelihood", "rule"), CASES)
def test_all_rows_as_neighbours_are_exact_inference(likelihood, rule, inducing):
    X, y, new = table()
    options = {"likelihood": likelihood, "inference": rule, "optimizer": None}
    options["fold_noise"] = likelihood == "noisy_threshold"
    if inducing and rule == "ep" and likelihood == "noisy_threshold":
        pytest.skip("EP refuses inducing points with sites of negative precision")
    exact = GPClassifier(kernel(), **options).fit(X, y)
    near = fixed(len(X), inducing=inducing, **options).fit(X, y)
    assert np.abs(near.predict_proba(new) - exact.predict_proba(new)).max() < 1e-6
    mean, variance = near.latent_mean_and_variance(new)
    assert np.abs(mean - exact.latent_mean_and_variance(new).mean).max() < 1e-5
    assert (variance > 0).all()


def test_predictions_approach_exact_ones_with_neighbours_and_with_inducing_points():
    X, y, new = table(400)
    truth = GPClassifier(kernel(), optimizer=None).fit(X, y).predict_proba(new)

    def off(k, m):
        return np.abs(fixed(k, inducing=m).fit(X, y).predict_proba(new) - truth).mean()

    alone = [off(k, None) for k in (8, 32, 128)]
    both = [off(4, m) for m in (10, 40)]
    assert alone[0] > alone[1] > alone[2]
    assert off(4, None) > both[0] > both[1]


@pytest.mark.slow
def test_three_thousand_rows_are_as_close_to_exact_inference_as_promised():
    X, y, _ = table(3000, 4, seed=3)
    new = np.random.default_rng(4).normal(size=(400, 4))
    model = GPClassifier(kernel(4, free=True)).fit(X[:800], y[:800])
    options = {"kernel": model.kernel_, "optimizer": None}
    truth = GPClassifier(**options).fit(X, y).predict_proba(new)
    alone = fixed(64, **options).fit(X, y).predict_proba(new)
    both = fixed(64, inducing=200, **options).fit(X, y).predict_proba(new)
    assert np.abs(alone - truth).mean() <= 0.02
    assert np.abs(both - truth).mean() <= 0.008


def surroundings(X, code, weight=None, n_jobs=None, lengths=1.0):
    search = Neighbours.of(X, lengths, exact=True, n_jobs=n_jobs)
    return ArraySurroundings(X, code, weight, search)


def test_without_neighbours_the_model_is_the_sparse_one():
    X, y, new = table(100)
    code = (y == "b").astype(int)
    at = Hyperparameters(kernel(), Probit())
    sign = 2.0 * code - 1.0
    sparse = SparseModel(ArrayRows(X, sign), X[::9], PL(), 1e-10).infer(at)
    part = GlobalPart.of(sparse.posterior, sparse.state, sparse.method, None)
    model = LocalModel(np.array([[-1.0, 1.0]]), False, PL(), 1e-10, 200, parts=(part,))
    none = np.zeros((len(new), 0))
    empty = Neighbourhoods(none.astype(int), np.zeros((len(new), 0, 2)), none.astype(int), none)
    found = model.marginals(at, empty, Queries.new(new), 0)
    mean, variance = sparse.posterior.predict(new)
    assert np.abs(found.mean[:, 0] - mean).max() < 1e-9
    assert np.abs(found.variance[:, 0] - variance).max() < 1e-9


KERNELS = {
    "rbf": ConstantKernel(3.0) * RBF([1.0, 2.0]) + WhiteKernel(0.2),
    "matern½": ConstantKernel(3.0) * Matern(1.3, nu=0.5) + WhiteKernel(0.2),
    "matern 2½": ConstantKernel(3.0) * Matern([1.3, 0.8], nu=2.5) + WhiteKernel(0.2),
    "rational quadratic": ConstantKernel(3.0) * RationalQuadratic(1.3, 0.7) + WhiteKernel(0.2),
    "with a line": ConstantKernel(3.0) * RBF([1.0, 2.0]) + DotProduct(0.7) + WhiteKernel(0.2),
}


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("name", KERNELS)
def test_the_gradient_of_the_score_equals_differences(name, classes):
    X, y, _ = table(60, classes=classes)
    code = np.unique(y, return_inverse=True)[1]
    weight = np.random.default_rng(1).uniform(0.3, 2.5, len(X))
    rows = surroundings(X, code, weight)
    signs = np.array([[-1.0, 1.0]]) if classes == 2 else 2 * np.eye(3) - 1
    model = LocalModel(signs, classes > 2, PL(), 1e-12, 300)
    likelihood = NoisyThreshold(0.05, epsilon_bounds=(1e-3, 0.3)) if classes == 2 else Probit()
    model = LocalModel(signs, classes > 2, PL(), 1e-12, 300, fold_noise=classes == 2)
    at, queries = Hyperparameters(KERNELS[name], likelihood), rows.drawn(20, 0)
    found = local_search.scored(model, at, rows, queries, 9, gradient=True)

    def value(theta):
        return local_search.scored(model, at.at(theta), rows, queries, 9).value

    h = 1e-5
    steps = h * np.eye(len(at.theta))
    differences = [(value(at.theta + s) - value(at.theta - s)) / (2 * h) for s in steps]
    assert found.failed == 0
    assert np.abs(found.gradient - differences).max() < 1e-6 * max(1.0, np.abs(differences).max())


class LogLog(DensityLikelihood):
    """p(+1|f) = 1 − exp(−exp(f)), which treats the labels differently."""

    name = "log_log"

    def log_density(self, y, f):
        rate = np.exp(np.minimum(f, 600.0))
        return np.where(y > 0, np.log(-np.expm1(-np.maximum(rate, 1e-300))), -rate)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("strategy", ["one_vs_rest", "one_vs_one"])
@pytest.mark.parametrize("likelihood", [Probit(), LogLog()], ids=repr)
def test_problems_that_are_solved_once_for_several_classes_are_those_of_each(
    likelihood, strategy, weighted
):
    rng = np.random.default_rng(0)
    X, y, _ = table(100, classes=4)
    code = np.unique(y, return_inverse=True)[1]
    if strategy == "one_vs_rest":
        signs = 2 * np.eye(4) - 1
    else:
        signs = np.array([np.eye(4)[j] - np.eye(4)[i] for i in range(4) for j in range(i + 1, 4)])
    weight = rng.choice([0.5, 1.0, 3.0], len(X)) if weighted else None
    rows, at = surroundings(X, code, weight), Hyperparameters(kernel(free=True), likelihood)
    model = LocalModel(signs, strategy == "one_vs_rest", PL(), 1e-12, 300)
    queries = rows.drawn(10, 0)
    found = LocalMarginals.joined(rows.each(partial(model.marginals, at, k=7), queries, 7, 4))
    score = local_search.scored(model, at, rows, queries, 7, gradient=True)
    total = np.zeros(len(at.theta))
    for t, sign in enumerate(signs):
        one = LocalModel(sign[None], False, PL(), 1e-12, 300)
        alone = LocalMarginals.joined(rows.each(partial(one.marginals, at, k=7), queries, 7, 4))
        np.testing.assert_allclose(found.mean[:, t], alone.mean[:, 0], rtol=0, atol=1e-9)
        np.testing.assert_allclose(found.variance[:, t], alone.variance[:, 0], rtol=0, atol=1e-9)
        if strategy == "one_vs_one":  # whose score is the mean over the pairs that a row takes part in
            own = queries.where(sign[queries.code] != 0)
            part = local_search.scored(one, at, rows, own, 7, gradient=True)
            total += part.gradient / 3
    if strategy == "one_vs_one":
        np.testing.assert_allclose(score.gradient, total, rtol=1e-8, atol=1e-9)


@pytest.mark.parametrize(("symmetric", "counts"), [(True, [1, 2, 4, 1]), (False, [2, 3, 4, 2])])
def test_a_problem_is_solved_once_for_all_classes_that_have_it(symmetric, counts):
    code = np.array([[0, 0, 0], [3, 1, 3], [0, 1, 2], [2, 0, 0]])
    weight = np.array([[1.0, 1.0, 1.0]] * 3 + [[1.0, 0.0, 0.0]])
    signs, wanted = 2 * np.eye(5) - 1, np.ones((4, 5), dtype=bool)
    cases = Cases.distinct(wanted, signs, code, weight, symmetric=symmetric)
    assert np.bincount(cases.query).tolist() == counts
    for (query, problem), case, sign in zip(
        np.transpose(cases.asked), cases.case, cases.sign, strict=True
    ):
        there = weight[query] > 0
        assert cases.query[case] == query
        labels = (signs[number, code[query, there]] for number in (problem, cases.problem[case]))
        np.testing.assert_array_equal(next(labels), sign * next(labels))


@pytest.mark.parametrize("strategy", ["one_vs_rest", "one_vs_one"])
def test_many_classes_have_the_probabilities_of_exact_inference(strategy):
    X, y, new = table(90, classes=3)
    options = {"multi_class": strategy}
    exact = GPClassifier(kernel(), optimizer=None, **options).fit(X, y)
    near = fixed(len(X), **options).fit(X, y)
    assert np.allclose(near.predict_proba(new), exact.predict_proba(new), atol=1e-6)
    assert np.allclose(near.predict_proba(new).sum(axis=1), 1.0)
    few = fixed(7, **options).fit(X, y)
    p = few.predict_proba(new)
    assert np.allclose(p.sum(axis=1), 1.0)
    assert np.array_equal(few.predict(new), few.classes_[p.argmax(axis=1)])


def test_leave_one_out_predictions_are_those_of_fits_without_the_row():
    X, y, _ = table(40)
    model = fixed(9).fit(X, y)
    for row in (0, 7, 39):
        rest = np.arange(40) != row
        without = fixed(9).fit(X[rest], y[rest]).predict_proba(X[row : row + 1])
        assert np.allclose(model.loo_predict_proba_[row], without[0], atol=1e-8)
    own = model.loo_predict_proba_[np.arange(40), (y == "b").astype(int)]
    assert np.isclose(model.loo_log_score_, np.log(own).sum())


def test_weights_count_as_rows():
    X, y, new = table(60)
    weight = np.random.default_rng(2).integers(0, 3, 60)
    weighted = fixed(30).fit(X, y, sample_weight=weight)
    assert weighted.X_train_.shape[0] == (weight > 0).sum()
    truth = GPClassifier(kernel(), optimizer=None).fit(X, y, sample_weight=weight)
    most = fixed(int((weight > 0).sum())).fit(X, y, sample_weight=weight)
    assert np.allclose(most.predict_proba(new), truth.predict_proba(new), atol=1e-6)
    balanced = fixed(60, class_weight="balanced").fit(X, y)
    truth = GPClassifier(kernel(), optimizer=None, class_weight="balanced").fit(X, y)
    assert np.allclose(balanced.predict_proba(new), truth.predict_proba(new), atol=1e-6)


def random_problem(seed):
    """Rows with duplicates, constant columns, rare classes, odd scales; a kernel and options."""
    rng = np.random.default_rng(seed)
    n, d = int(rng.integers(8, 60)), int(rng.integers(1, 4))
    X = rng.normal(size=(n, d)) * 10.0 ** rng.integers(-3, 4)
    if seed % 3 == 0:
        X = X[rng.integers(0, max(2, n // 5), n)]  # many equal rows with both labels
    if seed % 4 == 0:
        X[:, 0] = 3.0
    y = rng.integers(0, 2 + seed % 2, n)
    y[:3] = [0, 1, seed % 2]
    if seed % 5 == 0:
        y[3:] = 0
    scale = np.maximum(X.std(axis=0), 1e-3) * 10 ** rng.uniform(-1, 2, d)
    shape = [RBF(scale), Matern(scale, nu=0.5), Matern(scale, nu=1.5)][seed % 3]
    variance = ConstantKernel(10 ** rng.uniform(-2, 5), (1e-9, 1e9))
    of_noise = WhiteKernel(10 ** rng.uniform(-8, 1), (1e-12, 1e3))
    options = {
        "kernel": variance * shape + of_noise,
        "likelihood": ["probit", "logit"][seed % 2],
        "inference": ["pl", "ep", "laplace", "cl"][(seed // 4) % 4],
        "multi_class": ["one_vs_rest", "one_vs_one"][seed % 2],
        "inducing": [None, 3, "auto"][seed % 3] if len(np.unique(X, axis=0)) > 3 else None,
    }
    return X, y, X[:5] + 0.1 * X.std(), int(rng.integers(2, n)), options


@pytest.mark.parametrize("block", range(10))
def test_random_small_problems_converge_or_are_flagged_whatever_the_batch_and_order(block, monkeypatch):
    for seed in range(20 * block, 20 * block + 20):
        X, y, new, k, options = random_problem(seed)
        order = np.random.default_rng(seed).permutation(len(X))
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            model = fixed(k, **options).fit(X, y)
            p = model.predict_proba(new)
            one = np.concatenate([model.predict_proba(row[None]) for row in new])
            threads = fixed(k, **options, n_jobs=2).fit(X, y).predict_proba(new)
            found = model._estimators[0].near.marginals(new)
        assert all(isinstance(warning.message, ConvergenceWarning) for warning in said)
        assert np.isfinite(p).all()
        assert np.isfinite(found.mean).all()
        assert found.converged.all() or said
        assert np.allclose(p.sum(axis=1), 1.0)
        if not found.converged.all():
            continue
        assert np.allclose(one, p, atol=1e-6)
        assert np.allclose(threads, p, atol=1e-10)
        distinct = len(np.unique(X, axis=0)) == len(X)
        if distinct and options["inducing"] is None:  # ties are broken by the order of rows
            with warnings.catch_warnings(action="ignore", category=ConvergenceWarning):
                other = fixed(k, **options).fit(X[order], y[order]).predict_proba(new)
            assert np.allclose(other, p, atol=1e-5)


@pytest.fixture(scope="module")
def learned():
    X, y, new = table(700)
    return X, y, new, GPClassifier(kernel(free=True), n_neighbors=16, random_state=0).fit(X, y)


def test_learning_raises_the_score_and_is_reproducible(learned):
    X, y, new, model = learned
    (_, first), *_ = model.evidence_path_
    assert max(score for _, score in model.evidence_path_) >= first
    again = clone(model).fit(X, y)
    assert np.array_equal(again.kernel_.theta, model.kernel_.theta)
    assert np.array_equal(again.predict_proba(new), model.predict_proba(new))
    assert "16 neighbours" in model.summary()
    assert model.n_neighbors_ == 16
    assert model.recall_ == 1.0
    assert list(model.relevance_.names) == ["x1", "x0"] or list(model.relevance_.names) == ["x0", "x1"]
    assert model.diagnostics_.n_evaluations == len(model.evidence_path_)


def test_a_killed_fit_continues_from_its_checkpoint_with_the_same_result(
    learned, tmp_path, monkeypatch
):
    X, y, new, model = learned
    path = tmp_path / "fit.checkpoint"
    calls = []

    def kill(evaluation):
        calls.append(evaluation)
        if len(calls) == 3:
            raise SystemExit

    resumed = clone(model).set_params(checkpoint=path, callback=kill)
    with pytest.raises(SystemExit):
        resumed.fit(X, y)
    evidence = local_training.Learner._of_evidence
    monkeypatch.setattr(local_training.Learner, "_of_evidence", None)  # its result is kept
    resumed.set_params(callback=None).fit(X, y)
    monkeypatch.setattr(local_training.Learner, "_of_evidence", evidence)
    assert np.array_equal(resumed.kernel_.theta, model.kernel_.theta)
    assert np.array_equal(resumed.predict_proba(new), model.predict_proba(new))
    with pytest.raises(CheckpointError, match="another fit"):
        clone(resumed).fit(X + 1.0, y)


def test_ctrl_c_keeps_what_was_learned(learned):
    X, y, _, model = learned

    def interrupt(evaluation):
        if evaluation.number >= 2:
            raise KeyboardInterrupt

    stopped = clone(model).set_params(callback=interrupt)
    with pytest.raises(KeyboardInterrupt):
        stopped.fit(X, y)
    with pytest.warns(ConvergenceWarning, match="interrupted: the hyperparameters are the best"):
        stopped.set_params(keep_on_interrupt=True).fit(X, y)
    assert stopped.predict_proba(X[:3]).shape == (3, 2)
    again = stopped.set_params(callback=None, warm_start=True).fit(X, y)
    assert again.converged_


def test_files_hold_the_rows_or_name_their_file(learned, tmp_path):
    X, y, new, model = learned
    path = tmp_path / "model.postlin"
    postlin.save(model, path)
    assert np.array_equal(postlin.load(path).predict_proba(new), model.predict_proba(new))
    copied = pickle.loads(pickle.dumps(model))
    assert np.array_equal(copied.predict_proba(new), model.predict_proba(new))
    assert copied.loo_log_score_ == model.loo_log_score_
    rows = np.repeat(X, 40, axis=0) + np.random.default_rng(0).normal(size=(28_000, 2)) * 1e-3
    np.save(tmp_path / "rows.npy", rows)
    mapped = np.load(tmp_path / "rows.npy", mmap_mode="r")
    both = fixed(8, inducing=9).fit(mapped, np.repeat(y, 40))
    postlin.save(both, path)
    assert path.stat().st_size < rows.nbytes
    assert np.array_equal(postlin.load(path).predict_proba(new), both.predict_proba(new))
    np.save(tmp_path / "rows.npy", rows + 1.0)
    with pytest.raises(ModelFileError, match="have changed since it was saved"):
        postlin.load(path)
    (tmp_path / "rows.npy").unlink()
    with pytest.raises(ModelFileError, match=r"rows\.npy"):
        postlin.load(path)


def test_streams_and_parquet_are_collected(tmp_path):
    X, y, new = table(90)
    truth = fixed(12).fit(X, y).predict_proba(new)

    def chunks():
        return ((X[i : i + 20], y[i : i + 20]) for i in range(0, 90, 20))

    assert np.array_equal(fixed(12).fit(postlin.stream(chunks)).predict_proba(new), truth)
    import pandas as pd

    frame = pd.DataFrame(X, columns=["one", "two"]).assign(label=y)
    frame.to_parquet(tmp_path / "rows.parquet")
    model = fixed(12).fit(postlin.parquet(tmp_path / "rows.parquet", target="label"))
    assert np.array_equal(
        model.predict_proba(frame[["one", "two"]][:0:-1])[::-1][0], truth_of(model, X[1])
    )


def truth_of(model, row):
    import pandas as pd

    return model.predict_proba(pd.DataFrame([row], columns=["one", "two"]))[0]


def test_the_default_kernel_is_the_best_of_three(monkeypatch):
    monkeypatch.setattr(local_training, "_ROUNDS", 1)
    monkeypatch.setattr(local_training, "_FIRST_ROUNDS", 1)
    monkeypatch.setattr(local_evidence, "_ROWS", 60)
    X, y, new = table(300)
    model = GPClassifier(n_neighbors="auto", inducing="auto", random_state=0).fit(X, y)
    kinds = {type(k.k1.k2).__name__ for k in local_kernels(X.std(axis=0))}
    assert type(model.kernel_.k1.k2).__name__ in kinds
    assert model.n_neighbors_ in local_training._CHOICES
    assert model.score(*table(300, seed=1)[:2]) > 0.8
    assert np.isfinite(model.predict_proba(new)).all()


BAD = {
    "k is 1": ({"n_neighbors": 1}, "n_neighbors must be 2 or more, 'auto' or None, got 1"),
    "k is a word": ({"n_neighbors": "some"}, "n_neighbors must be 2 or more"),
    "k is large": ({"n_neighbors": 121}, "more neighbours than there are rows, 120"),
    "no metric": ({"kernel": DotProduct()}, "neighbours need a kernel with one metric"),
    "periodic": ({"kernel": ExpSineSquared()}, "neighbours need a kernel with one metric"),
    "joint": ({"multi_class": "joint"}, "has no neighbours"),
    "sequential": ({"schedule": "sequential"}, "neighbours have the parallel schedule only"),
    "learned points": ({"learn_inducing": True, "inducing": 9}, "learn_inducing is for fits with"),
    "own kernels": ({"shared_kernel": False}, "all classes share one kernel"),
    "a word of points": ({"inducing": "many"}, "inducing must be None"),
    "other lengths": ({"kernel": RBF(np.ones(3))}, "3 length scales for 2 features"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_parameters_get_one_sentence(name):
    options, message = BAD[name]
    X, y, _ = table()
    options = {"optimizer": None, "kernel": kernel(), "n_neighbors": 9} | options
    with pytest.raises(ValueError, match=message):
        GPClassifier(**options).fit(X, y)


def test_bad_rows_are_named_and_odd_ones_are_right():
    X, y, new = table(400)
    X[333, 1] = np.nan

    def chunks():
        return ((X[i : i + 5], y[i : i + 5]) for i in range(0, 400, 5))

    with pytest.raises(ValueError, match=r"NaN.*(333|66)|(333|66).*NaN"):
        fixed(9).fit(postlin.stream(chunks))
    with pytest.raises(ValueError, match="NaN"):
        fixed(9).fit(X, y)
    with pytest.raises(ValueError, match=r"could not convert|string"):
        fixed(9).fit(np.array([["red"], ["blue"]] * 30), np.arange(60) % 2)
    equal = np.zeros((500, 2))  # more equal rows than neighbours, with both labels
    with pytest.warns(ConvergenceWarning, match="cannot tell the rows apart"):
        model = fixed(9).fit(equal, np.arange(500) % 2)
    assert np.isfinite(model.predict_proba(new)).all()
    split = np.concatenate([np.zeros((100, 2)), np.ones((100, 2))])
    sure = fixed(9).fit(split, np.arange(200) // 100)  # one class among all neighbours
    assert (sure.predict(split) == np.arange(200) // 100).all()
    with pytest.raises(AttributeError, match="a joint posterior"):
        sure.sample_latent(new)
    with pytest.raises(AttributeError, match="the evidence of all rows"):
        sure.log_marginal_likelihood(np.zeros(0))
    with pytest.raises(AttributeError, match="n_neighbors is None"):
        GPClassifier().fit(*table(20)[:2]).n_neighbors_  # noqa: B018


@pytest.mark.parametrize("optimizer", [None, "bfgs"])
@pytest.mark.parametrize("inducing", [None, 5])
def test_a_kernel_that_cannot_tell_the_rows_apart_is_named(optimizer, inducing):
    X, y, new = table(60)
    bounds = (1e-7, 1e-5) if optimizer else "fixed"
    short = 8.0 * RBF(1e-6, bounds) + WhiteKernel(0.1, "fixed")
    with pytest.warns(ConvergenceWarning, match="cannot tell the rows apart") as said:
        model = fixed(9, kernel=short, optimizer=optimizer, inducing=inducing).fit(X, y)
    assert len(said) == 1
    np.testing.assert_allclose(model.predict_proba(new), 0.5, atol=1e-6)
    assert "all new rows have nearly the same probability" in model.summary()


def test_rows_at_few_places_are_told_apart():
    X, *_ = table(6)
    places, codes = np.repeat(X, 30, axis=0), np.repeat(np.arange(6) % 2, 30)
    model = fixed(9).fit(places, codes)  # all neighbours of a row are equal to it; warnings are errors
    assert model.score(X, np.arange(6) % 2) == 1.0


def test_rows_that_are_overwritten_are_predicted_anew():
    X, y, new = table(60, classes=3)
    model = fixed(9).fit(X, y)
    before = model.predict_proba(new)
    new[:] = new[::-1].copy()
    np.testing.assert_allclose(model.predict_proba(new)[::-1], before, rtol=1e-9)


@pytest.mark.parametrize("inducing", [None, "auto", 1])
def test_three_rows_are_enough(inducing):
    X, _, new = table(3)
    model = GPClassifier(n_neighbors="auto", inducing=inducing, random_state=0)
    p = model.fit(X, ["a", "b", "a"]).predict_proba(new)
    assert np.isfinite(p).all()
    assert model.n_neighbors_ == 3


def test_equal_rows_of_a_table_that_is_sorted_by_its_labels_share_them():
    X = np.repeat([[0.0, 0.0], [2.0, 0.0]], 400, axis=0)
    y = np.repeat([0, 1, 0, 1], [200, 200, 100, 300])
    p = fixed(16).fit(X, y).predict_proba([[0.0, 0.0], [2.0, 0.0]])
    np.testing.assert_allclose(p[:, 1], [0.5, 0.75], atol=0.15)


def test_marginals_of_blocks_are_joined_in_order():
    part = LocalMarginals(np.zeros((2, 1)), np.ones((2, 1)), np.ones((2, 1), bool))
    joined = LocalMarginals.joined([part, part._replace(mean=np.ones((1, 1)))])
    assert joined.mean.ravel().tolist() == [0.0, 0.0, 1.0]


@pytest.mark.parametrize("gain", [1.0, -1.0])
def test_distant_labels_are_known_where_the_score_is_better_with_them(monkeypatch, gain):
    X, y, new = table()

    def scored(*arguments, **options):
        found = local_search.scored(*arguments, **options)
        better = gain * found.weight if options.get("total", 0) > arguments[4] else 0.0
        return found._replace(value=found.value + better)

    monkeypatch.setattr(local_training, "scored", scored)
    model = GPClassifier(kernel(free=True), n_neighbors=8, random_state=0).fit(X, y)
    near = model.base_estimator_.near
    assert (near.k, near.total) == (8, 32 if gain > 0 else 8)
    assert ("labels of 32 rows" in model.summary()) == (gain > 0)
    as_given = fixed(8, kernel=model.kernel_).fit(
        X, y
    )  # nothing is learned: closest to exact inference
    same = np.allclose(as_given.predict_proba(new), model.predict_proba(new), atol=1e-12)
    assert same == (gain > 0)
