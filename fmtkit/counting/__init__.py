"""Token lengths: exact counts without making the tokens, their distribution, and limits on them."""
