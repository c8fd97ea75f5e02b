"""Coverage-guided fuzzing of kproxy's decoders, and of all else that reads what a client or a broker sends."""
