"""Install, pin and run tools that are programs of their own."""
