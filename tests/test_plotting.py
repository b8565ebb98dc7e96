"""Pictures: that they show what the model says, work in given axes, and refuse in a sentence."""

import importlib
import inspect
import pkgutil
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
from sklearn.calibration import CalibrationDisplay, calibration_curve
from sklearn.datasets import load_iris, make_moons
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
from sklearn.inspection import DecisionBoundaryDisplay
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from postlin import GPClassifier, plotting
from postlin.likelihoods import NoisyThreshold
from postlin.plotting import (
    ConvergenceDisplay,
    DecisionDisplay,
    EvidenceDisplay,
    LeaveOneOutDisplay,
    RelevanceDisplay,
    ReliabilityDisplay,
    VerificationDisplay,
)
from postlin.plotting.common import COLOURS, MARKERS, Display, look

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")
plt = importlib.import_module("matplotlib.pyplot")

CHECKED = set()


def content_of(display):
    """Marks the test that compares what a display shows with what it is about."""

    def mark(test):
        CHECKED.add(display)
        return test

    return mark


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def moons():
    X, y = make_moons(60, noise=0.25, random_state=0)
    return X, np.array(["left", "right"])[y]


@pytest.fixture(scope="module")
def two(moons):
    return GPClassifier().fit(*moons)


@pytest.fixture(scope="module")
def iris():
    data = load_iris(as_frame=True)
    return data.data.iloc[::3], data.target_names[data.target][::3]


@pytest.fixture(scope="module")
def three(iris):
    return GPClassifier(optimizer=None).fit(iris[0].iloc[:, :2].to_numpy(), iris[1])


@pytest.fixture(scope="module")
def joint(iris):
    return GPClassifier(multi_class="joint").fit(iris[0].iloc[::2, :2].to_numpy(), iris[1][::2])


@pytest.fixture(scope="module")
def four_features(iris):
    X, y = iris
    kernel = ConstantKernel(10.0) * RBF([1.0, 2.0, 3.0, 4.0]) + WhiteKernel(0.1, "fixed")
    return GPClassifier(kernel, optimizer=None).fit(X, y)


#: A small picture of each kind.
EXAMPLES = {
    ConvergenceDisplay: lambda two, four, **k: ConvergenceDisplay.from_estimator(two, **k),
    DecisionDisplay: lambda two, four, **k: DecisionDisplay.from_estimator(
        two, grid_resolution=12, **k
    ),
    EvidenceDisplay: lambda two, four, **k: EvidenceDisplay.from_estimator(two, grid_resolution=3, **k),
    LeaveOneOutDisplay: lambda two, four, **k: LeaveOneOutDisplay.from_estimator(two, **k),
    RelevanceDisplay: lambda two, four, **k: RelevanceDisplay.from_estimator(four, **k),
    ReliabilityDisplay: lambda two, four, **k: ReliabilityDisplay.from_estimator(two, **k),
    VerificationDisplay: lambda two, four, **k: VerificationDisplay.from_estimator(
        two, n_particles=50, random_state=0, **k
    ),
}


def all_displays():
    """Every display class in the package, exported or not."""
    found = set()
    for module in pkgutil.iter_modules(plotting.__path__, "postlin.plotting."):
        for _, kind in inspect.getmembers(importlib.import_module(module.name), inspect.isclass):
            if issubclass(kind, Display) and kind is not Display:
                found.add(kind)
    return found


def test_every_display_is_exported_documented_and_tested():
    displays = all_displays()
    assert displays == {getattr(plotting, name) for name in plotting.__all__}
    assert displays == set(EXAMPLES)
    assert displays == CHECKED
    for display in displays:
        assert display.__doc__
        assert display.from_estimator.__doc__
        assert display.plot.__doc__


def whole(axes):
    """All axes below, wherever they are nested."""
    return [axes, *(inner for child in axes.child_axes for inner in whole(child))]


