"""Write, verify, settle and export the receipts of tool calls."""
