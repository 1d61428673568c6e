"""The analyst's side: estimators, simulation, reports."""
