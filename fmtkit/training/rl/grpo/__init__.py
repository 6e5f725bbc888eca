"""GRPO and its kin: TRL's trainers, and what fmtkit adds to them."""
