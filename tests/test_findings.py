"""What a fit can tell: leave-one-out, joint samples, diagnostics, summary, relevance."""

import shutil
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
from reference import dense_posterior
from scipy.special import ndtr
from sklearn.base import clone
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, DotProduct, Matern, WhiteKernel

from postlin import EP, ConvergenceWarning, GPClassifier
from postlin.likelihoods import NoisyThreshold
from postlin.rules import REGISTRY as RULES

PAPER = ConstantKernel(10.0) * RBF(1.0) + WhiteKernel(0.1, "fixed")
SMOOTH = ConstantKernel(10.0) * RBF(2.0)


@pytest.fixture(scope="module")
def crab(data):
    return data("crab", 60)


@pytest.fixture(scope="module")
def three(crab):
    """The same rows in three classes."""
    return crab.X, np.digitize(crab.X[:, 0] + 0.5 * crab.y, [-0.5, 0.5])


def refitted(model, X, y, rows):
    """The probability of the second class at each of ``rows``, from a fit without it."""
    found = []
    for i in rows:
        others = np.arange(len(y)) != i
        found.append(clone(model).fit(X[others], y[others]).predict_proba(X[i : i + 1])[0, 1])
    return np.array(found)


@pytest.mark.parametrize("likelihood", ["probit", "logit", NoisyThreshold(0.05)])
@pytest.mark.parametrize("inference", RULES)
@pytest.mark.parametrize("fold_noise", [False, True])
def test_leave_one_out_is_refitting(crab, likelihood, inference, fold_noise):
    if inference == "laplace" and isinstance(likelihood, NoisyThreshold) and not fold_noise:
        pytest.skip("Laplace needs a derivative")
    model = GPClassifier(
        PAPER, likelihood=likelihood, inference=inference, fold_noise=fold_noise, optimizer=None
    ).fit(crab.X, crab.y)
    loo = model.loo_predict_proba_
    np.testing.assert_allclose(loo.sum(axis=1), 1.0, atol=1e-12)
    rows = np.arange(0, 60, 2)
    assert np.abs(loo[rows, 1] - refitted(model, crab.X, crab.y, rows)).max() < 0.01


@pytest.mark.slow
@pytest.mark.parametrize("name", ["crab", "thyroid"])
@pytest.mark.parametrize("inference", ["pl", "cl", "ep"])
@pytest.mark.parametrize("likelihood", ["probit", "noisy_threshold"])
def test_leave_one_out_is_refitting_on_whole_data(data, name, inference, likelihood):
    """All rows, at hyperparameters learned from all of them."""
    X, y = data(name).X, data(name).y
    learned = GPClassifier(inference=inference, likelihood=likelihood).fit(X, y)
    model = GPClassifier(
        learned.kernel_, inference=inference, likelihood=likelihood, optimizer=None
    ).fit(X, y)
    direct = refitted(model, X, y, np.arange(len(y)))
    assert np.abs(learned.loo_predict_proba_[:, 1] - direct).max() < 0.01
    own = np.where(y > 0, direct, 1 - direct)
    assert learned.loo_log_score_ == pytest.approx(np.log(own).sum(), abs=0.02 * len(y) ** 0.5)


def test_the_leave_one_out_score_is_a_sum_of_logarithms(crab):
    w = np.random.default_rng(0).uniform(0, 2, size=60)
    w[::7] = 0
    model = GPClassifier(PAPER, optimizer=None).fit(crab.X, crab.y, sample_weight=w)
    kept = np.flatnonzero(w)
    p = model.loo_predict_proba_
    assert p.shape == (len(kept), 2)
    own = p[np.arange(len(kept)), (crab.y[kept] > 0).astype(int)]
    assert model.loo_log_score_ == pytest.approx(w[kept] @ np.log(own))


SAMPLED = {
    "smooth": {"kernel": SMOOTH},
    "white noise": {"kernel": PAPER},
    "noise folded": {"kernel": PAPER, "fold_noise": True},
    "EP": {"kernel": PAPER, "inference": "ep"},
    "negative sites": {"kernel": SMOOTH + WhiteKernel(1.0), "inference": "ep"},
}


