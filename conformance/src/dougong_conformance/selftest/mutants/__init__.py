"""Broken plugins, one defect each, by area."""
