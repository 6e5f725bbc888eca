"""Online DPO: TRL's trainer, from whose loss pairs with a failed reward are left out."""
