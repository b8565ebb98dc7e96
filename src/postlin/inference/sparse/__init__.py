"""Inference with inducing points Z, in passes over the rows: generalised FITC with the rules' sites.

With k(Z, Z) + jitter = L Lᵀ and R = L⁻¹k(Z, x), the latent value of a row is f = Rᵀw + e. All rows
share w ~ N(0, I), and each has its own e ~ N(0, λ), λ = k(x, x) − |R|². The posterior of w is
N(w̄, B⁻¹), w̄ = B⁻¹b, where B = I + Σ τ'RRᵀ and b = Σ ν'R are the state: no row is part of it. From
μ = Rᵀw̄ and s = RᵀB⁻¹R a pass solves for each row's site (τ, ν), and with d = 1/(1 + λτ), τ' = τd and
ν' = νd it adds up the next state. Inference has converged when a pass leaves the state unchanged.
"""
