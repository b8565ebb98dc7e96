"""Linear algebra: arrays and devices, factorisations, Krylov methods, the minimiser; no statistics."""
