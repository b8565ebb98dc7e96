"""Sparse posterior linearisation: generalised FITC with inducing points, in passes over the rows.

With inducing points Z, Kuu = L Lᵀ and R = L⁻¹k(Z, x) a latent value is f = Rᵀw + e, where w ~ N(0,
I) is shared and e ~ N(0, λ), λ = k(x, x) − |R|², is the row's own. The posterior over w is all that
is kept, m × m numbers; the data are touched only by pure functions of a chunk of rows whose results
are added up.
"""
