"""Define the records of orchestrated work and the rules beyond their schemas."""