@pytest.mark.parametrize("display", EXAMPLES, ids=lambda d: d.__name__)
def test_draws_into_new_axes_and_into_given_ones(display, two, four_features):
    own = EXAMPLES[display](two, four_features)
    assert isinstance(own, display)
    assert own.plot() is own  # again, from the data that it keeps
    figure, (left, right) = plt.subplots(1, 2, figsize=(12, 5), layout="constrained")
    given = EXAMPLES[display](two, four_features, ax=left)
    assert given.figure_ is figure
    figure.draw_without_rendering()
    axes = np.ravel(given.ax_)
    assert display is DecisionDisplay or axes[0] is left
    assert not right.has_data()
    for ax in axes:
        assert ax.get_xlabel()
        assert ax.get_ylabel() or display is RelevanceDisplay
    for ax in (inner for a in axes for inner in whole(a)):
        assert ax.get_position().x1 <= right.get_position().x0


@pytest.mark.parametrize("display", EXAMPLES, ids=lambda d: d.__name__)
def test_texts_stay_within_the_figure_and_tick_labels_apart(display, two, four_features):
    figure = EXAMPLES[display](two, four_features).figure_
    figure.draw_without_rendering()
    frame = figure.bbox.padded(2)
    for ax in figure.axes:
        for axis in (ax.xaxis, ax.yaxis):
            low, high = sorted(axis.get_view_interval())
            labels = [t for t in axis.get_ticklabels() if t.get_text() and t.get_visible()]
            horizontal = axis is ax.xaxis
            inside = [t for t in labels if low <= t.get_position()[not horizontal] <= high]
            boxes = [t.get_window_extent() for t in inside]
            for box in boxes:
                assert frame.x0 <= box.x0 <= box.x1 <= frame.x1
            key = (lambda b: b.x0) if horizontal else (lambda b: b.y0)
            boxes.sort(key=key)
            for a, b in pairwise(boxes):
                assert a.x1 <= b.x0 if horizontal else a.y1 <= b.y0 + 1


@pytest.mark.parametrize("display", EXAMPLES, ids=lambda d: d.__name__)
def test_refuses_what_is_not_fitted_or_not_ours(display, moons):
    with pytest.raises(NotFittedError):
        display.from_estimator(GPClassifier())
    with pytest.raises(TypeError, match=r"^estimator must be a GPClassifier or a pipeline .*\.$"):
        display.from_estimator(LogisticRegression().fit(*make_moons(20, random_state=0)))


def one_sentence(error):
    text = str(error.value)
    return text.endswith(".") and ". " not in text and "\n" not in text


# Decision regions


@content_of(DecisionDisplay)
def test_decision_values_are_the_predictions(two, moons):
    display = DecisionDisplay.from_estimator(two, grid_resolution=15)
    i, j = 4, 11
    point = [[display.axis0[j], display.axis1[i]]]
    assert display.responses["probability"][i, j] == pytest.approx(two.predict_proba(point)[0])
    std = float(np.sqrt(two.latent_mean_and_variance(point).variance[0]))
    assert display.responses["latent_std"][i, j] == pytest.approx(std)
    # what is drawn: the filled contour at this point has levels around its value
    drawn = display.surfaces_["probability"]
    p = two.predict_proba(point)[0, 1]
    band = np.searchsorted(drawn.levels, p) - 1
    assert drawn.levels[band] <= p <= drawn.levels[band + 1]
    paths = drawn.get_paths()
    assert paths[band].contains_points(point).any()
    assert len(display.ax_) == 2
    assert [a.get_ylabel() for a in display.figure_.axes[2:]] == [
        "probability of right",
        "latent standard deviation",
    ]


def test_decision_points_are_the_training_rows_by_class(two, moons):
    X, y = moons
    display = DecisionDisplay.from_estimator(two, response="probability", grid_resolution=5)
    for points, label in zip(display.ax_.collections[-2:], two.classes_, strict=True):
        assert points.get_label() == label
        np.testing.assert_array_equal(points.get_offsets(), X[y == label])
    (x0, x1), (y0, y1) = display.ax_.get_xlim(), display.ax_.get_ylim()
    assert (x0 < X[:, 0].min(), x1 > X[:, 0].max()) == (True, True)
    assert (y0 < X[:, 1].min(), y1 > X[:, 1].max()) == (True, True)


