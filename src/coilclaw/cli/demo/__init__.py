"""Demonstrations on trees made for the purpose."""
