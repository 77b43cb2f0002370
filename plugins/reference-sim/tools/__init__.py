"""What makes files of this repository; in no wheel."""
