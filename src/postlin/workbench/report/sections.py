"""The report of ``postlin evaluate``: what it concludes first, and then what stands behind it."""

import hashlib
import platform
from typing import NamedTuple

import numpy as np
import sklearn

import postlin
from postlin.workbench.evaluation import scores
from postlin.workbench.evaluation.comparison import Conclusion, Mistake
from postlin.workbench.evaluation.explanation import Explanation
from postlin.workbench.evaluation.folds import Data, Results
from postlin.workbench.evaluation.methods import BASELINES
from postlin.workbench.evaluation.scores import COLUMNS, GAPS, Cell, Summary
from postlin.workbench.report import features, inference, predictions, words
from postlin.workbench.report.drawing import MOST, apart, count, listing, short
from postlin.workbench.report.page import Answer, Item, Section, Table, render
from postlin.workbench.report.words import SHORT, called, names_of, percent, with_error

FOOTER = f"Made by postlin {postlin.__version__}. One file, no network, no scripts."
#: Decimals of the scores that are not shown with three.
_DECIMALS = {"log_evidence": 1, "seconds": 2, "evidence_gap": 2}
#: The most wrong rows in a table, and classes named in the text.
_WRONG, _NAMED = 12, 8
#: With a smaller share of the rarer class, ROC curves flatter: precision and recall are drawn too.
_RARE = 0.3


class Origin(NamedTuple):
    """Where a report comes from: the command line, and when it was made."""

    command: str
    date: str


def evaluation_page(
    data: Data,
    summaries: dict[Cell, Summary],
    results: Results,
    conclusion: Conclusion,
    explanation: Explanation | None,
    origin: Origin,
    failures: list[str] | None = None,
) -> str:
    """Return the report of ``postlin evaluate``; ``failures`` are sentences about failed folds."""
    n_folds = max(summary.folds for summary in summaries.values())
    named = called(data.classes)[:_NAMED]
    if len(data.classes) > _NAMED:
        named.append(f"{len(data.classes) - _NAMED} more")
    lead = (
        f"Which method best tells {listing(named)} apart? {count(len(summaries), 'method')}, "
        f"{len(data.codes):,} rows, {count(data.X.shape[1], 'feature')}; in each of {n_folds} folds "
        "the methods learn from the same rows and predict the others."
    )
    sections = [
        conclusion_section(data, summaries, conclusion, failures or []),
        mistakes_section(data, conclusion),
        probabilities_section(data, conclusion),
    ]
    if explanation is not None:
        sections.append(features_section(data, conclusion, explanation))
    sections += [methods_section(data, summaries, results, conclusion), origin_section(data, origin)]
    return render(f"{data.name}: methods compared", lead, sections, FOOTER)


def conclusion_section(
    data: Data, summaries: dict[Cell, Summary], conclusion: Conclusion, failures: list[str]
) -> Section:
    """Return the answers to the first questions, and the table of methods."""
    header, rows = words.score_rows(conclusion, summaries)
    header = ["method", "log-loss", "above the best [95 %]", "error", "seconds a fold"]
    caption = (
        "The best method first; lower is better. Log-loss is the mean −log probability of the true "
        "class, ± a standard error; differences are paired over folds."
    )
    items: list[Item] = [*_answers(data, conclusion), Table(header, rows, caption)]
    return Section("Conclusion", failures, items)


def _answers(data: Data, conclusion: Conclusion) -> list[Answer]:
    best, name = conclusion.best, names_of(conclusion.ranking)[conclusion.best]
    found, loss = conclusion.predictions[best], conclusion.log_loss[best]
    error, mistakes = found.error, found.mistakes()
    about = f"It has the lowest log-loss of {count(len(conclusion.ranking), 'method')}."
    if best.method not in BASELINES:
        rule = words.RULES[words.rule_of(best)]
        about = f"A Gaussian process by {rule}, {SHORT[best.likelihood]} likelihood. {about}"
    baselines = [cell for cell in conclusion.excess if cell.method in BASELINES]
    beaten = [cell for cell in baselines if conclusion.excess[cell].low > 0]
    against = f"Better than {len(beaten)} of {count(len(baselines), 'baseline')}"
    if best.method in BASELINES:
        against = "A baseline is the best"
    elif not baselines:
        against = "No baseline was asked for"
    wrong = ["No held-out row is wrong."]
    if mistakes:
        counts = scores.confusion(found.y, found.p)
        wrong = [
            f"{words.confusions(counts, data.classes)}.",
            f"Most confidently wrong: {words.worst_rows(mistakes, data.classes)}.",
        ]
    return [
        Answer("Which method?", name, [about]),
        Answer(
            "How good is it?",
            f"{percent(error.mean)} wrong",
            [
                f"{found.wrong:,} of {count(len(found.y), 'row')}; 95 % interval {percent(error.low)} "
                f"to {percent(error.high)}.",
                f"Log-loss {words.with_interval(loss)}.",
            ],
        ),
        Answer("Against what?", against, words.standing(conclusion)),
        Answer("What goes wrong?", _rows(mistakes), wrong),
    ]


