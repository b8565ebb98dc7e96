"""The HTML report: text is escaped, figures are sound for any data, browsers have no complaints."""

import re
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import matplotlib
import numpy as np
import pytest
from sklearn.metrics import average_precision_score

from postlin.plotting import EvidenceDisplay
from postlin.workbench.evaluation.comparison import Interval
from postlin.workbench.evaluation.explanation import Dependence, Explanation, Plane
from postlin.workbench.report.drawing import apart
from postlin.workbench.report.features import decision_map, dependence, importance
from postlin.workbench.report.inference import (
    convergence,
    evidence_surface,
    evidence_traces,
    synthetic,
)
from postlin.workbench.report.page import Answer, Figure, Section, Table, render
from postlin.workbench.report.predictions import (
    comparison,
    confusion_matrix,
    edges_that_hold,
    precision_recall,
    reliability,
    roc,
)

CHROMIUM = Path("/usr/bin/chromium")
ARGUMENTS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
HOSTILE = "</text></svg><script>alert(1)</script> id=\"x\" 'q' & $a_b^{c$ #333333 \x00\x1b\ud800 名"
NAMESPACES = ("http://www.w3.org/2000/svg",)


def predictions(n=300, seed=0):
    rng = np.random.default_rng(seed)
    p = rng.beta(0.6, 0.6, n)
    return (rng.random(n) < p).astype(float), p


def example_roc():
    return roc({"PPL": predictions(), "PEP": predictions(seed=1)}, "cats", "dogs")


def example_precision():
    return precision_recall({"PPL": predictions(), "PEP": predictions(seed=1)}, "cats")


def example_reliability(name="PPL", event="of cats"):
    return reliability(*predictions(), name, event)


def example_comparison(name="PEP"):
    excess = {name: Interval(0.01, -0.02, 0.04), "far": Interval(2.0, 1.0, 3.0)}
    return comparison(excess | {"near": Interval(0.02, 0.01, 0.03)}, "PPL")


def example_importance(name="width"):
    values = np.array([0.3, -0.01])
    return importance(Explanation([name, "height"], values, np.abs(values) / 5, 90, [], None), "PPL")


def example_dependence(name="width", classes=("cat", "dog", "cow"), about=None):
    p = np.tile(np.linspace(0.1, 0.4, 5), (len(classes), 1))
    numbers = Dependence(name, [1.0, 2.0, 3.0, 4.0, 5.0], True, p)
    levels = Dependence("colour", ["red", "green", name, "blue", "none"], False, p)
    zeros = np.zeros(2)
    found = Explanation([name, "colour"], zeros, zeros, 90, [numbers, levels, numbers], None)
    return dependence(found, classes, "PPL", about)


def example_map(name="width", classes=("cat", "dog"), about=1):
    rng = np.random.default_rng(0)
    axis = np.linspace(0, 1, 8)
    p = np.stack(np.broadcast_arrays(axis, 1 - axis[:, None]), axis=-1)
    plane = Plane(axis, axis, p / p.sum(axis=-1, keepdims=True).clip(1e-9))
    rows, codes = rng.random((20, 2)), rng.integers(0, 2, 20)
    if about == 0:
        plane, codes = plane._replace(probability=plane.probability[..., ::-1]), 1 - codes
    return decision_map(plane, rows, codes, classes, [name, "height"], "PPL", about)


def example_traces():
    return evidence_traces({"PPL": [-120.5, -300, -90, -80.25], "PEP": [-118, -85]})


def example_convergence():
    grows, shrinks = list(10.0 ** np.arange(51)), list(10.0 ** -np.arange(10))
    panels = {"PPL": {"plain iteration": grows, "postlin": shrinks}, "PEP": {"postlin": shrinks[:4]}}
    return convergence(panels, 1e-8)


def surface_of(columns, rows, values, path, title):
    """A figure of evidences over the length scale, across, and the variance, down."""
    names, optimum = ("length_scale", "variance"), np.zeros(2)
    display = EvidenceDisplay(columns, rows, values, np.isfinite(values), path, optimum, -1e99, names)
    return evidence_surface(display.plot, title)


def example_surface(title="Ionosphere"):
    rows, columns = np.linspace(-2, 8, 16), np.linspace(-1, 4, 13)
    values = -50 - (rows[:, None] - 2) ** 2 - 5 * (columns - 1.5) ** 2
    return surface_of(columns, rows, values, np.array([[0, 0], [1, 2], [1.5, 3]]), title)


