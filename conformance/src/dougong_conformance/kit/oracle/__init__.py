"""What every op means, in float64, with the error terms of the law.

Each oracle takes the inputs as they were given, rounded already, and gives `Expected` or, where the
answer is exact, a tensor.
"""
