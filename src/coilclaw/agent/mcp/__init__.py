"""Offer our tools over the Model Context Protocol, and use those of other servers."""
