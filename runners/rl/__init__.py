"""`trl`: what the online methods can do beyond TRL."""
