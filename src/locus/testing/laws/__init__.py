"""The laws, one mixin for each group of them. `locus.testing.contract` puts them together."""
