"""Sparse inference: inducing points, and data that are only ever read a chunk at a time."""
