"""What AITER's calls and the Triton launchers mean, in plain torch, with the limits that their
source states as errors. Test code: none of it is in the wheel."""
