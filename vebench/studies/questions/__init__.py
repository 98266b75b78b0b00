"""One module for each study: its ``STUDY`` is found by the module's name."""
