"""Group relative policy optimisation by TRL's trainers, the asynchronous one too."""
