"""Ask models for plans, reviews and decisions."""
