"""Serve runs: submit, watch, approve and fetch them."""
