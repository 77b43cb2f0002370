"""What is shown with the real libraries of vllm-xpu-kernels, beside a CPU build of PyTorch."""
