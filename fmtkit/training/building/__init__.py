"""What a training process is built from: model, tokenizer, callbacks, and the signals that stop it."""
