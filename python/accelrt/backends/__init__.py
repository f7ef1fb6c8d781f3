"""Information about numeric libraries of the host, found at run time; none is linked.

Source: `torch.backends` of torch 2.13, of which this package has a part.

>>> import accelrt
>>> accelrt.backends.cpu.get_cpu_capability() in {"AVX512", "AVX2", "SVE", "DEFAULT"}
True
"""

from accelrt.backends import cpu, cuda, cudnn, mkl, mkldnn, mps, openmp

__all__ = ["cpu", "cuda", "cudnn", "mkl", "mkldnn", "mps", "openmp"]