def _rows(mistakes: list[Mistake]) -> str:
    if not mistakes:
        return "Nothing"
    some = [str(mistake.row + 1) for mistake in mistakes[:3]]
    more = [f"{len(mistakes) - 3:,} more"] if len(mistakes) > 3 else []
    return f"{'Row' if len(mistakes) == 1 else 'Rows'} {listing([*some, *more])}"


def mistakes_section(data: Data, conclusion: Conclusion) -> Section:
    """Return the most confidently wrong rows, the confusion matrix and the scores of every class."""
    best, name = conclusion.best, names_of(conclusion.ranking)[conclusion.best]
    found = conclusion.predictions[best]
    wrong = found.mistakes()
    guesses = {cell: np.argmax(p.p, axis=1) != p.y for cell, p in conclusion.predictions.items()}
    labels = apart(data.classes, 30)
    items: list[Item] = []
    rows = []
    for m in wrong[:_WRONG]:
        also = sum(
            bool(np.any(guesses[cell] & (p.rows == m.row)))
            for cell, p in conclusion.predictions.items()
        )
        odds = f"{m.of_label:.3f}", f"{m.of_predicted:.3f}"
        both = labels[m.label], labels[m.predicted]
        rows.append([str(m.row + 1), *both, *odds, f"{also} of {len(guesses)}"])
    if rows:
        header = ["row", "class", "predicted", "probability of its class", "of the predicted class"]
        caption = (
            f"{'All' if len(rows) == len(wrong) else f'The {len(rows)} worst of {len(wrong)}'} wrong "
            f"rows of {name}, the most confident mistakes first. Rows are counted from 1, without the "
            "header. A row that all methods get wrong may be mislabelled, or the only one of its kind."
        )
        items.append(Table([*header, "wrong by methods"], rows, caption, text_columns=3))
    items.append(predictions.confusion_matrix(scores.confusion(found.y, found.p), data.classes, name))
    per_class = scores.class_scores(found.y.astype(float), found.p)
    rows = [
        [label, str(one.rows), *map(_digits, one[1:])]
        for label, one in zip(apart(data.classes, 40), per_class, strict=True)
    ]
    caption = (
        f"Classes one by one, {name}. Recall is the share of a class that is recognised, precision the "
        "share of correct predictions of it; log-loss is over the rows of the class."
    )
    items.append(Table(["class", "rows", "recall", "precision", "log-loss"], rows, caption))
    return Section("Mistakes", [], items)


def probabilities_section(data: Data, conclusion: Conclusion) -> Section:
    """Return reliability, and what thresholds other than the most probable class would do."""
    best, name = conclusion.best, names_of(conclusion.ranking)[conclusion.best]
    _, y, p = conclusion.predictions[best]
    text = "All held-out rows are pooled."
    items: list[Item]
    if len(data.classes) > 2:
        right, sure = scores.event(y.astype(float), p)
        shown = np.sort(np.argsort(-np.bincount(y, minlength=p.shape[1]), kind="stable")[:MOST])
        if len(data.classes) > MOST:
            text += f" There are curves for the {MOST} classes with most rows."
        drawn = {data.classes[k]: ((y == k).astype(float), p[:, k]) for k in shown}
        items = [
            predictions.reliability(right, sure, name, "predicted correctly", "of the predicted class"),
            predictions.roc(drawn, "the class", "other rows"),
        ]
    else:
        text += predictions.drawn_as_one(conclusion)
        about, names = predictions.drawn_class(data.codes), called(data.classes)
        target, other = names[about], names[1 - about]
        drawn = predictions.curves_of(conclusion, about)
        items = [
            predictions.reliability((y == about).astype(float), p[:, about], name, f"of {target}"),
            predictions.roc(drawn, target, other),
        ]
        if np.mean(y == about) < _RARE:
            items.append(predictions.precision_recall(drawn, target))
    return Section("Probabilities", [text], items)


def features_section(data: Data, conclusion: Conclusion, found: Explanation) -> Section:
    """Return which features the best method relies on, and how."""
    name = names_of(conclusion.ranking)[conclusion.best]
    about = predictions.drawn_class(data.codes) if len(data.classes) == 2 else None
    items: list[Item] = [features.importance(found, name)]
    if found.plane is not None:
        columns = [str(column) for column in data.feature_names]
        seen = data.table.to_numpy(float), data.codes, data.classes
        items.append(features.decision_map(found.plane, *seen, columns, name, about))
    if found.dependence:
        items.append(features.dependence(found, data.classes, name, about))
    return Section("Features", [], items)


