"""Play against a run's agent on OpenSpiel's board games, in the terminal or on a page, and look into its search."""
