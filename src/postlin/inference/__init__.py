"""Inference: finding the sites, the posterior that they make, its evidence and its gradient."""
