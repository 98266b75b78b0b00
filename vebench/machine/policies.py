"""The names of the policies that a user can choose from: where cells run, and where their memory lies."""

PIN = ("compact", "scatter", "none")
SMT = ("last", "off", "close")
MEMORY = ("local", "bind", "preferred")
