"""Exact inference for two classes, or for conditional moments, with dense n × n matrices."""
