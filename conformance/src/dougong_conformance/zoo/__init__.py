"""Tiny random models for the engine profile: config, weights from a seed, and a decoder of ours."""
