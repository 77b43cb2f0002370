"""What a lane of this plugin prepares in its own environment. No part of the wheel."""
