"""Everything that runs beside the data; the only floor that ever sees a row."""
