"""Linear algebra without statistics: arrays on devices, triangular factors, GMRES, the minimiser."""
