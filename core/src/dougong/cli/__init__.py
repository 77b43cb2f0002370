"""The command line: prints, and ends with a code; everything else is done by the rooms below."""
