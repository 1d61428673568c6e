"""The messages that the parties exchange, and the code generated from them."""
