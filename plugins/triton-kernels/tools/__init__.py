"""What the lane prepares."""
