"""What the gateway remembers between requests: conversations, stored responses and answers that may be given again."""
