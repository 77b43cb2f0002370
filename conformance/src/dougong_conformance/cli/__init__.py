"""The command `dougong-conform`."""
