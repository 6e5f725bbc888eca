"""What a run left: an adapter or model, merged into its base or compared with it."""
