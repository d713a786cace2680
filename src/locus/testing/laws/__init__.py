"""The laws, one mixin for each group. `locus.testing.contract` puts them together."""
