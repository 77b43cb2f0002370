"""Who tests the suite: broken plugins it must reject, legal ones it must accept."""
