"""What is shown with the CPU build of Intel's extension, whose kernels run.

They are the provider's kernels for a CPU and not those of a chip, and the engine does not run: the
core needs a torch that is newer than the extension's last one. So this stands beside the ladder.
"""
