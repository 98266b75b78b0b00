"""The names of the policies that a user can choose: for the CPUs that cells run on, and for their memory."""

PIN = ("compact", "scatter", "none")
SMT = ("last", "off", "close")
MEMORY = ("local", "bind", "preferred")
