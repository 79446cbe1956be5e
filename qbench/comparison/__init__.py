"""Choose the rows to compare, measure the missing ones, and make the table of changes."""
