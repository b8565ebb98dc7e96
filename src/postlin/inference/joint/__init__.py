"""Joint inference for many classes with the softmax likelihood."""
