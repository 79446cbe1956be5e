"""Records: one measured case a line of JSON, appended whole and read back whatever happened to the file."""
