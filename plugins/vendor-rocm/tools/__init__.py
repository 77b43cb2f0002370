"""Programs for whoever maintains this wheel; none is shipped in it."""