@pytest.mark.parametrize("name", SAMPLED)
def test_joint_samples_have_the_posterior_covariance(crab, name):
    options = SAMPLED[name]
    likelihood = NoisyThreshold(0.1) if name == "negative sites" else "probit"
    y = crab.y[:50].copy()
    if name == "negative sites":
        y[:6] *= -1
    model = GPClassifier(likelihood=likelihood, optimizer=None, **options).fit(crab.X[:50], y)
    tau, nu = model.approximation_.sites
    assert (tau.min() < 0) == (name == "negative sites")

    X = crab.X[44:58]  # rows that were learned from, and others
    kernel = model.kernel_ if name != "noise folded" else model.kernel_.k1
    both = np.vstack([crab.X[:50], X])
    prior = kernel(both)
    prior[:50, 50:] = kernel(crab.X[:50], X)  # white noise is each row's own, even of the same place
    prior[50:, :50] = prior[:50, 50:].T
    mean, covariance = dense_posterior(prior, 0.0, np.r_[tau, 0 * X[:, 0]], np.r_[nu, 0 * X[:, 0]])
    mean, covariance = mean[50:], covariance[50:, 50:]

    n = 20_000
    draws = model.sample_latent(X, n, random_state=0)
    assert draws.shape == (14, n)
    spread = np.sqrt(np.diag(covariance))
    assert (np.abs(draws.mean(axis=1) - mean) < 5 * spread / np.sqrt(n)).all()
    error = np.sqrt((np.outer(spread, spread) ** 2 + covariance**2) / n)
    assert (np.abs(np.cov(draws) - covariance) < 5 * error).all()
    marginals = model.latent_mean_and_variance(X)
    np.testing.assert_allclose(marginals.mean, mean, atol=1e-7)
    np.testing.assert_allclose(marginals.variance, np.diag(covariance), rtol=1e-6, atol=1e-7)


def test_samples_are_reproducible_and_of_every_problem(crab, three):
    model = GPClassifier(PAPER, optimizer=None).fit(crab.X, crab.y)
    one, again = (model.sample_latent(crab.X[:5], 4, random_state=3) for _ in range(2))
    np.testing.assert_array_equal(one, again)
    assert model.sample_latent(crab.X[:5]).shape == (5, 1)
    same = np.repeat(crab.X[:1], 2, axis=0)  # without noise, one value in one place
    smooth = GPClassifier(SMOOTH, optimizer=None).fit(crab.X, crab.y).sample_latent(same, 9)
    np.testing.assert_allclose(smooth[0], smooth[1], atol=1e-5)
    many = GPClassifier(PAPER, optimizer=None).fit(*three)
    draws = many.sample_latent(crab.X[:5], 3000, random_state=0)
    mean, variance = many.latent_mean_and_variance(crab.X[:5])
    assert (np.abs(draws.mean(axis=2) - mean) < 5 * np.sqrt(variance / 3000)).all()


