"""What developers of this wheel run."""
