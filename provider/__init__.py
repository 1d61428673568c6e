"""Everything that runs beside the data. No other package ever sees a row."""
