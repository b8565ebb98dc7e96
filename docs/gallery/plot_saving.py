"""
Saving and loading
==================

``postlin.save`` writes a fitted classifier, or a pipeline that ends in one, to a file, and
``postlin.load`` reads it. Unlike a pickle, such a file executes no code when it is loaded.
"""

# %%
# We fit, save and load a pipeline.
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
# The file does not contain matrices; the model recomputes them from the sites when it first needs them.
# The file does contain all results of ``fit``.
print(again[-1].summary())

# %%
# The displays also work with a loaded model.
from postlin.plotting import LeaveOneOutDisplay

_ = LeaveOneOutDisplay.from_estimator(again)

# %%
# ``load`` refuses a file that was changed or is not a model file.
changed = Path(folder.name) / "changed.postlin"
content = bytearray(path.read_bytes())
content[-100] ^= 1
changed.write_bytes(content)
try:
    postlin.load(changed)
except ValueError as error:
    print(f"{type(error).__name__}: the file is not what was written")
folder.cleanup()
