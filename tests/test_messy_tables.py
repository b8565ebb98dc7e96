"""Twelve tables as people have them, from evaluation to prediction, beside the same tables by hand."""

import datetime as dt
import gzip
import re
import time

import numpy as np
import pandas as pd
import pytest
from sklearn.impute import SimpleImputer
from sklearn.metrics import log_loss
from sklearn.model_selection import StratifiedKFold
from sklearn.preprocessing import StandardScaler
from typer.testing import CliRunner

import postlin
from postlin.workbench.cli.app import app
from postlin.workbench.cli.inputs import BadInputError
from postlin.workbench.cli.reading import Spelling, read_table
from postlin.workbench.cli.tables import Options, read_data
from postlin.workbench.evaluation import folds, scores

N = 80


def command(*arguments):
    """Run the command line in this process."""
    return CliRunner().invoke(app, [*map(str, arguments)], catch_exceptions=False)


def clean(classes=2, seed=3):
    """A table without any flaw: two numbers, a category, a truth value, and the class."""
    rng = np.random.default_rng(seed)
    table = pd.DataFrame({"width": rng.normal(20.0, 4.0, N), "depth": rng.normal(0.5, 0.1, N)}).round(6)
    table["town"] = rng.choice(["Genève", "Zürich", "Bern"], N)
    table["warm"] = rng.choice(["yes", "no"], N)
    z = (table["width"] - 20) / 4 + 1.5 * (table["town"] == "Bern") + rng.normal(size=N)
    table["kind"] = np.array(["low", "high", "größer"])[1 * (z > 0.4) + 1 * ((z > 1.4) & (classes > 2))]
    return table


def by_hand(table, train):
    """Rows of numbers from a table with numbers and two categories, which may have gaps."""
    x = table.select_dtypes("float").to_numpy()
    fill = SimpleImputer(strategy="median").fit(x[train])
    scaler = StandardScaler().fit(x[train])
    gaps = np.isnan(x)
    parts = [scaler.transform(fill.transform(x)), gaps[:, gaps[train].any(axis=0)]]
    for name in ("town", "warm"):
        known = table[name].fillna("none").to_numpy(str)
        levels, counts = np.unique(known[train], return_counts=True)
        parts += [known[:, None] == levels[counts > 1], ~np.isin(known, levels[counts > 1])[:, None]]
    return np.hstack([np.asarray(part, float) for part in parts])


def loss_by_hand(table):
    """The log-loss of the default model in three folds of a table."""
    labels, codes = np.unique(table["kind"].to_numpy(str), return_inverse=True)
    losses = []
    for train, test in StratifiedKFold(3, shuffle=True, random_state=0).split(table, codes):
        X = by_hand(table, train)
        p = postlin.GPClassifier().fit(X[train], codes[train]).predict_proba(X[test])
        losses.append(log_loss(codes[test], p, labels=range(len(labels))))
    return np.mean(losses)


def loss(data):
    """The log-loss that ``postlin evaluate`` computes in three folds."""
    way = "one_vs_rest" if len(data.classes) > 2 else None
    tasks = [folds.Task("t", "PPL", "probit", fold=k, n_folds=3, multi_class=way) for k in range(3)]
    results = folds.run({"t": data}, tasks, folds.Store(None))
    return scores.summarise(results).nlpd.mean


def with_gaps(table, words):
    """The table with some cells replaced by words for missing values, and with NaN there."""
    rng = np.random.default_rng(1)
    told, known = table.astype(object), table.copy()
    for name in ("width", "depth", "town", "warm"):
        rows = np.flatnonzero(rng.random(len(table)) < 0.12)
        told.loc[rows, name] = rng.choice(words, len(rows)).tolist()
        known.loc[rows, name] = np.nan
    return told, known


def with_commas(table):
    """Numbers with decimal commas."""
    return table.assign(
        **{
            name: [v if isinstance(v, str) else str(v).replace(".", ",") for v in table[name]]
            for name in ("width", "depth")
        }
    )