def test_decision_many_classes_shades_the_winner(three):
    display = DecisionDisplay.from_estimator(three, grid_resolution=20)
    p = display.responses["probability"]
    i, j = 3, 16
    point = [[display.axis0[j], display.axis1[i]]]
    np.testing.assert_allclose(p[i, j], three.predict_proba(point)[0])
    image = np.asarray(display.surfaces_["probability"].get_array())
    assert image.shape == (20, 20, 3)
    # the surer, the less white; and the colour of the class, not of another
    sure = p.max(axis=2)
    for k in range(3):
        mine = p.argmax(axis=2) == k
        if mine.sum() > 2:
            order = np.argsort(sure[mine])
            whiteness = image[mine].sum(axis=1)[order]
            assert (np.diff(whiteness) <= 1e-12).all()


def test_decision_of_a_pipeline_is_in_its_own_units(iris):
    X, y = iris[0].iloc[:, 2:], iris[1]
    keep = y != "setosa"
    X, y = X[keep], y[keep]
    model = make_pipeline(StandardScaler(), GPClassifier(optimizer=None)).fit(X, y)
    display = DecisionDisplay.from_estimator(model, X, y, grid_resolution=6)
    assert display.ax_[0].get_xlabel() == "petal length (cm)"
    point = X.iloc[:1].copy()
    point.iloc[0] = display.axis0[2], display.axis1[3]
    assert display.responses["probability"][3, 2] == pytest.approx(model.predict_proba(point)[0])
    latent = model[-1].latent_mean_and_variance(model[:-1].transform(point))
    assert display.responses["latent_std"][3, 2] == pytest.approx(np.sqrt(latent.variance[0]))
    with pytest.raises(ValueError, match="give X and y") as error:
        DecisionDisplay.from_estimator(model)
    assert one_sentence(error)


def test_decision_with_unlabelled_rows_and_axes_for_each_panel(two, moons):
    _, axes = plt.subplots(1, 2)
    display = DecisionDisplay.from_estimator(two, moons[0][:7], grid_resolution=5, ax=axes)
    assert list(display.ax_) == list(axes)
    assert len(axes[0].collections[-1].get_offsets()) == 7


def test_decision_refusals(two, three, four_features):
    for model, options, words in (
        (four_features, {}, "shows two features and the estimator has 4"),
        (three, {"response": "latent_std"}, "latent_std is shown for two classes"),
        (two, {"response": "colour"}, "response must be 'probability' or 'latent_std'"),
        (two, {"ax": plt.figure().add_axes((0, 0, 1, 1))}, "ax must be 2 axes"),
    ):
        with pytest.raises(ValueError, match=words) as error:
            DecisionDisplay.from_estimator(model, **options)
        assert one_sentence(error)


def test_scikit_learns_own_displays_take_the_classifier(two, moons, three):
    X, y = moons
    boundary = DecisionBoundaryDisplay.from_estimator(
        two, X, response_method="predict_proba", grid_resolution=8
    )
    ours = DecisionDisplay.from_estimator(two, response="probability", grid_resolution=8)
    point = [[boundary.xx0[2, 3], boundary.xx1[2, 3]]]
    assert boundary.response[2, 3] == pytest.approx(two.predict_proba(point)[0, 1])
    assert ours.responses["probability"].shape == (8, 8, 2)
    DecisionBoundaryDisplay.from_estimator(three, three._all_rows(), grid_resolution=8)
    theirs = CalibrationDisplay.from_estimator(two, X, y, n_bins=5)
    mine = ReliabilityDisplay.from_estimator(two, X, y, n_bins=5)
    some = mine.count > 0
    np.testing.assert_allclose(theirs.prob_true, mine.frequency[some])
    np.testing.assert_allclose(theirs.prob_pred, mine.mean_probability[some])


# Convergence


