"""Servers beside one another: how each is started, frozen while another is measured, and asked."""
