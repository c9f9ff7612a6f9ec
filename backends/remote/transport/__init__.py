"""An HTTP/1.1 client under httpx's transport interface, for a gateway that forwards thousands of requests per second."""