@content_of(ConvergenceDisplay)
def test_convergence_shows_the_residuals_of_each_problem(two, three):
    display = ConvergenceDisplay.from_estimator(two)
    np.testing.assert_array_equal(display.lines_[0].get_ydata(), two.diagnostics_.residuals)
    assert display.ax_.get_yscale() == "log"
    assert any(set(line.get_ydata()) == {two.tol} for line in display.ax_.lines)
    display = ConvergenceDisplay.from_estimator(three)
    labels = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert labels == [d.fit.name for d in three.diagnostics_] + ["tolerance 1e-08"]
    for line, diagnostics in zip(display.lines_, three.diagnostics_, strict=True):
        assert list(line.get_ydata()) == diagnostics.residuals


def test_convergence_of_many_problems_has_a_short_legend():
    display = ConvergenceDisplay([np.array([1.0, 0.1, 0.0])] * 45, 1e-8, ["a"] * 45).plot()
    labels = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert labels == ["45 problems", "tolerance 1e-08"]
    assert np.all(display.lines_[0].get_ydata() > 0)


def test_convergence_marks_where_a_curve_leaves_the_axes():
    grows = [np.array([1.0, 1e3, 1e30, np.nan, np.inf]), np.array([1.0, 1e-9])]
    display = ConvergenceDisplay(grows, 1e-8, ["a", "b"]).plot()
    assert display.ax_.get_ylim() == display.limits
    assert 1e3 < display.limits[1] < 1e30
    assert np.isfinite(display.lines_[0].get_ydata()).all()
    marks = [
        line for line in display.ax_.lines if line.get_marker() == "^" and line.get_clip_on() is False
    ]
    assert [list(mark.get_xdata()) for mark in marks] == [[3]]


# Evidence


@content_of(EvidenceDisplay)
def test_evidence_surface_path_and_optimum(two):
    calls = []
    display = EvidenceDisplay.from_estimator(
        two, ("length_scale", 0), grid_resolution=4, progress=lambda *a: calls.append(a)
    )
    assert calls == [(k, 16) for k in range(1, 17)]
    for i, j in ((0, 0), (1, 3)):  # axis0 is the length scale, the second of theta
        theta = [display.axis1[i], display.axis0[j]]
        assert display.log_evidence[i, j] == pytest.approx(two.log_marginal_likelihood(theta))
    np.testing.assert_allclose(display.optimum, two.kernel_.theta[::-1])
    np.testing.assert_allclose(
        display.path_.get_xydata()[-1], np.exp(two.kernel_.theta[::-1]), rtol=1e-6
    )
    np.testing.assert_allclose(
        np.log(display.path_.get_xydata()[:, 0]), [t[1] for t, _ in two.evidence_path_]
    )
    assert (display.ax_.get_xlabel(), display.ax_.get_ylabel()) == ("length scale", "constant value")
    assert (display.ax_.get_xscale(), display.ax_.get_yscale()) == ("log", "log")
    assert display.best == two.log_marginal_likelihood_value_
    assert display.surface_.levels[-1] == pytest.approx(max(display.best, display.log_evidence.max()))
    low, high = np.exp(display.axis0[[0, -1]])
    assert low < np.exp(display.optimum[0]) < high


def test_evidence_with_levels_of_ones_own(two):
    display = EvidenceDisplay.from_estimator(two, grid_resolution=4)
    again = display.plot(levels=[-200, -50, -30], cmap="viridis")
    assert list(again.surface_.levels) == [-200, -50, -30]
    assert again.figure_.axes[1].get_ylabel() == "log evidence"


def test_evidence_over_the_rate_of_wrong_labels(moons):
    model = GPClassifier(likelihood=NoisyThreshold(0.05, (1e-3, 0.45)), optimizer=None).fit(*moons)
    limits = ((0.01, 0.3), (0.3, 3.0))
    display = EvidenceDisplay.from_estimator(
        model, ("epsilon", "length_scale"), grid_resolution=3, limits=limits
    )
    np.testing.assert_allclose(np.exp([display.axis0[[0, -1]], display.axis1[[0, -1]]]), limits)
    theta = np.array([model.kernel_.theta[0], display.axis1[2], display.axis0[1]])
    assert display.log_evidence[2, 1] == pytest.approx(model.log_marginal_likelihood(theta))


