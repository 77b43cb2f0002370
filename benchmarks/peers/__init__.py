"""Dougong beside vLLM, transformers and llama.cpp, each in its own environment."""
