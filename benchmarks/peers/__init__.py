"""The contestants, one module a library, all with the interface of ``peers.base``."""
