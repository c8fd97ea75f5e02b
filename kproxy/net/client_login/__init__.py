"""What a client's login needs of the world: files, keys, time to compute."""
