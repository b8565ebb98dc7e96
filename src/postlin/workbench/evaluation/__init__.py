"""Cross-validation of methods: the paper's protocol and ours, resumable, with proper scores."""