def example_synthetic():
    axis1, axis2 = np.linspace(-4, 6, 60), np.linspace(-7, 3, 50)
    density = np.exp(-0.5 * (axis1[:, None] ** 2 + (axis2 + 1) ** 2))
    path = np.array([[1.0, -2.0], [0.5, -1.5]])
    return synthetic(axis1, axis2, density, np.array([0.25, -1.0]), np.eye(2), path)


def example_matrix():
    counts = np.array([[20, 3, 0], [1, 30, 0], [0, 7, 0]])
    return confusion_matrix(counts, ("a", "b", "a rather long name of a class"), "PPL")


EXAMPLES = {
    "matrix": example_matrix,
    "reliability": example_reliability,
    "precision": example_precision,
    "comparison": example_comparison,
    "importance": example_importance,
    "dependence": example_dependence,
    "map": example_map,
    "roc": example_roc,
    "traces": example_traces,
    "convergence": example_convergence,
    "surface": example_surface,
    "synthetic": example_synthetic,
}


ANSWERS = [Answer(f"Which, {k}?", "This one", ["Because of that."] * k) for k in range(4)]


@pytest.fixture(scope="module")
def page():
    figures = [make() for make in EXAMPLES.values()]
    names = ["method"] + [f"a rather long heading {j}" for j in range(8)]
    wide = Table(names, [["PPL", *["0.123 ± 0.004"] * 8]] * 3, "Wide.", frozenset({(0, 3)}))
    sections = [
        # The last figure twice: its ids must differ all the same.
        Section("First", ["A paragraph."], [*ANSWERS, wide, *figures, figures[-1]]),
        Section("Second", [], [Table(["a", "b"], [["c", "1"]], "Small.")]),
    ]
    return render("A report", "Its lead.", sections, "Its foot.")


class Tags(HTMLParser):
    """All tags and attributes of a page."""

    def __init__(self, text):
        super().__init__()
        self.tags = []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))

    def of(self, tag):
        return [attrs for name, attrs in self.tags if name == tag]


def soundly(figure):
    """The figure, after a look at its parts."""
    assert ET.fromstring(figure.svg).tag == "{http://www.w3.org/2000/svg}svg"
    assert figure.alt
    assert figure.caption
    assert "nan" not in figure.svg
    ET.fromstring(re.search("<svg.*</svg>", render("t", "", [Section("s", [], [figure])], ""), re.S)[0])
    return figure


@pytest.mark.parametrize("name", EXAMPLES)
def test_figures_are_sound_and_the_same_at_every_run(name):
    before = dict(matplotlib.rcParams)
    figure = soundly(EXAMPLES[name]())
    assert figure == EXAMPLES[name]()
    assert "currentColor" in figure.svg
    assert "<style" not in figure.svg
    assert dict(matplotlib.rcParams) == before


def test_figures_do_not_depend_on_the_settings_of_the_user():
    usual = example_roc()
    with matplotlib.rc_context({"font.size": 30, "axes.grid": False, "lines.linewidth": 9}):
        assert example_roc() == usual


