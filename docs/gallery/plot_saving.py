"""
Saving and loading
==================

``postlin.save`` writes a fitted classifier, or a pipeline that ends in one, to a file, and
``postlin.load`` reads it. Unlike a pickle, such a file runs no code when it is read.
"""

# %%
# A pipeline, fitted, saved and loaded.
import tempfile
from pathlib import Path

import numpy as np
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import postlin
from postlin.datasets import load

crab = load("crab")
model = make_pipeline(StandardScaler(), postlin.GPClassifier()).fit(crab.X, crab.y)

folder = tempfile.TemporaryDirectory()
path = Path(folder.name) / "crab.postlin"
postlin.save(model, path)
again = postlin.load(path)
print(f"{path.stat().st_size / 1024:.0f} KiB")
print(f"same probabilities: {np.array_equal(model.predict_proba(crab.X), again.predict_proba(crab.X))}")

# %%
# No matrices are in the file: they are made again from the sites when they are first needed. What
# ``fit`` found out is there.
print(again[-1].summary())

# %%
# Its pictures can be drawn from the file as well.
from postlin.plotting import LeaveOneOutDisplay

_ = LeaveOneOutDisplay.from_estimator(again)

# %%
# A file that is something else, or was changed, is not loaded.
changed = Path(folder.name) / "changed.postlin"
content = bytearray(path.read_bytes())
content[-100] ^= 1
changed.write_bytes(content)
try:
    postlin.load(changed)
except ValueError as error:
    print(f"{type(error).__name__}: the file is not what was written")
folder.cleanup()