def written(table, path, encoding="utf-8", mark=b"", first="", **options):
    """Write a table as text in some encoding."""
    text = first + table.to_csv(index=False, **options)
    content = mark + text.encode(encoding)
    path.write_bytes(gzip.compress(content) if path.suffix == ".gz" else content)
    return path


def _identifiers(path):
    table = clean()
    messy = table.copy()
    messy.insert(0, "PatientID", np.random.default_rng(0).permutation(N) * 3)
    messy.insert(1, "who", [f"person {k}" for k in range(N)])
    messy.insert(2, "constant", 1)
    return written(messy, path), table, "identify rows, left out: 'PatientID'"


def _parts(days):
    return [day.month for day in days], [day.weekday() for day in days]


def _dates(path):
    messy, table = clean(), clean()
    days = [dt.datetime(2020, 2, 1) + dt.timedelta(days=3 * k) for k in range(N)]
    messy.insert(0, "when", [f"{day:%d.%m.%Y}" for day in days])
    table["day"] = [float(day.toordinal()) for day in days]
    table["month"], table["weekday"] = [[float(x) for x in parts] for parts in _parts(days)]
    return written(messy, path), table, "of dates, split into day, month, weekday and hour: 'when'"


def _missing(path):
    messy, table = with_gaps(clean(), ["", "NA", "NaN", "null", "?", "-"])
    return written(messy, path), table, "with missing values: 'width' ("


def _rare_levels(path):
    table = clean()
    table.loc[[0, 7, 50], "town"] = ["Rom", "Oslo", "Kiew"]
    return written(table, path), table, ""


def _twice(path):
    messy = clean().rename(columns={"depth": "width"})
    return written(messy, path), clean(), "names that several columns have, numbered: 'width'"


def _latin(path):
    remark = "encoding cp1252, columns separated by tabs"
    return written(clean(), path, "cp1252", sep="\t"), clean(), remark


def _compressed(path):
    return written(clean(), path.with_suffix(".csv.gz"), "utf-16"), clean(), "encoding utf-16"


def _commas(path):
    return written(with_commas(clean()), path, sep=";"), clean(), "decimal commas"


def _all_at_once(path):
    messy, table = with_gaps(clean(3), ["", "n/a", "?", "-"])
    messy = with_commas(messy)
    messy.insert(0, "Nr", np.arange(4001, 4001 + N))
    messy.insert(3, "constant", "x")
    messy.insert(4, " width", messy["width"])
    file = written(messy, path, "cp1252", first="sep=;\n", sep=";", lineterminator="\r\n")
    return file, table, "column 'width (2)' repeats 'width', and is left out"


#: By name: the file, the table with NaN where values are missing, and words of a remark.
MESSY = {
    "identifiers": _identifiers,
    "dates": _dates,
    "missing": _missing,
    "rare levels": _rare_levels,
    "semicolons": lambda path: (written(clean(), path, sep=";"), clean(), "separated by semicolons"),
    "decimal commas": _commas,
    "latin-1": _latin,
    "mark": lambda path: (written(clean(), path, "utf-8-sig"), clean(), ""),
    "twice": _twice,
    "compressed": _compressed,
    "three classes": lambda path: (written(clean(3), path), clean(3), ""),
    "all at once": _all_at_once,
}


@pytest.fixture(scope="module")
def expected():
    """Log-losses by hand, by table: several of the twelve hold the same values."""
    known = {}

    def of(table):
        key = table.to_csv()
        if key not in known:
            known[key] = loss_by_hand(table)
        return known[key]

    return of


@pytest.mark.parametrize("name", MESSY)
def test_a_messy_table_scores_as_if_it_was_prepared_by_hand(name, tmp_path, expected):
    path, table, remark = MESSY[name](tmp_path / "t.csv")
    data = read_data(str(path), None)
    assert remark in "\n".join(data.remarks)
    assert remark or not data.remarks
    assert loss(data) == pytest.approx(expected(table), rel=0.02)


