"""Write, seal, verify and rehydrate the bundle of a run."""