def test_diagnostics_of_two_classes(crab):
    model = GPClassifier(PAPER).fit(crab.X, crab.y)
    found = model.diagnostics_
    assert found.converged
    assert found.residuals[-1] < 1e-8
    assert found.n_evaluations == len(model.evidence_path_)
    assert found.n_factorisations >= 1
    assert found.spectral_radius == pytest.approx(model.approximation_.spectral_radius())
    assert found.spectral_radius > 0
    assert "converged" in repr(found)

    # the cavity by the textbook: the posterior with a site taken away
    K, (tau, nu) = model.kernel_(crab.X), model.approximation_.sites
    mean, covariance = dense_posterior(K, 0.0, tau, nu)
    precision = 1 / np.diag(covariance) - tau
    shift = mean / np.diag(covariance) - nu
    own = ndtr(crab.y * (shift / precision) / np.sqrt(1 + 1 / precision))
    np.testing.assert_allclose(found.loo_probability, own, atol=1e-6)
    hard = found.hard_rows(60)
    assert [row.row for row in hard] == list(np.argsort(own, kind="stable"))
    for row in hard:
        assert row.loo_probability == pytest.approx(own[row.row], abs=1e-6)
        assert row.site_precision == pytest.approx(tau[row.row])
        assert row.pull == pytest.approx(abs(nu[row.row] - tau[row.row] * mean[row.row]), abs=1e-6)
    strongest = found.hard_rows(3, by="site_precision")
    assert [row.row for row in strongest] == list(np.argsort(-tau)[:3])
    assert found.hard_rows(1, by="pull")[0].pull == max(row.pull for row in hard)
    with pytest.raises(
        ValueError, match="by must be one of 'loo_probability', 'site_precision', 'pull'"
    ):
        found.hard_rows(by="beauty")


@pytest.mark.parametrize("kind", ["one_vs_rest", "one_vs_one"])
def test_hard_rows_are_rows_as_passed_to_fit(three, kind):
    """With rows that do not count before and between them, and problems that see some rows only."""
    X, y = three[0], three[1].copy()
    wrong = 41
    y[wrong] = {0: 2, 1: 0, 2: 0}[y[wrong]]
    w = np.ones(len(y))
    w[[0, 1, 5, 17, 30]] = 0
    kernel = ConstantKernel(30.0) * RBF(3.0) + WhiteKernel(0.1)
    model = GPClassifier(kernel, multi_class=kind, optimizer=None).fit(X, y, sample_weight=w)
    assert len(model.diagnostics_) == 3
    for diagnostics in model.diagnostics_:
        rows = [row.row for row in diagnostics.hard_rows(100)]
        assert not set(rows) & {0, 1, 5, 17, 30}
        taking_part = np.flatnonzero(w > 0)
        if kind == "one_vs_one":
            names = diagnostics.fit.name.split(" against ")
            taking_part = np.flatnonzero((w > 0) & np.isin(y.astype(str), names))
        assert sorted(rows) == list(taking_part)
        if wrong in rows:
            own = diagnostics.fit.y_train_[list(diagnostics.kept[diagnostics.fit.rows]).index(wrong)]
            assert own == (1 if diagnostics.fit.name.startswith(str(y[wrong])) else -1)
    assert any(wrong in [row.row for row in d.hard_rows(3)] for d in model.diagnostics_)


def test_summary_of_two_classes(crab):
    y = np.where(crab.y > 0, "female", "male")
    model = GPClassifier(PAPER, likelihood=NoisyThreshold(0.05, (1e-4, 0.3)), inference="ep")
    text = model.fit(crab.X, y).summary()
    wrong = np.mean(model.classes_[model.loo_predict_proba_.argmax(axis=1)] != y)
    for part in (
        "GPClassifier",
        "60 rows, 2 classes (female, male)",
        "ep, noisy threshold, parallel",
        f"{model.log_marginal_likelihood_value_:.4f}",
        f"{model.loo_log_score_:.4f}",
        f"{wrong:.4f}",
        "converged",
        str(model.kernel_),
        f"epsilon = {model.likelihood_.epsilon:.3g}",
        "hardest rows",
        f"row {model.diagnostics_.hard_rows(1)[0].row}: ",
    ):
        assert part in text, part


@pytest.mark.parametrize(("kind", "problems"), [("one_vs_rest", 3), ("one_vs_one", 3)])
def test_summary_of_many_classes(three, kind, problems):
    model = GPClassifier(PAPER, multi_class=kind, optimizer=None).fit(*three)
    text = model.summary()
    assert "60 rows, 3 classes (0, 1, 2)" in text
    assert f"{kind.replace('_', ' ')}, {problems} problems" in text
    assert f"{model.log_marginal_likelihood_value_:.4f}" in text
    for fit in model.base_estimator_.estimators_:
        assert fit.name in text
        assert f"{fit.log_marginal_likelihood_value_:.4f}" in text


