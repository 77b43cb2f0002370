"""Checks, one module per profile. Judge side: torch and the kit, never the core nor a plugin."""
