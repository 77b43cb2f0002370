"""Legal variants: plugins that the suite must accept."""