def test_summary_says_what_did_not_converge_and_leaves_out_what_is_too_much(crab):
    with pytest.warns(ConvergenceWarning, match="residual"):
        model = GPClassifier(PAPER, optimizer=None, max_iter_predict=1).fit(crab.X, crab.y)
    assert "NOT CONVERGED" in model.summary()
    labels = np.arange(60) % 6
    model = GPClassifier(PAPER, multi_class="one_vs_one", optimizer=None).fit(crab.X, labels)
    assert "and 3 problems more" in model.summary()
    assert "and 3 problems more" in model._repr_html_()


class WellFormed(HTMLParser):
    """Complains of tags that are not closed in turn; collects text and tags."""

    VOID = frozenset({"br", "hr", "img", "input", "link", "meta"})

    def __init__(self, text):
        super().__init__()
        self.open, self.seen, self.text = [], [], ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        if tag not in self.VOID:
            assert self.open.pop() == tag

    def handle_data(self, data):
        self.text += data


def shown_in_notebooks(model):
    return model._repr_mimebundle_()["text/html"]


def test_html_of_an_estimator_that_is_not_fitted():
    page = WellFormed(shown_in_notebooks(GPClassifier(PAPER)))
    assert "GPClassifier" in page.text
    assert "log evidence" not in page.text


@pytest.mark.parametrize("classes", [2, 3])
def test_html_of_a_fit(crab, three, classes):
    """Names are text, whatever they look like."""
    codes = (crab.y > 0).astype(int) if classes == 2 else three[1]
    y = np.array(["<b>", "a & b", '"</table><script>alert(1)</script>'])[codes]
    html = shown_in_notebooks(GPClassifier(PAPER, optimizer=None).fit(crab.X, y))
    WellFormed(html)
    diagram, tables = html.split('<div class="postlin-summary">')
    page = WellFormed('<div class="postlin-summary">' + tables)
    assert set(page.seen) <= {"div", "table", "caption", "tr", "th", "td"}
    assert page.seen.count("table") == (3 if classes == 2 else 2)
    for part in ("<b>", "a & b", "leave-one-out log score", "log evidence", "Hyperparameters"):
        assert part in page.text
    assert ("Hardest rows" in page.text) == (classes == 2)
    assert "<script>alert" not in diagram


@pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium")
def test_html_of_a_fit_is_drawn(crab, tmp_path):
    sync_api = pytest.importorskip("playwright.sync_api")
    html = shown_in_notebooks(GPClassifier(PAPER, optimizer=None).fit(crab.X, crab.y))
    with sync_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=["--no-sandbox"]
        )
        page = browser.new_page()
        complaints = []
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.set_content(f"<!doctype html><html><body>{html}</body></html>")
        box = page.locator(".postlin-summary").bounding_box()
        tables = page.locator(".postlin-summary table").count()
        (tmp_path / "summary.png").write_bytes(page.screenshot(full_page=True))
        browser.close()
    assert complaints == []
    assert tables == 3
    assert box["height"] > 100


