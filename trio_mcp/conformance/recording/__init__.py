"""Records what a client and a server say to each other, standing between them."""