def methods_section(
    data: Data, summaries: dict[Cell, Summary], results: Results, conclusion: Conclusion
) -> Section:
    """Return the comparison of methods, all scores, and how learning went."""
    names = names_of(conclusion.ranking)
    text = [
        "The best of several methods looks a little better than it is, because it was chosen by the "
        "same scores. Intervals are Student's t over folds, with the variance of Nadeau and Bengio "
        "(2003) for folds that share most of their training rows."
    ]
    ours = [cell for cell in conclusion.ranking if cell.method not in BASELINES]
    if ours:
        used = {words.rule_of(cell) for cell in ours}
        rules = [f"{rule} is {what}" for rule, what in words.RULES.items() if rule in used]
        text.append(f"Gaussian processes learn their hyperparameters in every fold. {listing(rules)}.")
    if any(words.rule_of(cell) != cell.method for cell in ours):
        text.append("P and S in front of a rule stand for the parallel and the sequential schedule.")
    if any(task.n_neighbors for task in results):
        text.append(
            "Gaussian processes predict every row from its nearest rows; what is called log evidence "
            "is then the estimated leave-one-out log score."
        )
    items: list[Item] = []
    if conclusion.excess:
        excess = {names[cell]: interval for cell, interval in conclusion.excess.items()}
        items.append(predictions.comparison(excess, names[conclusion.best]))
    if traces := inference.traces_of(results):
        items.append(inference.evidence_traces(traces))
    header, rows = _other_scores(conclusion.ranking, summaries)
    caption = (
        "Other scores, ± a standard error. Brier is the mean squared error of the probabilities"
        f"{', summed over the classes' if len(data.classes) > 2 else ''}; the calibration error is the "
        "mean distance of frequency and probability in ten bins."
    )
    if len(data.classes) > 2:
        caption += (
            " Log evidences are comparable only where the likelihood and the multi-class strategy are "
            "the same: split into binary problems, they are means over these."
        )
    if GAPS["probability_gap"] in header:
        caption += (
            " Δ evidence is the log evidence minus the exact one at the same hyperparameters, and |Δp| "
            "the mean distance of the probabilities from the exact ones, by Monte Carlo."
        )
    items.append(Table(header, rows, caption))
    return Section("Methods", text, items)


def _other_scores(
    ranking: list[Cell], summaries: dict[Cell, Summary]
) -> tuple[list[str], list[list[str]]]:
    """Return the table of the scores that the first one lacks."""
    chosen = [summaries[cell] for cell in ranking]
    scored = COLUMNS | GAPS
    shown_above = "error", "nlpd", "seconds"
    known = [
        name
        for name in scored
        if name not in shown_above and any(getattr(s, name) is not None for s in chosen)
    ]
    rows = []
    for cell, summary in zip(ranking, chosen, strict=True):
        cells = []
        for name in known:
            score = getattr(summary, name)
            cells.append("–" if score is None else with_error(score, _DECIMALS.get(name, 3)))
        state = "–" if summary.converged is None else f"{summary.converged}/{summary.folds}"
        rows.append([words.spoken(cell), *cells, state])
    return ["method", *(scored[name] for name in known), "converged"], rows


def origin_section(data: Data, origin: Origin) -> Section:
    """Return the command, the versions and the fingerprint of the data."""
    counts = np.bincount(data.codes, minlength=len(data.classes))
    sizes = [f"{name} {n:,}" for name, n in zip(called(data.classes), counts, strict=True)][:_NAMED]
    if len(data.classes) > _NAMED:
        sizes.append(f"{len(data.classes) - _NAMED} more")
    versions = f"postlin {postlin.__version__}, scikit-learn {sklearn.__version__}"
    rows = [
        ["command", origin.command],
        ["date", origin.date],
        ["versions", f"{versions}, Python {platform.python_version()}"],
        ["data", f"{data.name}: {len(data.codes):,} rows; {', '.join(sizes)}"],
        ["features", short(", ".join(map(str, data.feature_names)), 300)],
        *(["about the table", remark] for remark in data.remarks),
        ["fingerprint of the data", f"SHA-256 {fingerprint_of(data)}"],
    ]
    caption = "What is needed to compute this report again."
    return Section("Origin", [], [Table(["", ""], rows, caption, text_columns=2)])


def fingerprint_of(data: Data) -> str:
    """Return the first digits of a digest of the rows, the classes and their names."""
    digest = hashlib.sha256(data.digest())
    digest.update("\0".join([*data.classes, *map(str, data.feature_names)]).encode(errors="replace"))
    return digest.hexdigest()[:16]


def _digits(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
