"""Tables as they are, in Python: what columns hold, and the pipeline that takes them."""

import datetime as dt

import numpy as np
import pandas as pd
import polars
import pytest
from sklearn.base import clone
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import Pipeline

import postlin
from postlin import datasets
from postlin.tables.columns import Wishes, find_columns
from postlin.tables.preparation import (
    DATE_PARTS,
    Preparation,
    Whitening,
    columns_of,
    unknown_levels,
)

FIXED = {"optimizer": None}


def mixed(n=60, seed=0):
    """A table with a number, a number with gaps, a category with gaps and a truth value; and labels."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame(
        {"dose": rng.normal(3.0, 2.0, n), "age": rng.integers(20, 80, n).astype(float)}
    )
    table["site"] = rng.choice(["Bern", "Köln", "Lyon"], n)
    table["smoker"] = rng.random(n) < 0.4
    y = table["dose"] + 2.0 * (table["site"] == "Bern") + rng.normal(size=n) > 3.5
    table.loc[rng.random(n) < 0.2, "age"] = np.nan
    table.loc[rng.random(n) < 0.1, "site"] = None
    return table, np.where(y, "ill", "well")


def by_hand(train, rows):
    """The rows in numbers, by NumPy and pandas alone."""
    parts = []
    for name in ("dose", "age"):
        known = train[name].dropna().to_numpy()
        x = rows[name].fillna(np.median(known)).to_numpy()
        parts.append((x - known.mean()) / known.std())
    parts.append(rows["age"].isna())
    levels = sorted(train["site"].fillna("").unique())
    parts += [rows["site"].fillna("") == level for level in levels]
    parts += [~rows["smoker"], rows["smoker"]]
    return np.stack([np.asarray(part, float) for part in parts], axis=1)


def test_the_pipeline_is_the_classifier_on_a_table_prepared_by_hand():
    table, y = mixed()
    model = postlin.table_classifier(table, likelihood="logit").fit(table[:45], y[:45])
    X = by_hand(table[:45], table)
    direct = postlin.GPClassifier(likelihood="logit").fit(X[:45], y[:45])
    np.testing.assert_allclose(model[:-1].transform(table), X, atol=1e-12)
    np.testing.assert_allclose(model.predict_proba(table), direct.predict_proba(X), atol=1e-9)


def test_cross_validation_prepares_each_fold_by_its_training_rows():
    table, y = mixed()
    model = postlin.table_classifier(table, **FIXED)
    folds = [(np.arange(0, 40), np.arange(40, 60)), (np.arange(20, 60), np.arange(0, 20))]
    scores = cross_val_score(clone(model), table, y, cv=folds, scoring="neg_log_loss")
    for (train, test), score in zip(folds, scores, strict=True):
        X = by_hand(table.iloc[train], table)
        p = postlin.GPClassifier(**FIXED).fit(X[train], y[train]).predict_proba(X[test])
        assert score == pytest.approx(np.log(p[np.arange(20), (y[test] == "well").astype(int)]).mean())


def test_a_saved_pipeline_takes_tables_with_gaps_unknown_levels_and_more_columns(tmp_path):
    table, y = mixed()
    model = postlin.table_classifier(table, **FIXED).fit(table, y)
    postlin.save(model, tmp_path / "m")
    again = postlin.load(tmp_path / "m")
    new = pd.DataFrame({"smoker": ["TRUE", None], "site": ["Oslo", " Bern "], "age": ["?", "31"]})
    new = new.assign(dose=[None, 2], note="x")
    X = again[:-1].transform(new)
    np.testing.assert_array_equal(X[:, 2:], [[1, 0, 0, 0, 0, 0, 1], [0, 0, 1, 0, 0, 0, 0]])
    np.testing.assert_array_equal(again.predict_proba(new), model.predict_proba(new))
    assert unknown_levels(again, new) == {"site": ["Oslo"]}
    assert columns_of(again).numbers == ("dose", "age")


def test_what_a_column_holds():
    n = 40
    rng = np.random.default_rng(1)
    table = pd.DataFrame(
        {
            "PassengerId": rng.permutation(5 * n)[:n],
            "counter": np.arange(7, 7 + n),
            "price": rng.permutation(n) * 10,
            "text": [f" {v:.3f}" if v > -1 else "-" for v in rng.normal(size=n)],
            "grade": ["1", "2", "3+"] * 13 + ["?"],
            "name": [f"person {k}" for k in range(n)],
            "flag": [True, False] * (n // 2),
            "same": 4.5,
            "nothing": [None] * n,
            "when": [f"{k % 28 + 1:02}.02.2021 10:15" for k in range(n)],
            "typed": pd.date_range("2024-01-01", periods=n, freq="D", tz="UTC"),
            "kind": pd.Categorical([1, 2] * (n // 2)),
            "town": [f"town {k % 35}" for k in range(n)],
            "old": ["1701-03-01", "1812-11-26", "2020-01-01", None] * (n // 4),
            "waited": pd.to_timedelta(rng.integers(1, 9, n), unit="h"),
            "count": pd.array([1, None, 3, 5] * (n // 4), dtype="Int64"),
            "maybe": pd.array([True, None] * (n // 2), dtype="boolean"),
        }
    )
    table["twin"] = table["price"]
    found = find_columns(table)
    assert not found.problems
    assert found.columns.numbers == ("price", "text", "waited", "count")
    assert found.columns.categories == ("grade", "flag", "kind", "town", "maybe")
    dates = [("when", "%d.%m.%Y %H:%M"), ("typed", "typed"), ("old", "ISO8601")]
    assert list(found.columns.dates) == dates
    X = Pipeline(Preparation(found.columns, scaling="none").steps()).fit_transform(table)
    assert np.isfinite(X).all()
    assert list(X[:2, 2]) == list(table["waited"].dt.total_seconds()[:2])
    told = "\n".join(found.remarks)
    for line in (
        "column 'twin' repeats 'price', and is left out",
        "columns that seem to identify rows, left out: 'PassengerId', 'counter'",
        "columns of texts that differ in nearly every row, left out: 'name'",
        "columns constant, left out: 'same'",
        "columns without a value, left out: 'nothing'",
        "columns with more than 30 levels, of which the rarer share a column: 'town'",
        "columns of dates, split into day, month, weekday and hour: 'when', 'typed', 'old'",
        "'grade' (1)",
    ):
        assert line in told
    wishes = Wishes(numbers=["counter"], categories=["price"], left_out=["twin", "town"])
    asked = find_columns(table, wishes).columns
    assert "counter" in asked.numbers
    assert "price" in asked.categories
    assert "town" not in asked.names
    with pytest.warns(UserWarning, match=r"left out: 'PassengerId', 'counter'; .* left out: 'name'"):
        postlin.table_classifier(table)


def test_all_that_is_wrong_is_said_at_once():
    table = pd.DataFrame(
        {
            "age": [*map(str, range(20)), "old", "<5"],
            "when": ["03/03/2020"] * 20 + ["03/04/2020", "05/06/2020"],
            "size": [*np.linspace(0, 1, 21), np.inf],
            "list": [[1]] * 22,
        }
    )
    with pytest.raises(ValueError, match="no column 'hight'") as raised:
        postlin.table_classifier(table, left_out=["hight"])
    told = str(raised.value)
    assert "column 'age' holds numbers and 2 other values ('old', '<5'): correct these" in told
    assert "'when' holds dates whose day and month cannot be told apart, such as '03/04/2020'" in told
    assert "column 'size' is infinite in data row 22" in told
    assert "column 'list' holds lists or other objects" in told
    for names in (["a", "a"], [0, 1]):
        with pytest.raises(ValueError, match="names of the columns must be texts, and all different"):
            postlin.table_classifier(pd.DataFrame(np.eye(2), columns=names))
    with pytest.raises(ValueError, match="no column is left to learn from"):
        postlin.table_classifier(pd.DataFrame({"a": [1.0, 1.0]}))


def test_new_rows_that_cannot_be_read_are_refused():
    model = postlin.table_classifier({"dose": "number", "age": "number"}, **FIXED)
    model.fit(mixed()[0], mixed()[1])
    with pytest.raises(ValueError, match=r"'dose' must hold numbers, and holds '1,5'; .*'age' is inf"):
        model.predict(pd.DataFrame({"dose": ["1,5", "2"], "age": [1.0, np.inf]}))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (({"a": "text"},), "map the names of columns to number or category, got text"),
        (({},), "got none"),
        (({"a": "number"}, "mode"), "impute must be one of median, mean, most_frequent, got 'mode'"),
        (({"a": "number"}, "mean", "wide"), "scaling must be one of standardise, whiten, none, got"),
    ],
)
def test_bad_arguments(arguments, message):
    options = dict(zip(("impute", "scaling"), arguments[1:], strict=False))
    with pytest.raises(ValueError, match=message):
        postlin.table_classifier(arguments[0], **options)


@pytest.mark.parametrize(
    "form",
    [
        "%Y-%m-%d",
        "%d.%m.%Y",
        "%m/%d/%Y",
        "%Y/%m/%d %H:%M",
        "%Y-%m-%dT%H:%M:%S",
        "%d. %B %Y",
        "%d-%b-%y",
        "%B %d, %Y %H:%M",
    ],
)
def test_dates_are_split(form):
    start = dt.datetime(2019, 12, 30, 7, 45)
    days = [start + dt.timedelta(days=19 * k, hours=5 * k) for k in range(40)]
    table = pd.DataFrame({"when": [day.strftime(form) for day in days]})
    table.loc[3, "when"] = None
    model = postlin.table_classifier(table, scaling="none", **FIXED)
    model.fit(table, np.arange(40) % 2)
    X = model[:-1].transform(table)
    assert list(model[:-1].get_feature_names_out()[:4]) == [f"when_{part}" for part in DATE_PARTS]
    read = [dt.datetime.strptime(day.strftime(form), form) for day in days]
    for row, day in zip(X, read, strict=True):
        if day == read[3]:
            continue
        age = (day - dt.datetime(1970, 1, 1)).total_seconds() / 86400
        assert row[0] == pytest.approx(age, rel=1e-12)
        assert list(row[1:]) == [day.month, day.weekday(), day.hour, *[0] * 4]
    assert list(X[3, 4:]) == [1] * 4
    with pytest.raises(ValueError, match="'when' must hold dates as those of the training rows"):
        model.predict(pd.DataFrame({"when": ["1st of May"]}))


def test_whitening_is_the_papers_on_the_training_rows():
    X = datasets.load("crab").X
    made = Whitening().fit(X[:150])
    np.testing.assert_allclose(made.transform(X[:150]), datasets.whiten(X[:150]), atol=1e-9)
    table = pd.DataFrame(X, columns=list("abcdef"))
    model = postlin.table_classifier(table, scaling="whiten", **FIXED).fit(table[:150], X[:150, 0] > 0)
    assert np.cov(model[:-1].transform(table[:150]).T, bias=True) == pytest.approx(np.eye(6), abs=1e-8)
    with pytest.raises(ValueError, match="cannot be whitened"):
        postlin.table_classifier(mixed()[0], scaling="whiten").fit(*mixed())


def test_frames_of_polars():
    table, y = mixed()
    other = polars.DataFrame(
        {name: table[name].astype(object).where(table[name].notna(), None).tolist() for name in table}
    )
    model = postlin.table_classifier(other, **FIXED).fit(other, y)
    expected = postlin.table_classifier(table, **FIXED).fit(table, y)
    np.testing.assert_allclose(model.predict_proba(other), expected.predict_proba(table), atol=1e-12)


def test_a_column_that_a_fold_has_no_value_of():
    table, y = mixed()
    table.loc[:44, "age"] = np.nan
    model = postlin.table_classifier(table, **FIXED).fit(table[:45], y[:45])
    assert np.isfinite(model.predict_proba(table)).all()


def test_parameters_in_a_file_are_checked(tmp_path):
    table, y = mixed()
    model = postlin.table_classifier(table, **FIXED).fit(table, y)
    branches = model[0].named_transformers_

    def spoil(place, name, value):
        old = getattr(place, name)
        setattr(place, name, value)
        postlin.save(model, tmp_path / "m")
        setattr(place, name, old)
        with pytest.raises(postlin.ModelFileError):
            postlin.load(tmp_path / "m")

    spoil(branches["numbers"][1], "scale_", np.array([1.0, 0.0]))
    spoil(branches["numbers"][1], "mean_", np.array([1.0, np.inf]))
    spoil(branches["numbers"][2], "statistics_", np.array([1.0]))
    levels = branches["categories"][1].categories_
    spoil(branches["categories"][1], "categories_", [levels[0]])
    spoil(branches["categories"][1], "categories_", [levels[0][[0, 0, 1, 2]], levels[1]])
    spoil(branches["categories"][1], "categories_", [np.arange(4.0), levels[1]])
