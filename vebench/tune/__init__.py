"""``tune``: settings of backends race, and one is recommended."""