def test_evidence_without_a_search_and_with_inference_that_fails(moons):
    model = GPClassifier(optimizer=None, max_iter_predict=3)
    with pytest.warns(ConvergenceWarning, match="inference stopped"):
        model.fit(*moons)
    display = EvidenceDisplay.from_estimator(model, grid_resolution=3)
    assert not display.converged.all()
    labels = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert labels == ["inference not converged", "optimum"]


def test_evidence_of_a_grid_without_values_says_so():
    axis, nothing = np.arange(3.0), np.full((3, 3), np.nan)
    display = EvidenceDisplay(
        axis, axis, nothing, nothing == 0, np.empty((0, 2)), np.ones(2), -1.0, ["a", "b"]
    ).plot()
    assert display.ax_.texts[0].get_text().startswith("no contours")


def test_evidence_refusals(two, three):
    for model, parameters, words in (
        (three, (0, 1), "one evidence, and with 3 classes every problem has its own: fit with shared"),
        (two, (0, 2), "2 names no single free hyperparameter"),
        (two, ("scale", 0), r"'scale' names no .* \(0: k1__k1__constant_value, 1: "),
        (two, (1, "length_scale"), "two different ones"),
    ):
        with pytest.raises(ValueError, match=words) as error:
            EvidenceDisplay.from_estimator(model, parameters)
        assert one_sentence(error)


# Reliability


@content_of(ReliabilityDisplay)
def test_reliability_bins_against_scikit_learn(two, moons):
    display = ReliabilityDisplay.from_estimator(two)
    p, y = two.loo_predict_proba_[:, 1], moons[1] == "right"
    assert display.count.sum() == len(y)
    frequency, mean = calibration_curve(y, p, n_bins=10)
    some = display.count > 0
    np.testing.assert_allclose(display.frequency[some], frequency)
    np.testing.assert_allclose(display.mean_probability[some], mean)
    line = display.line_.lines[0]
    np.testing.assert_allclose(line.get_xydata(), np.c_[mean, frequency])
    heights = [bar.get_height() for bar in display.histogram_ax_.patches]
    np.testing.assert_array_equal(heights, np.histogram(p, np.linspace(0, 1, 11))[0])


def test_reliability_intervals_solve_wilsons_equation():
    outcome, p = np.repeat([1.0, 0.0, 1.0], [3, 7, 5]), np.repeat([0.25, 0.25, 0.95], [3, 7, 5])
    display = ReliabilityDisplay(outcome, p, np.linspace(0, 1, 11), "of 1")
    for k, n, f in ((2, 10, 0.3), (9, 5, 1.0)):
        assert (display.count[k], display.frequency[k]) == (n, pytest.approx(f))
        for end in (display.low[k], display.high[k]):  # where |f − q| is 1.96 standard deviations
            assert abs(f - end) == pytest.approx(1.959964 * np.sqrt(end * (1 - end) / n), abs=1e-6)
    assert np.isnan(display.low[0])


def test_reliability_of_many_classes_and_of_one_of_them(three, iris):
    X, y = three._all_rows(), iris[1]
    display = ReliabilityDisplay.from_estimator(three, X, y)
    np.testing.assert_allclose(display.outcome, three.predict(X) == y)
    np.testing.assert_allclose(display.probability, three.predict_proba(X).max(axis=1))
    display = ReliabilityDisplay.from_estimator(three, pos_label="virginica", n_bins=4)
    np.testing.assert_allclose(display.probability, three.loo_predict_proba_[:, 2])
    assert display.ax_.get_xlabel() == "predicted probability of virginica"


