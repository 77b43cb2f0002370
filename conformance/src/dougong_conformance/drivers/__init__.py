"""Procedures, one module per room of the contract.

Plugin side: they run and hand over what came back; they judge nothing.
"""