def test_ids_are_unique_and_references_lead_somewhere(page):
    tags = Tags(page).tags
    ids = [attrs["id"] for _, attrs in tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    values = " ".join(str(v) for _, attrs in tags for v in attrs.values())
    links = {attrs["href"] for _, attrs in tags if "href" in attrs}
    assert set(re.findall(r"url\(#([^)]+)\)", values)) | {link[1:] for link in links} <= set(ids)
    assert {v for _, a in tags for v in (a.get("aria-labelledby"),) if v} <= set(ids)


def test_the_page_speaks_of_no_other_host_and_runs_nothing(page):
    assert set(re.findall(r"https?://[^\"'\s<>]+", page)) <= set(NAMESPACES)
    tags = Tags(page)
    assert not {"script", "link", "img", "iframe", "image", "object"} & {tag for tag, _ in tags.tags}
    assert "@import" not in page
    assert "default-src 'none'" in page


def test_the_page_has_language_viewport_title_and_named_images(page):
    tags = Tags(page)
    assert tags.of("html")[0]["lang"]
    assert any(attrs.get("name") == "viewport" for attrs in tags.of("meta"))
    assert "<title>A report</title>" in page
    assert "<footer><p>Its foot.</p></footer>" in page
    images = tags.of("svg")
    assert len(images) == len(EXAMPLES) + 1
    assert all(image["role"] == "img" and image["aria-label"] for image in images)
    assert all(figure["role"] and figure["aria-labelledby"] for figure in tags.of("figure"))
    assert len(tags.of("dt")) == len(ANSWERS)
    assert [a["href"] for a in tags.of("a")] == ["#section-1", "#section-2"]


def test_tables_mark_cells_and_align_numbers():
    table = Table(["a", "b", "c"], [["x", "y", "1"], ["z", "w", "2"]], "C.", frozenset({(1, 2)}), 2)
    text = render("t", "l", [Section("s", [], [table])], "")
    assert '<tr><th scope="row">x</th><td>y</td><td class="number">1</td></tr>' in text
    assert '<td class="number"><strong>2</strong></td>' in text
    assert '<th scope="col" class="number">c</th>' in text
    assert "<nav" not in text


def test_hostile_text_stays_text():
    y, p = predictions(30)
    items = [
        Table([HOSTILE, "n"], [[HOSTILE, HOSTILE]], HOSTILE),
        Answer(HOSTILE, HOSTILE, [HOSTILE]),
        reliability(y, p, HOSTILE, HOSTILE),
        roc({HOSTILE: (y, p)}, HOSTILE, HOSTILE),
        precision_recall({HOSTILE: (y, p)}, HOSTILE),
        example_comparison(HOSTILE),
        example_importance(HOSTILE),
        example_dependence(HOSTILE, (HOSTILE, "a", "b")),
        example_map(HOSTILE, (HOSTILE, "b")),
        evidence_traces({HOSTILE: [1.0, 2.0]}),
        convergence({HOSTILE: {HOSTILE: [1.0, 0.1]}}, 0.5),
        example_surface(HOSTILE),
        Figure(example_roc().svg, HOSTILE, HOSTILE),
    ]
    text = render(HOSTILE, HOSTILE, [Section(HOSTILE, [HOSTILE], items)] * 2, HOSTILE)
    tags = Tags(text)
    assert not tags.of("script")
    assert len(tags.of("svg")) == 22
    assert "x" not in [attrs.get("id") for _, attrs in tags.tags]
    assert not re.search("[\x00-\x08\x0b-\x1f\ud800-\udfff]", text)
    assert text.encode()


def test_roc_says_the_area():
    separated = np.array([0.0, 0, 1, 1]), np.array([0.1, 0.2, 0.8, 0.9])
    tied = np.array([0.0, 1, 0, 1]), np.full(4, 0.5)
    half_tied = np.array([0.0, 1, 1]), np.array([0.5, 0.5, 0.9])
    figure = soundly(roc({"A": separated, "B": tied, "C": half_tied}, "cats", "dogs"))
    for phrase in ("A has AUC 1.000", "B has AUC 0.500", "C has AUC 0.750"):
        assert phrase in figure.alt
        assert phrase.replace("has ", "(") + ")" in figure.svg


def test_reliability_says_the_calibration_error():
    figure = soundly(reliability(np.array([0.0, 1.0]), np.array([0.25, 0.75]), "A", "of cats"))
    assert "2 rows" in figure.alt
    assert "calibration error 0.250" in figure.alt


def test_traces_say_where_they_end():
    alt = example_traces().alt
    assert "PPL: from −120.5 to −80.25 in 4 evaluations" in alt


def test_traces_leave_out_what_would_flatten_the_rest():
    values = [-100.0, -1e6, -90.0, *np.linspace(-80, -70, 20)]
    assert "the lowest is −10⁶" in soundly(evidence_traces({"A": values})).caption
    assert "lowest" not in soundly(evidence_traces({"A": [-120.0, -100, -90, -80]})).caption


def test_convergence_says_that_it_cuts_the_axis():
    figure = example_convergence()
    assert "the largest residual is 10⁵⁰" in figure.caption
    assert "PPL, postlin: is at 10⁻⁹" not in figure.alt
    assert "PPL, postlin: reaches 10⁻⁹ after 10 iterations" in figure.alt
    assert "PEP, postlin: is at 0.001 after 4 iterations" in figure.alt
    assert "largest" not in convergence({"A": {"b": [1.0, 0.1]}}, 1e-3).caption


def test_maps_say_where_the_maximum_and_the_mean_are():
    assert "maximum −50 at length scale 4.48 and variance 7.39" in example_surface().alt
    assert "from (1, 1) to (4.48, 20.1) in 3 evaluations" in example_surface().alt
    assert "mean (0.25, −1)" in example_synthetic().alt


def test_a_map_does_not_depend_on_the_order_of_classes():
    assert example_map(classes=("dog", "cat"), about=0) == example_map(classes=("cat", "dog"), about=1)
    assert "probability of ‘dog’" in example_map().alt


def test_a_confusion_matrix_says_what_is_mistaken_for_what():
    figure = example_matrix()
    assert "50 of 61 rows are on the diagonal" in figure.caption
    assert "7 of ‘a rather long name of a class’ taken for ‘b’, 3 of ‘a’ taken for ‘b’" in figure.alt
    assert re.findall(r">(\d+)</text>", figure.svg) == ["20", "3", "1", "30", "7"]
    assert "a rather long…" in figure.svg
    alike = tuple(f"a rather long name, number {k}" for k in range(3))
    figure = confusion_matrix(np.eye(3, dtype=int), alike, "PPL")
    assert all(figure.svg.count(f">a ra…{k}</text>") == 2 for k in range(3))
    perfect = confusion_matrix(np.diag([3, 4, 5]), ("a", "b", "c"), "PPL")
    assert "12 of 12 rows" in perfect.caption
    assert "Off it" not in perfect.caption


@pytest.mark.parametrize("n", [3, 12, 25, 60])
def test_confusion_matrices_of_odd_values(n):
    names = tuple(f"{HOSTILE}{k}" for k in range(n))
    soundly(confusion_matrix(np.zeros((n, n), int), names, HOSTILE))
    figure = soundly(confusion_matrix(np.full((n, n), 10**6), names, HOSTILE))
    numbers = len(re.findall(r">1000000</text>", figure.svg))
    assert numbers == (n * n if n <= 12 else 0)


def test_reliability_and_roc_say_what_they_count():
    curves = {"a": predictions()}
    figure = reliability(*curves["a"], "PPL", "of cats")
    assert "Reliability of PPL: the share of rows of cats against its" in figure.caption
    assert "share of rows of cats" in figure.svg
    caption = roc(curves, "cats", "dogs").caption
    assert "the share of cats found against the share of dogs taken" in caption
    assert "taken for cats, the share that is right" in precision_recall(curves, "cats").caption


@pytest.mark.parametrize("n", [0, 1, 7, 30, 200, 3000])
def test_bins_of_the_reliability_diagram_hold_enough_rows(n):
    p = np.random.default_rng(n).beta(0.2, 0.3, n)
    edges = edges_that_hold(p)
    assert (edges[0], edges[-1]) == (0, 1)
    assert (np.diff(edges) > 0).all()
    rows, _ = np.histogram(p, edges)
    assert rows.sum() == n
    assert len(rows) == 1 or rows.min() >= min(10, max(n // 4, 1))
    assert len(edges_that_hold(np.linspace(0, 1, 1000))) == 11


def test_a_method_that_is_far_from_the_others_does_not_flatten_them():
    figure = example_comparison()
    assert "Left out, because it is far away: far." in figure.caption
    assert ">far<" not in figure.svg
    assert "far +2.000 (1.000 to 3.000)" in figure.alt
    assert "far" not in comparison({"a": Interval(5.0, 4.0, 6.0)}, "b").caption
    level = {"EP": Interval(0.0, -0.05, 0.05), "CL": Interval(0.001, -0.05, 0.05)}
    assert "far" not in comparison(level | {"trees": Interval(0.1, -0.1, 0.3)}, "PL").caption


def test_names_that_begin_alike_are_told_apart():
    columns = [f"measurement of the yearly rain, station {k}, in litres" for k in range(30)]
    for names in (columns, ["ab_" * 20 + str(k) for k in range(9)], ["a\x00", "a", "a" * 99, "a" * 98]):
        for longest in (10, 24, 44):
            shown = apart(names, longest)
            assert len(set(shown)) == len(names)
            assert max(map(len, shown)) <= longest
    assert apart(columns, 24)[27] == "measurem…27, in litres"
    assert apart(["short", "long " * 9], 10) == ["short", "long long…"]


def test_precision_says_the_average_precision():
    y, p = predictions()
    average = average_precision_score(y, p)
    figure = precision_recall({"a" * 60: (y, p)}, "cats")
    assert f"aaa has AP {average:.3f}" in figure.alt
    assert f"aaa… (AP {average:.3f})<" in figure.svg


def test_features_are_described_in_words():
    assert "width 0.3 and height −0.01" in example_importance().alt
    assert "‘cat’ from 0.1 to 0.4" in example_dependence().alt
    assert "‘dog’" not in example_dependence(classes=("cat", "dog"), about=0).alt
    assert "90 held-out rows" in example_importance().caption


ONE = np.ones(1)
CURVES = {
    "constant": (np.array([0.0, 1.0, 1.0]), np.full(3, 0.5)),
    "ends": (np.array([0.0, 1.0]), np.array([0.0, 1.0])),
    "one class": (np.ones(5), np.linspace(0, 1, 5)),
    "other class": (np.zeros(5), np.linspace(0, 1, 5)),
    "single point": (ONE, ONE),
    "empty": (np.empty(0), np.empty(0)),
}


@pytest.mark.parametrize("name", CURVES)
def test_curves_of_odd_predictions(name):
    for curves in ({name: CURVES[name]}, {name: CURVES[name], "a" * 200: predictions()}, {}):
        soundly(roc(curves, "cats", "dogs"))
        soundly(precision_recall(curves, "cats"))
    soundly(reliability(*CURVES[name], name, "of cats"))


def test_one_class_has_no_area():
    assert "one class has AUC undefined" in roc({"one class": CURVES["one class"]}, "a", "b").alt


@pytest.mark.parametrize(
    "traces",
    [{}, {"a": []}, {"a": [1.0]}, {"a": [2.0, 2.0]}, {"a": [-np.inf, np.nan]}, {"a": [-1e300, 1]}],
)
def test_traces_of_odd_values(traces):
    soundly(evidence_traces(traces))


@pytest.mark.parametrize(
    "panels",
    [
        {},
        {"A": {}},
        {"A": {"b": []}},
        {"A": {"b": [1.0]}},
        {"A": {"b": [0.0, 0.0]}},
        {"A": {"b": [1e300, 1e308]}},
        {"A": {"b": [1.0, np.inf, np.nan]}},
        {str(k): {"b": [1.0, 1e-20]} for k in range(5)},
    ],
)
def test_convergence_of_odd_values(panels):
    soundly(convergence(panels, 1e-8))


@pytest.mark.parametrize(
    "values",
    [np.zeros((3, 4)), np.full((3, 4), np.nan), np.full((3, 4), -np.inf), -np.geomspace(1, 1e9, 12)],
)
@pytest.mark.parametrize("path", [np.empty((0, 2)), np.zeros((1, 2)), np.full((2, 2), 99.0)])
def test_surfaces_of_odd_values(values, path):
    soundly(surface_of(np.arange(4.0), np.arange(3.0), values.reshape(3, 4), path, "t"))


def test_surface_of_a_single_point():
    soundly(surface_of(ONE, ONE, ONE[:, None], np.empty((0, 2)), "t"))


def test_synthetic_of_nothing():
    axis = np.arange(3.0)
    soundly(synthetic(axis, axis, np.zeros((3, 3)), np.ones(2), np.zeros((2, 2)), np.empty((0, 2))))


@pytest.mark.skipif(not CHROMIUM.exists(), reason="needs Chromium")
def test_a_browser_shows_it_without_complaint_or_overflow(page, tmp_path):
    in_a_browser(page, tmp_path / "report.html")


def in_a_browser(page, file):
    """Look at a page at two widths, light and dark."""
    playwright = pytest.importorskip("playwright.sync_api")
    file.write_text(page, encoding="utf-8")
    with playwright.sync_playwright() as player:
        browser = player.chromium.launch(executable_path=str(CHROMIUM), args=ARGUMENTS)
        for width in (400, 1400):
            for scheme in ("light", "dark"):
                look_at(browser, file.as_uri(), width, scheme)
        browser.close()


def look_at(browser, address, width, scheme):
    tab = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    complaints, requests = [], []
    tab.on(
        "console", lambda message: complaints.append(message.text) if message.type == "error" else None
    )
    tab.on("pageerror", lambda error: complaints.append(str(error)))
    tab.on("request", lambda request: requests.append(request.url))
    tab.goto(address)
    assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert tab.evaluate("[...document.querySelectorAll('svg')].every(s => s.clientHeight > 80)")
    # No table scrolls, neither wide ones on a wide screen nor the cards of a narrow one.
    scrolls = "[...document.querySelectorAll('.scroll')].map(e => e.scrollWidth - e.clientWidth)"
    assert set(tab.evaluate(scrolls)) <= {0}
    # The answers, where there are any, are on the first screen.
    answers = "[...document.querySelectorAll('.answer')].map(e => e.getBoundingClientRect().bottom)"
    assert max(tab.evaluate(answers), default=0) < 900
    # Text has the ink of the page, on a ground of the scheme.
    ink = tab.evaluate("getComputedStyle(document.querySelector('svg text')).fill")
    assert ink == tab.evaluate("getComputedStyle(document.body).color")
    assert (brightness(ink) > 128) == (scheme == "dark")
    tab.close()
    assert complaints == []
    assert requests == [address]


def brightness(colour):
    return np.mean([float(part) for part in re.findall(r"[\d.]+", colour)[:3]])
