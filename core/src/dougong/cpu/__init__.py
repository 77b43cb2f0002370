"""The CPU platform: ships with the core, registered and bound by the same rules as any plugin."""
