"""What a reader should know before he trusts a figure: typed warnings, none without a remedy."""
