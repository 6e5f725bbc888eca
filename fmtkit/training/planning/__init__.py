"""From a configuration to the plan of a run: arguments, their origins, and every check before it starts."""
