"""The coordinator: it sends queries to providers and adds their answers. Privacy does not depend on it."""
