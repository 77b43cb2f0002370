"""Measurements of Dougong, alone and beside its peers; run from the repository root."""