def test_commands_take_a_messy_table_and_other_spellings_of_its_rows(tmp_path):
    path, _, remark = _all_at_once(tmp_path / "t.csv")
    model = tmp_path / "m"
    result = command("evaluate", path, "--methods", "L", "--folds", 2)
    assert result.exit_code == 0, result.stderr
    assert remark in result.stderr
    assert "Nr" in result.stderr
    result = command("fit", path, "--model", model, "--method", "L", "--multi-class", "one_vs_rest")
    assert result.exit_code == 0, result.stderr
    table = read_table(path).frame.drop(columns=["width (2)", "constant"])
    first = command("predict", path, "--model", model, "--keep", "Nr,town")
    assert first.stdout.splitlines()[0] == "Nr,town,label,p(größer),p(high),p(low)"
    assert first.stdout.splitlines()[1].startswith("4001,")
    assert re.fullmatch(r"(0\.\d{1,6}\d*|1)|.*e-\d+", first.stdout.splitlines()[1].split(",")[-1])
    assert len(first.stdout.splitlines()[1].split(",")[-1].lstrip("0.")) <= 6
    table.to_parquet(tmp_path / "t.parquet")
    again = command("predict", tmp_path / "t.parquet", "--model", model, "--keep", "Nr")
    assert again.stdout.splitlines() == [
        re.sub(",[^,]*", "", line, count=1) for line in first.stdout.splitlines()
    ]
    assert "\n4010,n/a," in first.stdout  # what is kept is as it was written
    assert not again.stderr
    new = table.head(3).assign(town=["Oslo", "Bern", ""], depth=["x", "2", "3"])
    new.drop(columns="width").to_csv(tmp_path / "n.csv", index=False)
    refused = command("predict", tmp_path / "n.csv", "--model", model, "--keep", "id")
    assert refused.exit_code == 2
    for problem in ("lacks the model's columns 'width'", "has no column 'id'", "and holds 'x'"):
        assert problem in refused.stderr
    assert len(refused.stderr.splitlines()) == 3
    new.assign(depth=0.5).to_csv(tmp_path / "n.csv", index=False)
    told = command("predict", tmp_path / "n.csv", "--model", model)
    assert (
        "'town' holds levels that the model does not know, and treats as rare ones: 'Oslo'"
        in told.stderr
    )
    assert len(told.stdout.splitlines()) == 4
    for place in (path, model):
        kept = place.read_bytes()
        refused = command("predict", path, "--model", model, "--out", place)
        assert refused.exit_code == 2
        assert "which is read: choose another name" in refused.stderr
        assert place.read_bytes() == kept
    checked = command("verify", model, tmp_path / "n.csv", "--particles", 50, "--runs", 1)
    assert checked.exit_code in (0, 2)  # Laplace's joint posterior need not be verified


