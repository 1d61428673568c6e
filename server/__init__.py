"""The coordinator's side: it combines sums, and is trusted with nothing but keeping things going."""