@pytest.fixture(scope="module")
def sparse():
    """Six features, of which the second and the fifth matter."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(120, 6))
    return X, np.where(X[:, 1] + np.sin(2 * X[:, 4]) + 0.2 * rng.standard_normal(120) > 0, "yes", "no")


ARD = ConstantKernel(10.0, (1e-2, 1e4)) * RBF(np.ones(6), (1e-2, 1e4)) + WhiteKernel(0.1, "fixed")


@pytest.mark.filterwarnings("ignore:.*bound of")  # features without use have no length scale
def test_relevance_is_learned(sparse):
    X, y = sparse
    found = GPClassifier(ARD).fit(pd.DataFrame(X, columns=list("abcdef")), y).relevance_
    assert set(found.names[:2]) == {"b", "e"}
    assert set(found.features[:2]) == {1, 4}
    assert found.values[1] > 1.5 * found.values[2]
    assert (np.diff(found.values) <= 0).all()
    assert sorted(found.features) == list(range(6))


def test_relevance_is_the_spread_in_length_scales(sparse):
    X, y = sparse
    scales = np.array([3.0, 0.5, 9.0, 1.0, 0.7, 2.0])
    unit = np.array([1.0, 100.0, 1.0, 0.01, 1.0, 1.0])
    kernel = 2.0 * RBF(scales) + WhiteKernel(0.1)
    found = GPClassifier(kernel, optimizer=None).fit(X, y).relevance_
    expected = X.std(axis=0) / scales
    np.testing.assert_allclose(found.values, np.sort(expected)[::-1])
    assert list(found.features) == list(np.argsort(-expected))
    assert found.names == [f"x{k}" for k in found.features]
    rescaled = GPClassifier(2.0 * RBF(scales * unit) + WhiteKernel(0.1), optimizer=None)
    other = rescaled.fit(X * unit, y).relevance_
    np.testing.assert_allclose(other.values, found.values)
    np.testing.assert_array_equal(other.features, found.features)


@pytest.mark.parametrize("kind", ["one_vs_rest", "one_vs_one"])
def test_relevance_of_many_classes_is_the_mean(sparse, kind):
    X, y = sparse[0], np.digitize(sparse[0][:, 1], [-0.5, 0.5])
    model = GPClassifier(2.0 * RBF(np.ones(6)), multi_class=kind, optimizer=None).fit(X, y)
    for k, fit in enumerate(model.base_estimator_.estimators_):
        fit.kernel_.k2.length_scale = np.arange(1.0, 7.0) + k
    expected = X.std(axis=0) * np.mean([1 / (np.arange(1.0, 7.0) + k) for k in range(3)], axis=0)
    np.testing.assert_allclose(model.relevance_.values, np.sort(expected)[::-1])


@pytest.mark.parametrize("kernel", [2.0 * RBF(1.0), 2.0 * Matern(1.0), DotProduct() + WhiteKernel()])
def test_no_relevance_without_length_scales_of_their_own(sparse, kernel):
    model = GPClassifier(kernel, optimizer=None).fit(*sparse)
    assert not hasattr(model, "relevance_")
    with pytest.raises(
        AttributeError, match="has no length scale of its own for every feature"
    ) as error:
        model.relevance_  # noqa: B018
    assert str(error.value).count(". ") == 0
    assert "\n" not in str(error.value)


def test_findings_need_a_fit():
    for name in ("loo_predict_proba_", "loo_log_score_", "diagnostics_", "relevance_"):
        assert not hasattr(GPClassifier(), name), name
    for method in ("summary", "sample_latent", "latent_mean_and_variance"):
        with pytest.raises(Exception, match="not fitted"):
            getattr(GPClassifier(), method)(*([] if method == "summary" else [[[0.0]]]))


def test_policies_of_ep_have_findings_too(crab):
    model = GPClassifier(PAPER, inference=EP("keep"), likelihood="noisy_threshold", optimizer=None)
    model.fit(crab.X, crab.y)
    assert np.isfinite(model.loo_log_score_)
    assert np.isfinite(model.diagnostics_.spectral_radius)


@pytest.mark.parametrize("shared", [True, False])
def test_the_summary_of_all_classes_at_a_time_shows_every_kernel(three, shared):
    X, y = three
    kernel = 1.0 * RBF(1.5)
    model = GPClassifier(kernel, multi_class="joint", shared_kernel=shared, optimizer=None)
    text = model.fit(X, y).summary()
    assert "pl, softmax, parallel, all classes jointly" in text
    assert text.count("RBF(length_scale=1.5)") == (1 if shared else 3)
    assert "CompoundKernel" not in text
    line = f"{model.classes_[1]}: 1**2 * RBF(length_scale=1.5)\n"
    assert (line in text, line in model._repr_html_()) == (not shared, not shared)
    assert "hardest rows" in text
