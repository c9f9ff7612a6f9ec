"""From logits to token ids: exact filters over a batch, repeatable randomness, log probabilities, checked drafts."""
