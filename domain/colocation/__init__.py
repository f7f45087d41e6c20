"""Co-location: what of a node is lent, how it is taken back, and what it costs. Pure functions of values."""
