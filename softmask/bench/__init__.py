"""How fast the fleet is, beside the usual way and beside what the machine allows."""