def test_all_that_is_wrong_with_a_file_is_said_in_one_go(tmp_path):
    table = clean().assign(
        age=[*map(str, range(N - 1)), "old"], when=["03/04/2020", "05/06/2021"] * (N // 2)
    )
    table.loc[3, "width"] = np.inf
    table.loc[:, "kind"] = ["a"] + ["b"] * (N - 1)
    path = written(table, tmp_path / "t.csv")
    result = command("evaluate", path, "--target", "kind", "--drop", "hight", "--folds", 5)
    assert result.exit_code == 2
    lines = result.stderr.splitlines()
    assert all(line.startswith("postlin: ") for line in lines)
    for line, words in zip(
        lines,
        (
            "class 'a' has a single row",
            "there is no column 'hight'",
            "'width' is infinite in data row 4",
            "'age' holds numbers and 1 other value ('old')",
            "'when' holds dates whose day and month cannot be told apart",
        ),
        strict=True,
    ):
        assert words in line
    assert lines[-1].endswith("Options for columns are --drop, --id, --categorical and --numeric.")
    ways = Options(categorical="age", drop="when", numeric="depth")
    with pytest.raises(BadInputError, match="infinite in data row 4") as raised:
        read_data(str(path), "kind", ways)
    assert len(raised.value.problems) == 1


def test_twenty_thousand_rows_are_read_at_once(tmp_path):
    table = pd.concat([clean(seed=k) for k in range(250)], ignore_index=True)
    table.insert(0, "id", np.arange(len(table)))
    path = written(with_commas(table), tmp_path / "t.csv", sep=";")
    began = time.process_time()
    data = read_data(str(path), None)
    assert time.process_time() - began < 5.0
    assert data.X.shape == (20_000, 4)
    np.testing.assert_array_equal(data.X["width"], table["width"])


def test_a_dialect_can_be_said(tmp_path):
    path = tmp_path / "t.csv"
    path.write_bytes("größe;y\n1,250;a\n2,500;b\n".encode("latin-1"))
    assert list(read_table(path).frame["größe"]) == [1.25, 2.5]
    point = read_table(path, Spelling("semicolon", ".", "latin-1")).frame
    assert list(point["größe"]) == [1250.0, 2500.0]
    for spelling, words in (
        (Spelling(encoding="utf-8"), "is not in the encoding utf-8"),
        (Spelling(encoding="base64"), "--encoding 'base64' is none that Python knows"),
        (Spelling(sep="ab"), "--sep must be one character"),
        (Spelling(sep=""), "--sep must be one character"),
        (Spelling(decimal="x"), "--decimal must be . or ,"),
    ):
        with pytest.raises(BadInputError, match=re.escape(words)):
            read_table(path, spelling)


@pytest.mark.parametrize(
    ("text", "rows"),
    [
        ('a,b\n"1,234",x\n"2,500.5",y\n', [[1234.0, "x"], [2500.5, "y"]]),
        ("a;b\n1.234,5;x\n0,5;y\n", [[1234.5, "x"], [0.5, "y"]]),
        ("a  b\n1 x\n2   y\n", [[1, "x"], [2, "y"]]),
        ("a|b\n1|x, y\n2|z; w\n", [[1, "x, y"], [2, "z; w"]]),
        ('a,b\n1,"two\nlines"\n2,y\n', [[1, "two\nlines"], [2, "y"]]),
        ("a,b,\n1,x,\n2,y,\n", [[1, "x"], [2, "y"]]),
        ("a;b\n01.02.2020;x\n02.02.2020;y\n", [["01.02.2020", "x"], ["02.02.2020", "y"]]),
        ("a,b\n1,x,\n\n2,y,\n", [[1, "x"], [2, "y"]]),
        ("a;b\n1.234,50 €;x\n-5 €;y\n", [[1234.5, "x"], [-5.0, "y"]]),
        ('a,b\n"$1,234",x\n-$0.5,y\n', [[1234.0, "x"], [-0.5, "y"]]),
        ("a;b\n12 %;1'234,5\n3%;2\u202f345,5\n", [[12.0, 1234.5], [3.0, 2345.5]]),
        ("a;b\n12 %;$1\n3;€2\n", [["12 %", "$1"], ["3", "€2"]]),
    ],
)
def test_notations(tmp_path, text, rows):
    (tmp_path / "t.csv").write_text(text)
    frame = read_table(tmp_path / "t.csv", target="").frame
    assert frame[["a", "b"]].to_numpy().tolist() == rows


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"PK\x03\x04 sheet", "is a workbook or an archive: save it as CSV or Parquet first"),
        (b"a,b\n1,2,3\n4,5,6\n", "has 3 cells in line 2, and its header has 2 names: correct"),
        (b"Report\n\na,b\n1,2\n", "has 2 cells in line 3, and its header has 1 name: correct the"),
        (b"a,b\n" + b"1,2\n" * 1500 + b"1,2,3\n", "has 3 cells in line 1502, and its header has 2"),
        (b"\x1f\x8bnot gzip", "cannot be read as a table"),
        (b"", "is empty"),
    ],
)
def test_files_that_are_no_tables(tmp_path, content, words):
    (tmp_path / "t.csv").write_bytes(content)
    with pytest.raises(BadInputError, match=re.escape(words)):
        read_table(tmp_path / "t.csv")