def test_reliability_of_several_predictions_in_the_same_axes():
    rng = np.random.default_rng(0)
    _, (ax, below) = plt.subplots(2, 1)
    for colour in ("red", "blue"):
        p = rng.random(50)
        display = ReliabilityDisplay(rng.random(50) < p, p, np.linspace(0, 1, 6), "of 1")
        display.plot(ax, intervals=False, histogram_ax=below, color=colour)
    diagonals = [line for line in ax.lines if line.get_label() == "as predicted"]
    assert len(diagonals) == 1
    assert display.histogram_ax_ is below
    np.testing.assert_array_equal(below.patches[1].get_data().values, display.count)
    np.testing.assert_allclose(
        display.line_.get_xydata(), np.c_[display.mean_probability, display.frequency]
    )
    sizes = ax.collections[1].get_sizes()
    assert np.argmax(sizes) == np.argmax(display.count)
    gaps = np.abs(display.mean_probability - display.frequency)
    assert display.calibration_error == pytest.approx(np.average(gaps, weights=display.count))


def test_reliability_refusals(two, moons):
    for data, options, words in (
        ((moons[0],), {}, "give X and y both"),
        ((), {"pos_label": "top"}, r"pos_label must be one of the classes \(left, right\), got 'top'"),
        ((), {"n_bins": 0}, "n_bins must be 1 or more"),
    ):
        with pytest.raises(ValueError, match=words) as error:
            ReliabilityDisplay.from_estimator(two, *data, **options)
        assert one_sentence(error)


# Leave one out


@content_of(LeaveOneOutDisplay)
def test_leave_one_out_is_sorted_coloured_and_numbered(moons):
    X, y = moons
    weight = np.ones(len(y))
    weight[[3, 10]] = 0.0  # rows keep the numbers that they had when passed
    model = GPClassifier(optimizer=None).fit(X, y, weight)
    display = LeaveOneOutDisplay.from_estimator(model, n_annotated=3)
    kept = np.flatnonzero(weight)
    own = model.loo_predict_proba_[np.arange(len(kept)), (y[kept] == "right").astype(int)]
    np.testing.assert_allclose(display.probability, own)
    shown = np.concatenate([np.asarray(points.get_offsets()) for points in display.points_])
    np.testing.assert_allclose(shown[np.argsort(shown[:, 0]), 1], np.sort(own))
    for points, label in zip(display.points_, model.classes_, strict=True):
        assert points.get_label() == label
        np.testing.assert_allclose(np.sort(points.get_offsets()[:, 1]), np.sort(own[y[kept] == label]))
    texts = [note.get_text() for note in display.annotations_]
    assert texts == [f"row {kept[i]}" for i in np.argsort(own)[:3]]


def test_leave_one_out_of_many_classes(three):
    display = LeaveOneOutDisplay.from_estimator(three, n_annotated=0)
    assert len(display.points_) == 3
    assert display.annotations_ == []
    assert any(line.get_label() == "chance, 0.33" for line in display.ax_.lines)


# Relevance


@content_of(RelevanceDisplay)
def test_relevance_bars_are_in_order(four_features, iris):
    display = RelevanceDisplay.from_estimator(four_features)
    found = four_features.relevance_
    np.testing.assert_allclose([bar.get_width() for bar in display.bars_], found.values)
    labels = [text.get_text() for text in display.ax_.get_yticklabels()]
    assert labels == found.names
    places = display.ax_.transData.transform([(0, bar.get_y()) for bar in display.bars_])[:, 1]
    assert (np.diff(places) < 0).all()  # the first at the top
    # independently: standard deviations over the length scales of the kernel
    np.testing.assert_allclose(
        sorted(found.values), sorted(np.std(iris[0].to_numpy(), axis=0) / [1, 2, 3, 4])
    )


def test_relevance_names_and_how_many(four_features):
    display = RelevanceDisplay.from_estimator(four_features, feature_names="abcd", max_features=2)
    assert display.names == ["abcd"[k] for k in four_features.relevance_.features[:2]]
    with pytest.raises(ValueError, match="must hold 4 names") as error:
        RelevanceDisplay.from_estimator(four_features, feature_names="ab")
    assert one_sentence(error)


def test_relevance_needs_length_scales(two):
    with pytest.raises(AttributeError, match="no length scale of its own for every feature"):
        RelevanceDisplay.from_estimator(two)


