"""For tests, ours and others': a platform without a device. Nothing in the core imports it."""
