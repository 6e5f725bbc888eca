"""Energy-based fine-tuning, structured and strided: https://arxiv.org/abs/2603.12248."""
