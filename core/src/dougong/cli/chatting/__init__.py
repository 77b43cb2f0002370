"""A conversation in a terminal, with a model here or a server elsewhere."""
