"""The coordinator: it sends queries to providers and adds their answers. Nobody trusts it with privacy."""
