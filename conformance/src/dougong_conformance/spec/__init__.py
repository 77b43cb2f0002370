"""The specification, one file per profile."""
