"""The analyst's side: estimator, connection to a federation, simulation and reports."""