@pytest.mark.parametrize("shared", [True, False])
def test_relevance_of_all_classes_jointly(iris, shared):
    X, y = iris
    scales = np.array([1.0, 2.0, 3.0, 4.0])
    model = GPClassifier(
        10.0 * RBF(scales), multi_class="joint", shared_kernel=shared, optimizer=None
    ).fit(X, y)
    found = RelevanceDisplay.from_estimator(model)
    np.testing.assert_allclose(found.values, sorted(np.std(X.to_numpy(), axis=0) / scales)[::-1])


# All classes jointly, and many of them


def test_displays_of_all_classes_jointly(joint, iris):
    y = iris[1][::2]
    decision = DecisionDisplay.from_estimator(joint, grid_resolution=5)
    point = [[decision.axis0[3], decision.axis1[1]]]
    np.testing.assert_allclose(decision.responses["probability"][1, 3], joint.predict_proba(point)[0])
    convergence = ConvergenceDisplay.from_estimator(joint)
    assert list(convergence.lines_[0].get_ydata()) == joint.diagnostics_.residuals
    p = joint.loo_predict_proba_
    own = p[np.arange(len(y)), np.searchsorted(joint.classes_, y)]
    np.testing.assert_array_equal(LeaveOneOutDisplay.from_estimator(joint).probability, own)
    reliability = ReliabilityDisplay.from_estimator(joint)
    np.testing.assert_array_equal(reliability.outcome, joint.classes_[p.argmax(axis=1)] == y)
    one = ReliabilityDisplay.from_estimator(joint, pos_label="setosa")
    np.testing.assert_array_equal(one.probability, p[:, 0])
    with pytest.raises(ValueError, match="every problem or class has its own"):
        DecisionDisplay.from_estimator(joint, response="latent_std")


def test_evidence_of_all_classes_jointly(joint):
    display = EvidenceDisplay.from_estimator(joint, grid_resolution=3)
    theta = [display.axis0[2], display.axis1[1]]
    assert display.log_evidence[1, 2] == pytest.approx(joint.log_marginal_likelihood(theta))
    assert display.path.shape == (len(joint.evidence_path_), 2)
    assert display.figure_.axes[1].get_ylabel().startswith("log evidence below its maximum")


def test_evidence_of_a_kernel_of_each_class_says_which(iris):
    X, y = iris[0].iloc[::4, :2].to_numpy(), iris[1][::4]
    model = GPClassifier(multi_class="joint", shared_kernel=False, optimizer=None).fit(X, y)
    display = EvidenceDisplay.from_estimator(model, (2, 1), grid_resolution=2)
    labels = display.ax_.get_xlabel(), display.ax_.get_ylabel()
    assert labels == ("kernel 1: constant value", "kernel 0: length scale")


def test_evidence_of_a_shared_kernel_is_the_mean_over_problems(iris):
    X, y = iris[0].iloc[:, :2].to_numpy(), iris[1]
    model = GPClassifier(shared_kernel=True).fit(X, y)
    display = EvidenceDisplay.from_estimator(model, grid_resolution=3)
    theta = np.array([display.axis0[0], display.axis1[2]])
    each = [fit.log_marginal_likelihood(theta) for fit in model.base_estimator_.estimators_]
    assert display.log_evidence[2, 0] == pytest.approx(np.mean(each))
    assert display.figure_.axes[1].get_ylabel().startswith("mean log evidence below")


# Verification


