"""The frameworks' own test suites, with the stores of Locus in the place of theirs: `make suites`."""
