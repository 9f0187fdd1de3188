"""What users ask: bounds, reach sets, sensitivities, certified radii, campaigns, comparisons."""