def test_separators_at_the_ends_of_lines_make_no_column_of_classes(tmp_path):
    (tmp_path / "t.csv").write_text("a,y,\n1,no,\n2,yes ,\n3,no ,\n")
    data = read_data(str(tmp_path / "t.csv"), None)
    assert data.classes == ("no", "yes")
    assert list(data.X) == ["a"]


def test_numbers_with_decimal_commas_and_words_among_them_are_refused_not_left_out(tmp_path):
    cells = [f"{k},5" for k in range(30)] + ["k.A.", "viel"]
    rows = "\n".join(f"{cell};{'pq'[k % 2]}" for k, cell in enumerate(cells))
    (tmp_path / "t.csv").write_text(f"a;y\n{rows}\n")
    with pytest.raises(
        BadInputError, match=r"'a' holds numbers and 2 other values \('k\.A\.', 'viel'\)"
    ):
        read_data(str(tmp_path / "t.csv"), None)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"drop": "a", "numeric": "a"}, "column 'a' cannot be left out and a number at once"),
        (
            {"categorical": "a", "numeric": "a,b"},
            "column 'a' cannot be a number and a category at once",
        ),
        ({"drop": "y"}, "column 'y' holds the classes, and is no feature"),
        ({"ids": "u,v"}, "there are no columns 'u', 'v' (the columns are 'a', 'b')"),
        ({"drop": "a,b"}, "no column is left to learn from"),
        ({"drop": "a"}, "no column is left to learn from; columns constant, left out: 'b'"),
    ],
)
def test_options_that_contradict_are_refused(tmp_path, options, words):
    (tmp_path / "t.csv").write_text("a,b,y\n1,5,x\n2,5,y\n3,5,x\n")
    with pytest.raises(BadInputError, match=re.escape(words)):
        read_data(str(tmp_path / "t.csv"), None, Options(**options))


def test_options_for_files_are_refused_where_they_say_nothing(tmp_path):
    for options in (Options(drop="a"), Options(Spelling(decimal=","))):
        with pytest.raises(
            BadInputError, match="is for files; the built-in set 'crab' is used as it is"
        ):
            read_data("crab", None, options)
    clean().to_parquet(tmp_path / "t.parquet")
    with pytest.raises(BadInputError, match=r"--sep is for text files, and .* is in Parquet"):
        read_table(tmp_path / "t.parquet", Spelling(sep=";"))


def test_dates_are_no_classes(tmp_path):
    rows = "\n".join(f"{k % 7},2021-01-0{k % 5 + 1}" for k in range(30))
    (tmp_path / "t.csv").write_text(f"a,y\n{rows}\n")
    with pytest.raises(BadInputError, match=r"'y' holds dates \(the first is '2021-01-01'\)"):
        read_data(str(tmp_path / "t.csv"), None)


def test_a_class_may_be_called_minus(tmp_path):
    (tmp_path / "t.csv").write_text("a,b,y\n1,-,-\n2,+,None\n3,+,-\n4,-,None\n")
    data = read_data(str(tmp_path / "t.csv"), None)
    assert data.classes == ("-", "None")
    assert data.X["b"].isna().tolist() == [True, False, False, True]


def test_names_with_commas_and_numbers_for_names(tmp_path):
    (tmp_path / "t.csv").write_text('"1","2","3"\n1,5,x\n2,7,y\n1,5,x\n')
    told = "\n".join(read_data(str(tmp_path / "t.csv"), None).remarks)
    assert "the first line holds numbers" in told
    assert "1 of 3 rows repeat another in all columns" in told
    (tmp_path / "t.csv").write_text('"a, b",c,y\n1,5,x\n2,7,y\n')
    assert list(read_data(str(tmp_path / "t.csv"), None, Options(drop="a, b")).X) == ["c"]
