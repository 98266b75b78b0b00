"""What a reader should know before trusting a figure: typed warnings, none without a remedy.

One module for each subject: ``work``, ``machine``, ``windows`` and ``run``. A new rule is a function in the module of
its subject, named in a tuple there, and a code in the table (``vebench.analysis.finding_codes``).
"""
