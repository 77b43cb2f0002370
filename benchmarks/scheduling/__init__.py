"""What one scheduling step costs: Dougong's scheduler and vLLM's, driven the same way."""
