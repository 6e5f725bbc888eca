"""The chat templates of models, with BOS and trimming as the models were trained: one file each."""
