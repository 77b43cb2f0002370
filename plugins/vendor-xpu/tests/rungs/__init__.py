"""What of the ladder is shown without the vendor's wheels."""
