"""The platform over the simulated device: AITER's and Triton's kernels replaced by references."""
