"""Inference in batches of small independent problems: k labelled neighbours and one query each."""
