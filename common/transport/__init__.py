"""How parties know each other, and carry signed jobs between them; the one room of common that touches files."""
