"""Judge a contract against recorded evidence: one module for each gate."""
