"""``GPClassifier``: its parameters, its fits, its diagnostics and its model files."""
