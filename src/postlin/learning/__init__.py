"""Learns hyperparameters: models, the evidence as an objective, the search and its checkpoints."""
