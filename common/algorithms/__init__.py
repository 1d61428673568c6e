"""One coroutine a file: it yields a query, receives the noisy aggregate and returns a model."""
