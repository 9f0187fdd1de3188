"""How bounds are found: multipliers, enclosures, pieces; nothing here needs to be right."""
