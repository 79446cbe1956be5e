"""Which rows are compared, measuring them where they are not there yet, and the table that says what changed."""
