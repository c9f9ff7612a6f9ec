"""What a key may use: requests and tokens per minute, requests at once, and money."""
