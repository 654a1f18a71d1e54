"""Picture a whole tree, compare two pictures, and bring one back."""
