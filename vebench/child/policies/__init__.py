"""What acts in the timed loop where the actions of a tape do not."""