@content_of(VerificationDisplay)
def test_verification_shows_what_verify_has_found(two, moons):
    found = two.verify(moons[0][:9], n_particles=200, random_state=0)
    display = VerificationDisplay.from_verification(found)
    points, _, (bars,) = display.points_[0]
    np.testing.assert_array_equal(points.get_xdata(), found.probabilities[:, 1])
    np.testing.assert_array_equal(points.get_ydata(), found.probability_differences[:, 1])
    heights = [np.ptp(segment[:, 1]) for segment in bars.get_segments()]
    # The ends of a bar are near its middle, which rounds the height.
    np.testing.assert_allclose(heights, 4.0 * found.probabilities_sd[:, 1], rtol=1e-7, atol=1e-15)
    np.testing.assert_array_equal(display.runs_.get_xdata(), [r.log_evidence for r in found.runs])
    assert display.fit_.get_xdata() == [found.fit_log_evidence]
    assert display.exact_[0].get_xdata() == [found.log_evidence]
    (interval,) = display.exact_[2][0].get_segments()
    assert np.ptp(interval[:, 0]) == pytest.approx(4.0 * found.log_evidence_sd)
    assert "exact probability of right" in display.ax_.get_xlabel()
    display.figure_.draw_without_rendering()
    title = display.evidence_ax_.get_title(loc="left")
    assert title.startswith("log evidence: −")
    assert display.evidence_ax_.get_tightbbox().y1 <= display.figure_.bbox.y1


def test_verification_of_many_classes_and_of_one_run(three, iris):
    rows = iris[0].iloc[:8, :2].to_numpy()
    display = VerificationDisplay.from_estimator(
        three, rows, n_particles=50, n_runs=1, random_state=0, markersize=5
    )
    assert len(display.points_) == 3
    assert all(container[0].get_markersize() == 5 for container in display.points_)
    assert not any(container[2] for container in display.points_)  # one run has no intervals
    names = [text.get_text() for text in display.ax_.get_legend().get_texts()]
    assert names == ["setosa", "versicolor", "virginica"]
    title = display.evidence_ax_.get_title(loc="left")
    assert title.startswith("mean log evidence")
    assert title.endswith("not to be trusted")


def test_verification_of_a_pipeline_transforms_the_rows(moons):
    X, y = moons
    model = make_pipeline(StandardScaler(), GPClassifier(optimizer=None)).fit(X, y)
    found = VerificationDisplay.from_estimator(model, X[:5], n_particles=50).verification
    np.testing.assert_array_equal(found.fit_probabilities, model.predict_proba(X[:5]))


def test_classes_look_different_from_each_other():
    looks = {look(k)[:2] for k in range(len(COLOURS) * len(MARKERS))}
    assert len(looks) == len(COLOURS) * len(MARKERS)


@pytest.mark.parametrize("display", [DecisionDisplay, LeaveOneOutDisplay])
@pytest.mark.parametrize("name", ["{}", "a class of some length, number {}", "class {}"])
def test_legends_of_many_classes_stay_within_the_figure_and_off_the_axes(display, name):
    rng = np.random.default_rng(0)
    codes = np.repeat(np.arange(12), 3)
    X = rng.normal(size=(12, 2))[codes] + 0.3 * rng.normal(size=(36, 2))
    y = np.array([name.format(k) for k in range(12)])[codes]
    options = {"grid_resolution": 5} if display is DecisionDisplay else {}
    found = display.from_estimator(GPClassifier(optimizer=None).fit(X, y), **options)
    found.figure_.draw_without_rendering()
    legend = found.ax_.get_legend().get_window_extent()
    frame, axes = found.figure_.bbox.padded(1), found.ax_.get_window_extent()
    assert frame.x0 <= legend.x0 <= legend.x1 <= frame.x1
    assert axes.y1 <= legend.y0 <= legend.y1 <= frame.y1
    assert axes.width > 0.5 * frame.width
    assert axes.height > 2.0 * found.figure_.dpi


def test_convergence_in_one_iteration_has_one_tick():
    display = ConvergenceDisplay([np.array([1e-9])], 1e-8, ["a"]).plot()
    assert list(display.ax_.get_xticks()) == [1]


# matplotlib


def test_without_matplotlib_one_sentence_says_what_to_install():
    code = (
        "import sys; sys.modules['matplotlib'] = None; import postlin.plotting as p\n"
        "try: p.RelevanceDisplay(['a'], [1.0]).plot()\n"
        "except ImportError as error: print(error)"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout == "plots need matplotlib: pip install matplotlib\n"


def test_import_of_the_package_brings_no_matplotlib():
    code = "import sys, postlin.plotting; print('matplotlib' in sys.modules)"
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout == "False\n"
