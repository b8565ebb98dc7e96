"""Compares the tiled factorisation on a device with PyTorch's own: time and peak memory.

Both compute what an iteration of inference needs: the Cholesky factor of B = I + S K S, a solve, the
diagonal of B⁻¹ and the posterior correlation. The tiled one works in place on one matrix; PyTorch's is
``torch.linalg.cholesky`` and ``torch.cholesky_inverse``, each of which makes a matrix of its own.

    python benchmarks/tiles.py --device cuda --sizes 2000,8000,20000,40000
"""

import argparse
import time

import numpy as np
import torch

from postlin.linalg.tiles import TiledFactor


def tiled(K, root):
    """The in-place way of the library."""
    factor = TiledFactor(K, root)
    solved = factor.solve(np.ones(len(root)))
    variance, gap = factor.marginals()
    factor.into_correlation(1.0 / (root * np.sqrt(variance)), None)
    return solved, gap


def whole(K, root):
    """PyTorch's functions for whole matrices."""
    s = torch.as_tensor(root, device=K.device)
    B = K * s[:, None] * s
    B.diagonal().add_(1.0)
    L = torch.linalg.cholesky(B)
    del B
    one = torch.ones(len(root), 1, dtype=K.dtype, device=K.device)
    solved = torch.cholesky_solve(one, L)[:, 0]
    inverse = torch.cholesky_inverse(L)
    del L
    gap = inverse.diagonal().clone()
    unit = 1.0 / torch.sqrt(1.0 - gap)
    inverse *= -unit[:, None]
    inverse *= unit
    return solved.cpu().numpy(), gap.cpu().numpy()


def measured(work, K, root, repeats):
    """Seconds (the best of some) and bytes above K at the peak; bytes are known on a GPU only."""
    cuda = K.device.type == "cuda"
    seconds, peak = [], 0
    for _ in range(repeats):
        if cuda:
            torch.cuda.synchronize()
            torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated() if cuda else 0
        began = time.perf_counter()
        found = work(K, root)
        if cuda:
            torch.cuda.synchronize()
            peak = torch.cuda.max_memory_allocated() - before
        seconds.append(time.perf_counter() - began)
    return min(seconds), peak, found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--sizes", default="1000,2000,4000")
    parser.add_argument("--repeats", type=int, default=3)
    arguments = parser.parse_args()
    head = ("n", "tiled, s", "whole, s", "tiled, n²", "whole, n²", "differ by")
    print("".join(f"{h:>11s}" for h in head))
    for n in map(int, arguments.sizes.split(",")):
        X = torch.as_tensor(np.random.default_rng(0).normal(size=(n, 4)), device=arguments.device)
        K = torch.exp(-0.5 * torch.cdist(X, X) ** 2) + 0.1 * torch.eye(
            n, dtype=X.dtype, device=X.device
        )
        root = np.sqrt(np.random.default_rng(1).uniform(0.05, 0.8, n))
        ours, our_peak, found = measured(tiled, K, root, arguments.repeats)
        theirs, their_peak, expected = measured(whole, K, root, arguments.repeats)
        gap = max(np.abs(a - b).max() for a, b in zip(found, expected, strict=True))
        peaks = "".join(f"{p / (8 * n**2):11.2f}" for p in (our_peak, their_peak))
        print(f"{n:11d}{ours:11.3f}{theirs:11.3f}{peaks}{gap:11.1e}", flush=True)


if __name__ == "__main__":
    main()
