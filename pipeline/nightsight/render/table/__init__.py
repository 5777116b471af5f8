"""Tables as a reader sees them: layouts, short names, units, and the rows that scripts can show."""
