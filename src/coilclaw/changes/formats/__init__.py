"""Parse the formats of answers: one module for each."""
