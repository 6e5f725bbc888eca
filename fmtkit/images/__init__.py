"""Images of rows: their headers, where their bytes are, how many tokens they become, what is wrong."""
