"""From a graph to a network: rewrites that keep the function, then a schedule."""
